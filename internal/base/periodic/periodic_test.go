package periodic_test

import (
	"context"
	"os"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tedsuo/ifrit"

	"github.com/locket-service/locket/internal/base/periodic"
)

// stop ends a runner and returns how long that took.
func stop(t *testing.T, process ifrit.Process) time.Duration {
	t.Helper()
	begin := time.Now()
	process.Signal(os.Interrupt)
	if err := <-process.Wait(); err != nil {
		t.Error(err)
	}
	return time.Since(begin)
}

func TestInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		process := ifrit.Invoke(periodic.New(time.Second, func(context.Context) { calls++; time.Sleep(100 * time.Millisecond) }))
		time.Sleep(10*time.Second + 500*time.Millisecond)
		stop(t, process)
		if calls != 10 {
			t.Errorf("%d calls in 10 s", calls)
		}
	})
}

// Work that takes longer than the interval is not called twice at once.
func TestSlowWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var running, calls atomic.Int32
		process := ifrit.Invoke(periodic.New(time.Second, func(context.Context) {
			if running.Add(1) > 1 {
				t.Error("called twice at once")
			}
			calls.Add(1)
			time.Sleep(3 * time.Second)
			running.Add(-1)
		}))
		time.Sleep(30 * time.Second)
		stop(t, process)
		if n := calls.Load(); n < 9 || n > 10 {
			t.Errorf("%d calls in 30 s", n)
		}
	})
}

// The end cancels the work under way, and waits for it.
func TestStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended := false
		process := ifrit.Invoke(periodic.New(time.Second, func(ctx context.Context) {
			<-ctx.Done()
			time.Sleep(time.Second)
			ended = true
		}))
		time.Sleep(5 * time.Second)
		if took := stop(t, process); took != time.Second || !ended {
			t.Errorf("stopped after %s, the work had ended: %t", took, ended)
		}
	})
}

// A pause that was long ends when it is woken, and the next one may be shorter.
func TestPaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wake := make(chan struct{}, 1)
		var pause atomic.Int64
		pause.Store(int64(time.Hour))
		var calls []time.Duration
		begin := time.Now()
		process := ifrit.Invoke(periodic.Paced(func() time.Duration { return time.Duration(pause.Load()) }, wake, func(context.Context) {
			calls = append(calls, time.Since(begin))
		}))
		time.Sleep(time.Minute)
		pause.Store(int64(20 * time.Second))
		wake <- struct{}{}
		time.Sleep(50 * time.Second)
		stop(t, process)
		want := []time.Duration{time.Minute, 80 * time.Second, 100 * time.Second}
		if len(calls) != len(want) {
			t.Fatalf("called at %v, want %v", calls, want)
		}
		for i := range want {
			if calls[i] != want[i] {
				t.Errorf("called at %v, want %v", calls, want)
			}
		}
	})
}
