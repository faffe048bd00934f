package robustness_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/tests/harness"
)

const (
	// othersWait is how long a request for another resource may wait while the transaction of a
	// lost server holds row locks, or a server's connections are silent.
	othersWait = 3 * time.Second
	// healthyWithin is after what time a fault of this kind has no effect any more.
	healthyWithin = 15 * time.Second
)

// A server's machine is lost between its row locks and its COMMIT. The others refuse what it had
// locked, serve everything else, and its rows are free again soon.
func TestServerLostInTransaction(t *testing.T) {
	t.Parallel()
	loseServer(t, fixtures.MySQL(t), false)
}

// loseServer loses a server in its transaction. silent says that the connections of the other one,
// which is to go on, become silent in that moment.
func loseServer(t *testing.T, dsn string, silent bool) {
	t.Helper()
	config, err := mysql.ParseDSN(dsn)
	harness.Must(t, err)
	proxy, other := fixtures.NewProxy(t, config.Addr), fixtures.NewProxy(t, config.Addr)
	config.Addr = other.Addr()
	healthy := fixtures.StartLocket(t, "mysql:"+config.FormatDSN()).Client(t)
	config.Addr = proxy.Addr()
	server := fixtures.StartLocket(t, "mysql:"+config.FormatDSN())
	lost := server.Client(t)
	harness.Lock(t, lost, "locked", "o", 2*time.Second)
	harness.Lock(t, lost, "warm", "o", time.Minute)

	sent := proxy.SilenceBefore([]byte("COMMIT"))
	go func() { _, _ = harness.TryLock(t, lost, "locked", "o", 2*time.Second) }()
	<-sent
	proxy.Hang() // so that it cannot ask either
	server.Kill()
	begin := time.Now()
	if silent {
		other.Silence()
	}

	var callers sync.WaitGroup
	var longest atomic.Int64
	for n := range 8 {
		callers.Go(func() {
			for key := fmt.Sprint("other ", n); time.Since(begin) < healthyWithin; time.Sleep(20 * time.Millisecond) {
				start := time.Now()
				_, err := harness.TryLock(t, healthy, key, "o", time.Minute)
				if refused := silent && status.Code(err) == codes.Unavailable && time.Since(begin) < healthyWithin-5*time.Second; err != nil && !refused {
					t.Errorf("another resource after %v: %v", time.Since(begin), err)
				}
				atomicMax(&longest, int64(time.Since(start)))
			}
		})
	}
	refused := 0
	for ; ; time.Sleep(100 * time.Millisecond) {
		start := time.Now()
		_, err := harness.TryLock(t, healthy, "locked", "next", time.Minute)
		harness.AtMost(t, "an answer", time.Since(start), othersWait)
		if err == nil {
			break
		}
		if code := status.Code(err); code != codes.Unavailable && code != codes.AlreadyExists {
			t.Errorf("the locked resource: %v", err)
		}
		refused++
		if time.Since(begin) > harness.HangTimeout { // real time: it hangs
			t.Errorf("the row is locked for %v by now: %v", time.Since(begin), err)
			break
		}
	}
	t.Logf("locked for %v, refused %d times", time.Since(begin), refused)
	callers.Wait()
	harness.AtMost(t, "a request for another resource", time.Duration(longest.Load()), othersWait)
}
