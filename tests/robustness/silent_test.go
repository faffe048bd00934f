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
	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/tests/harness"
)

// A firewall forgets all connections between a server and its database: they stay open and say
// nothing. The server replaces them, for every kind of work.
func TestSilentConnections(t *testing.T) {
	t.Parallel()
	silenceConnections(t, fixtures.MySQL(t), 1)
}

func silenceConnections(t *testing.T, dsn string, rounds int) {
	t.Helper()
	config, err := mysql.ParseDSN(dsn)
	harness.Must(t, err)
	proxy := fixtures.NewProxy(t, config.Addr)
	other := fixtures.StartLocket(t, "mysql:"+dsn).Client(t)
	config.Addr = proxy.Addr()
	client := fixtures.StartLocket(t, "mysql:"+config.FormatDSN()).Client(t)
	harness.Create(t, client, "warm", "warm", time.Hour)
	for round := range rounds {
		var longest, refused atomic.Int64
		var callers sync.WaitGroup
		end := make(chan struct{})
		stop := sync.OnceFunc(func() {
			close(end)
			callers.Wait()
		})
		t.Cleanup(stop)
		call := func(name string, request func() error) {
			callers.Go(func() {
				for {
					select {
					case <-end:
						return
					case <-time.After(20 * time.Millisecond): // real time: the pause between two requests
					}
					start := time.Now()
					err := request()
					atomicMax(&longest, int64(time.Since(start)))
					if status.Code(err) == codes.Unavailable {
						refused.Add(1)
					} else if err != nil {
						t.Errorf("%s: %v", name, err)
					}
				}
			})
		}
		for n := range 8 {
			call("Lock", func() error {
				_, err := harness.TryLock(t, client, fmt.Sprint("key ", n), "o", time.Minute)
				return err
			})
			call("GetClaim", func() error {
				_, err := client.GetClaim(t.Context(), &models.GetClaimRequest{Id: "warm"})
				return err
			})
		}
		call("ListClaims", func() error {
			_, err := client.ListClaims(t.Context(), &models.ListClaimsRequest{})
			return err
		})
		time.Sleep(time.Second) // real time: of load before the fault
		proxy.Silence()
		begin := time.Now()
		time.Sleep(othersWait) // real time: of load in the fault
		handOverIsHeard(t, other, client, fmt.Sprint("handed-on-", round))
		time.Sleep(healthyWithin/2 - time.Since(begin)) // real time: the fault is over
		before := refused.Load()
		time.Sleep(time.Second) // real time: of load afterwards
		stop()
		took := time.Duration(longest.Load())
		t.Logf("a request took %v at most, %d were refused, %d of them at the end", took, refused.Load(), refused.Load()-before)
		harness.AtMost(t, "a request", took, othersWait)
		if refused.Load() > before {
			t.Errorf("at the end %d were refused", refused.Load()-before)
		}
	}
}

// handOverIsHeard has a call wait at one server for a claim that another server grants.
func handOverIsHeard(t *testing.T, from, at models.LocketClient, resource string) {
	t.Helper()
	holder, next := resource+"-holder", resource+"-next"
	harness.Create(t, from, resource, holder, time.Hour)
	harness.Create(t, at, resource, next, time.Hour)
	granted := harness.Later(func() error {
		_, err := at.AwaitClaim(t.Context(), &models.AwaitClaimRequest{Id: next})
		return err
	})
	time.Sleep(200 * time.Millisecond) // real time: it waits, or comes when the claim is granted
	released := time.Now()
	harness.Release(t, from, holder)
	harness.Must(t, <-granted)
	harness.AtMost(t, "the grant of another server", time.Since(released), 2*time.Second)
}
