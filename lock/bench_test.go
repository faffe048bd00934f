package lock_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tedsuo/ifrit"
	"google.golang.org/grpc"

	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/lock"
	"github.com/locket-service/locket/lock/conn"
	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/tests/harness"
)

// crowd has many runners in this process. Each of them holds a lock of its own. They share one connection to a server,
// which runs in another process.
type crowd struct {
	t         testing.TB
	conn      *conn.Conn
	runners   []*lock.Runner
	processes []ifrit.Process
	// before is the number of goroutines before the runners started.
	before int

	mu    sync.Mutex
	locks []time.Time // when Lock was called
}

func newCrowd(t testing.TB, many int, ttl, retry time.Duration) *crowd {
	t.Helper()
	server := fixtures.StartLocket(t, "embedded:"+filepath.Join(t.TempDir(), "data"))
	c := &crowd{t: t}
	conn, err := lock.Dial([]string{server.Address()}, conn.WithDialOptions(grpc.WithUnaryInterceptor(c.count)))
	must(t, err)
	t.Cleanup(func() { must(t, conn.Close()) })
	c.conn = conn
	for i := range many {
		c.runners = append(c.runners, lock.NewLockRunner(c.client(), resource(fmt.Sprint(i), "crowd"), ttl, retry))
	}
	c.held(0) // so that the connection is up
	c.before = runtime.NumGoroutine()
	return c
}

func (c *crowd) client() models.LocketClient { return models.NewLocketClient(c.conn) }

// count notes the calls of Lock.
func (c *crowd) count(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	if method == models.Locket_Lock_FullMethodName {
		c.mu.Lock()
		c.locks = append(c.locks, time.Now())
		c.mu.Unlock()
	}
	return invoker(ctx, method, req, reply, cc, opts...)
}

// perSecond returns the number of calls of Lock in each second after a moment, for some seconds.
func (c *crowd) perSecond(from time.Time, seconds int) []int {
	c.mu.Lock()
	defer c.mu.Unlock()
	counts := make([]int, seconds)
	for _, at := range c.locks {
		if i := at.Sub(from); i >= 0 && int(i/time.Second) < seconds {
			counts[i/time.Second]++
		}
	}
	return counts
}

// start starts all runners at once, and returns the time until all of them held.
func (c *crowd) start() time.Duration {
	c.t.Helper()
	begin := time.Now()
	for _, r := range c.runners {
		c.processes = append(c.processes, ifrit.Background(r))
	}
	for i, p := range c.processes {
		select {
		case <-p.Ready():
		case <-time.After(harness.HangTimeout):
			c.t.Fatalf("runner %d does not hold", i)
		}
	}
	return time.Since(begin) // real time: a benchmark tells it
}

// end signals all runners at once, and returns the time until all of them had ended.
func (c *crowd) end() time.Duration {
	c.t.Helper()
	begin := time.Now()
	for _, p := range c.processes {
		p.Signal(os.Interrupt)
	}
	for i, p := range c.processes {
		if err := <-p.Wait(); err != nil {
			c.t.Errorf("runner %d: %v", i, err)
		}
	}
	took := time.Since(begin) // real time: a benchmark tells it
	c.processes = nil
	return took
}

// held fails the test unless a number of runners are within their trust windows, and the server lists the same number
// of locks.
func (c *crowd) held(want int) {
	c.t.Helper()
	trusting := 0
	for _, r := range c.runners {
		if _, held := r.Held(); held {
			trusting++
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), harness.HangTimeout)
	defer cancel()
	all, err := c.client().FetchAll(ctx, &models.FetchAllRequest{TypeCode: models.TypeCode_LOCK}, grpc.WaitForReady(true))
	must(c.t, err)
	if granted := len(all.GetResources()); trusting != want || granted != want {
		c.t.Errorf("%d are within their trust windows and %d hold, want %d", trusting, granted, want)
	}
}

