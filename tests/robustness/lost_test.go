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
	// othersWait is the longest time that a request for another resource may wait while the transaction of a lost server holds row
	// locks, or while the connections of a server are silent.
	othersWait = 3 * time.Second
	// healthyWithin is how long such a fault may have an effect.
	healthyWithin = 10 * time.Second
)

// The machine of a server is lost after its transaction has locked rows, and before its COMMIT. The other servers refuse requests for these
// rows, serve all others, and the rows are free again soon.
func TestServerLostInTransaction(t *testing.T) {
	t.Parallel()
	loseServer(t, fixtures.MySQL(t), false)
}

// loseServer loses a server in its transaction. With silent, the connections of the other server become silent at the same moment.
func loseServer(t *testing.T, dsn string, silent bool) {
	t.Helper()
	config, err := mysql.ParseDSN(dsn)
	harness.Must(t, err)
	proxy, other := fixtures.NewProxy(t, config.Addr), fixtures.NewProxy(t, config.Addr)
	config.Addr = other.Addr()
	database := config.FormatDSN()
	if !silent { // nothing is wrong with its connections
		database = harness.Unhurried(t, database)
	}
	healthy := fixtures.StartLocket(t, "mysql:"+database).Client(t)
	config.Addr = proxy.Addr()
	server := fixtures.StartLocket(t, "mysql:"+harness.Unhurried(t, config.FormatDSN())) // nothing is wrong with its connections until then
	lost := server.Client(t)
	harness.Lock(t, lost, "locked", "o", 2*time.Second)
	harness.Lock(t, lost, "warm", "o", time.Minute)

	sent := proxy.SilenceBefore([]byte("COMMIT"))
	go func() { _, _ = harness.TryLock(t, lost, "locked", "o", 2*time.Second) }()
	harness.Await(t, "COMMIT that is silenced", sent)
	proxy.Hang() // so that it cannot send a query either
	server.Kill()
	begin := time.Now()
	if silent {
		other.Silence()
	}

	var callers sync.WaitGroup
	var longest atomic.Int64
	end := make(chan struct{})
	recovered := begin.Add(healthyWithin)
	for n := range 8 {
		callers.Go(func() {
			harness.Repeat(end, 100*time.Millisecond, func() {
				start := time.Now()
				_, err := harness.TryLock(t, healthy, fmt.Sprint("other ", n), "o", time.Minute)
				if mayFail := silent && status.Code(err) == codes.Unavailable && time.Now().Before(recovered); err != nil && !mayFail {
					t.Errorf("another resource: %v", err)
				}
				atomicMax(&longest, int64(time.Since(start))) // real time: for AtMost
			})
		})
	}
	refused := 0
	harness.Eventually(t, func() error {
		start := time.Now()
		_, err := harness.TryLock(t, healthy, "locked", "next", time.Minute)
		harness.AtMost(t, "an answer", time.Since(start), othersWait)
		if code := status.Code(err); err != nil && code != codes.Unavailable && code != codes.AlreadyExists {
			t.Errorf("the locked resource: %v", err)
		}
		refused++
		return err
	})
	harness.LogTime(t, fmt.Sprintf("the lock, with %d refusals,", refused-1), begin)
	if silent {
		time.Sleep(time.Until(recovered.Add(othersWait))) // real time: load continues after the fault
	}
	close(end)
	callers.Wait()
	harness.AtMost(t, "a request for another resource", time.Duration(longest.Load()), othersWait)
}
