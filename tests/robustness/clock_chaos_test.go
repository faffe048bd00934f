//go:build chaos

package robustness_test

import (
	"fmt"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/tests/harness"
)

// Two servers use two nodes of a cluster whose clocks differ. No lease ends early, whichever server granted it, and leases do
// end.
func TestChaosGaleraSkew(t *testing.T) {
	for _, skew := range []time.Duration{400 * time.Millisecond, 3 * time.Second} {
		t.Run(skew.String(), func(t *testing.T) {
			nodes := fixtures.NewSkewedGalera(t, 0, skew)
			servers := onNodes(t, 3*time.Second, nodes[0].DSN("locket"), nodes[1].DSN("locket"))
			endNoLeaseEarly(t, 6, servers[0].Client(t), servers[1].Client(t))
		})
	}
}

// The clock of a database steps forward and backward, by less and by more than the duration of an outage.
func TestChaosClockSteps(t *testing.T) {
	database := fixtures.NewMariaDB(t, fixtures.WithClock(t, 0))
	dsn := "mysql:" + database.CreateDatabase(t)
	a, b := fixtures.StartLocket(t, dsn).Client(t), fixtures.StartLocket(t, dsn).Client(t)
	for _, offset := range []time.Duration{200 * time.Millisecond, -100 * time.Millisecond, 5 * time.Second, 0} {
		time.AfterFunc(time.Second, func() {
			if err := database.SetClock(offset); err != nil {
				t.Error(err)
			}
		})
		endNoLeaseEarly(t, 2, a, b)
	}
}

// endNoLeaseEarly takes a lock at one server. It fails the test unless the other server grants it to another owner after the TTL, and not
// before.
func endNoLeaseEarly(t *testing.T, rounds int, clients ...models.LocketClient) {
	t.Helper()
	const ttl = 2 * time.Second
	for round := range rounds {
		first, second := clients[round%2], clients[(round+1)%2]
		key := fmt.Sprint("lease ", time.Now().UnixNano())
		start := time.Now()
		harness.Lock(t, first, key, "o", ttl)
		for {
			_, err := harness.TryLock(t, second, key, "next", time.Minute)
			took := time.Since(start)
			if err == nil {
				t.Logf("passed on after %v", took)
				if took < ttl {
					t.Errorf("a lease of %v was passed on after %v", ttl, took)
				}
				break
			}
			if code := status.Code(err); code != codes.AlreadyExists || took > 10*ttl {
				t.Fatalf("after %v: %v", took, err)
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
}
