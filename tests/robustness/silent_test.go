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

// A firewall forgets all connections between a server and its database: they stay open, and transmit nothing. The server replaces them, for
// every kind of work.
func TestSilentConnections(t *testing.T) {
	t.Parallel()
	silenceConnections(t, fixtures.MySQL(t), 1)
}

func silenceConnections(t *testing.T, dsn string, rounds int) {
	t.Helper()
	config, err := mysql.ParseDSN(dsn)
	harness.Must(t, err)
	proxy := fixtures.NewProxy(t, config.Addr)
	other := fixtures.StartLocket(t, "mysql:"+harness.Unhurried(t, dsn)).Client(t) // nothing is wrong with its connections
	config.Addr = proxy.Addr()
	client := fixtures.StartLocket(t, "mysql:"+config.FormatDSN()).Client(t)
	harness.Create(t, client, "warm", "warm", time.Hour)
	for round := range rounds {
		var longest, refused, inARow atomic.Int64
		var callers sync.WaitGroup
		end := make(chan struct{})
		stop := sync.OnceFunc(func() {
			close(end)
			callers.Wait()
		})
		t.Cleanup(stop)
		call := func(name string, request func() error) {
			callers.Go(func() {
				harness.Repeat(end, 20*time.Millisecond, func() {
					start := time.Now()
					err := request()
					atomicMax(&longest, int64(time.Since(start))) // real time: for AtMost
					switch {
					case err == nil:
						inARow.Add(1)
					case status.Code(err) == codes.Unavailable:
						refused.Add(1)
						inARow.Store(0)
					default:
						t.Errorf("%s: %v", name, err)
					}
				})
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
		time.Sleep(othersWait) // real time: of load in the fault
		handOverIsHeard(t, other, client, fmt.Sprint("handed-on-", round))
		inARow.Store(0)
		harness.Until(t, "service without refusals", func() bool { return inARow.Load() > 500 })
		stop()
		t.Logf("%d were refused", refused.Load())
		harness.AtMost(t, "a request", time.Duration(longest.Load()), othersWait)
	}
}

// handOverIsHeard checks that a call that waits at one server hears of a grant by another server.
func handOverIsHeard(t *testing.T, from, at models.LocketClient, resource string) {
	t.Helper()
	holder, next := resource+"-holder", resource+"-next"
	harness.Create(t, from, resource, holder, time.Hour)
	create(t, at, resource, next, time.Hour)
	granted := harness.Later(func() error {
		_, err := await(t, at, next)
		return err
	})
	time.Sleep(200 * time.Millisecond) // real time: it waits, or comes when the claim is granted
	released := time.Now()
	harness.Release(t, from, holder)
	harness.Must(t, <-granted)
	harness.AtMost(t, "the grant of another server", time.Since(released), 2*time.Second)
}
