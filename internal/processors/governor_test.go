package processors_test

import (
	"os"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tedsuo/ifrit"

	"github.com/locket-service/locket/internal/claim"
	"github.com/locket-service/locket/internal/processors"
)

// govern has a governor run in a bubble, and compares the number of processors meanwhile, at the end of the test, and after it.
func govern(t *testing.T, want int, underWay func() int, test func(*processors.Governor)) {
	t.Helper()
	before := runtime.GOMAXPROCS(0)
	synctest.Test(t, func(t *testing.T) {
		governor := processors.New(underWay)
		process := ifrit.Invoke(governor)
		time.Sleep(3 * time.Second)
		test(governor)
		if got := runtime.GOMAXPROCS(0); got != want {
			t.Errorf("%d processors, want %d", got, want)
		}
		process.Signal(os.Interrupt)
		if err := <-process.Wait(); err != nil {
			t.Error(err)
		}
	})
	if got := runtime.GOMAXPROCS(0); got != before {
		t.Errorf("%d processors in the end, want %d", got, before)
	}
}

func TestGovernor(t *testing.T) {
	t.Setenv("GOMAXPROCS", "")
	runtime.SetDefaultGOMAXPROCS()
	all := runtime.GOMAXPROCS(0)
	t.Run("nothing to do", func(t *testing.T) {
		govern(t, 1, func() int { return 0 }, func(*processors.Governor) {})
	})
	t.Run("calls", func(t *testing.T) {
		govern(t, all, func() int { return 9 }, func(*processors.Governor) {})
	})
	t.Run("commits of few changes", func(t *testing.T) {
		govern(t, 1, func() int { return 0 }, func(g *processors.Governor) {
			for range 100 {
				g.Committed(claim.Instant{}, make([]claim.Transition, 8))
			}
			time.Sleep(200 * time.Millisecond)
		})
	})
	t.Run("commits of many changes", func(t *testing.T) {
		govern(t, all, func() int { return 0 }, func(g *processors.Governor) {
			for range 100 {
				g.Committed(claim.Instant{}, make([]claim.Transition, 9))
			}
			time.Sleep(200 * time.Millisecond)
		})
	})
	t.Run("commits of many changes after a rest", func(t *testing.T) {
		var looks atomic.Int64
		govern(t, all, func() int { looks.Add(1); return 0 }, func(g *processors.Governor) {
			before := looks.Load()
			time.Sleep(time.Minute)
			if n := looks.Load() - before; n > 61 {
				t.Errorf("%d looks in a minute in which there was nothing to do", n)
			}
			for range 100 {
				g.Committed(claim.Instant{}, make([]claim.Transition, 9))
			}
			time.Sleep(time.Millisecond)
		})
	})
	t.Run("the environment says how many", func(t *testing.T) {
		t.Setenv("GOMAXPROCS", "4")
		govern(t, all, func() int { return 0 }, func(*processors.Governor) {})
	})
}