// leftNothing fails the test if there are more goroutines than before the runners.
func (c *crowd) leftNothing() {
	c.t.Helper()
	for deadline := time.Now().Add(10 * time.Second); runtime.NumGoroutine() > c.before; time.Sleep(10 * time.Millisecond) { // real time: of a benchmark
		if time.Now().After(deadline) {
			stacks := make([]byte, 1<<16)
			c.t.Errorf("%d goroutines, and %d before:\n%s", runtime.NumGoroutine(), c.before, stacks[:runtime.Stack(stacks, true)])
			return
		}
	}
}

// TestRunnersLeaveNothing: many runners hold at the same time and end, twice. They leave no goroutine and no lock. The test
// does not run in parallel with others, because it would see their goroutines.
func TestRunnersLeaveNothing(t *testing.T) {
	const many = 50
	inWorld(t, func(t *testing.T, w *world) {
		locks := &models.FetchAllRequest{TypeCode: models.TypeCode_LOCK}
		for range 2 {
			processes := make([]ifrit.Process, many)
			for i := range processes {
				processes[i] = ifrit.Background(lock.NewLockRunner(w.rpc(), resource(fmt.Sprint(i), "crowd"), ttl, retry))
			}
			time.Sleep(ttl) // until they were renewed
			all, err := w.rpc().FetchAll(t.Context(), locks)
			must(t, err)
			if held := len(all.GetResources()); held != many {
				t.Errorf("%d hold", held)
			}
			for _, p := range processes {
				must(t, end(p))
			}
			synctest.Wait()
			stacks := make([]byte, 1<<22)
			for stack := range strings.SplitSeq(string(stacks[:runtime.Stack(stacks, true)]), "\n\n") {
				if strings.Contains(stack, "locket/lock.") {
					t.Errorf("a goroutine is left:\n%s", stack)
				}
			}
			all, err = w.rpc().FetchAll(t.Context(), locks)
			must(t, err)
			if held := len(all.GetResources()); held != 0 {
				t.Errorf("%d hold at the end", held)
			}
		}
	})
}

// BenchmarkRunners measures the cost of a thousand runners that start at the same time, with the default TTL and the default
// retry interval:
//
//	go test ./lock -run '^$' -bench Runners
//
// It reports the mean number of renewals per second, the maximum within the first TTL, and the maximum after that: the
// jitter takes some time to spread them.
func BenchmarkRunners(b *testing.B) {
	const many, ttls = 1000, 3
	seconds := int(lock.DefaultTTL / time.Second)
	c := newCrowd(b, many, lock.DefaultTTL, lock.DefaultRetryInterval)
	for b.Loop() {
		heap, stack := memory()
		started := c.start()
		b.ReportMetric(started.Seconds(), "s/all-held")
		began := time.Now()
		time.Sleep(lock.DefaultTTL) // real time: of a benchmark
		b.ReportMetric(float64(runtime.NumGoroutine()-c.before)/many, "goroutines/runner")
		heapThen, stackThen := memory()
		b.ReportMetric(float64(heapThen-heap)/many, "heap-B/runner")
		b.ReportMetric(float64(stackThen-stack)/many, "stack-B/runner")
		time.Sleep(time.Until(began.Add(ttls * lock.DefaultTTL))) // real time: of a benchmark
		c.held(many)
		counts := c.perSecond(began, ttls*seconds)
		sum := 0
		for _, n := range counts {
			sum += n
		}
		b.Logf("renewals in each second: %v", counts)
		b.ReportMetric(float64(sum)/float64(len(counts)), "renewals/s")
		b.ReportMetric(float64(slices.Max(counts[:seconds])), "renewals/s-at-first")
		b.ReportMetric(float64(slices.Max(counts[seconds:])), "renewals/s-at-most")
		ended := c.end()
		b.ReportMetric(ended.Seconds(), "s/all-released")
		c.held(0)
		c.leftNothing()
	}
	b.ReportMetric(0, "ns/op") // means nothing here
}

// memory returns how many bytes are in use, on the heap and in stacks.
func memory() (heap, stack int64) {
	runtime.GC()
	runtime.GC() // the second collection frees what the first one left in pools
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc), int64(stats.StackInuse)
}
