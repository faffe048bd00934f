//go:build soak

package robustness_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/tests/harness"
)

// TestSoakSessionWithMuch: sessions that hold very many resources are ended in each way.
func TestSoakSessionWithMuch(t *testing.T) {
	small := fixtures.NewMariaDB(t, fixtures.WithServerArgs("--max-allowed-packet=1M"))
	databases := harness.Engines()
	databases["mysql with small packets"] = func(t *testing.T) string { return "mysql:" + small.CreateDatabase(t) }
	for name, database := range databases {
		for _, m := range []much{{locks: 4200, value: 4 << 10}, {locks: 6000, value: 64 << 10}} {
			for how, end := range endings {
				t.Run(fmt.Sprint(name, "/", m, "/", how), func(t *testing.T) {
					server := fixtures.StartLocket(t, database(t))
					stop := besideOthers(t, server)
					m.isEnded(t, server, end)
					stop()
				})
			}
		}
	}
}

// besideOthers locks at a server until stop, which checks the longest wait: others wait for one step of an end at most.
func besideOthers(t *testing.T, server *fixtures.Locket) (stop func()) {
	t.Helper()
	client, stopped := server.Client(t), make(chan struct{})
	var callers sync.WaitGroup
	var mu sync.Mutex
	var calls int
	var longest time.Duration
	for i := range 8 {
		resource := &models.Resource{Key: fmt.Sprint("other", i), Owner: "o", TypeCode: models.TypeCode_LOCK}
		callers.Go(func() {
			for {
				begin := time.Now()
				_, err := client.Lock(t.Context(), &models.LockRequest{Resource: resource, TtlInSeconds: 60})
				took := time.Since(begin)
				mu.Lock()
				calls, longest = calls+1, max(longest, took)
				mu.Unlock()
				if err != nil {
					t.Errorf("beside it: %v", err)
					return
				}
				select {
				case <-stopped:
					return
				case <-time.After(5 * time.Millisecond):
				}
			}
		})
	}
	return func() {
		close(stopped)
		callers.Wait()
		harness.AtMost(t, fmt.Sprintf("the longest of %d calls beside it", calls), longest, othersWait)
	}
}
