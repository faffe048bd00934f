package backup

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/locket-service/locket/db/dbtest"
	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/internal/program/server"
	"github.com/locket-service/locket/internal/rules/claim"
	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/tests/harness"
)

// quarantined restores a database with waiting claims that no client asks about.
func quarantined(t *testing.T, into string, quarantine time.Duration) place {
	t.Helper()
	from, p := engines["embedded"](t), engines[into](t)
	s := from.open(t)
	for _, resource := range []string{"k", "l"} {
		for _, id := range []string{"holds", "first", "second", "third"} {
			dbtest.Do(t, s, claim.Create{ID: resource + "-" + id, Resource: resource, Owner: id, TTL: time.Hour})
		}
	}
	dbtest.Do(t, s, claim.Create{ID: "m-holds", Resource: "m", TTL: time.Hour})
	for n := range 5 {
		dbtest.Do(t, s, claim.Create{ID: fmt.Sprint("shares-", n), Resource: "m", TTL: time.Hour, Units: claim.Shared})
	}
	must(t, s.Close())
	_, err := server.Restore(t.Context(), config(p), backUp(t, from), server.RestoreOptions{Quarantine: &quarantine})
	must(t, err)
	return p
}

// inQuarantine checks that no claim is granted.
func inQuarantine(t *testing.T, client models.LocketClient, when string) {
	t.Helper()
	if c, err := tryClaim(t, client); status.Code(err) != codes.Unavailable || models.ReasonOf(err) != models.ReasonQuarantine {
		t.Fatalf("%s: it is no quarantine: %v, %v", when, c, err)
	}
}

// tryClaim makes a claim that does not wait. Servers of a cluster on a busy machine have no quorum for moments.
func tryClaim(t *testing.T, client models.LocketClient) (c *models.Claim, err error) {
	t.Helper()
	harness.Until(t, "quorum", func() bool {
		c, err = client.CreateClaim(t.Context(), &models.CreateClaimRequest{Resource: "free", Owner: "me", Ttl: proto.Float64(60), NoWait: true})
		return models.ReasonOf(err) != models.ReasonNoQuorum
	})
	return c, err
}

func get(t *testing.T, client models.LocketClient, id string) *models.Claim {
	t.Helper()
	c, err := harness.Answered(t, func() (*models.Claim, error) { return client.GetClaim(t.Context(), &models.GetClaimRequest{Id: id}) })
	must(t, err)
	return c
}

func statusOf(t *testing.T, client models.LocketClient, id string) models.Status {
	t.Helper()
	return get(t, client, id).GetStatus()
}

// free ends the holders, and checks that no waiting claim is granted in their place.
func free(t *testing.T, client models.LocketClient) {
	t.Helper()
	inQuarantine(t, client, "at the start")
	for _, id := range []string{"k-holds", "l-holds", "m-holds"} {
		harness.Release(t, client, id)
	}
	for _, id := range []string{"k-first", "l-first", "shares-0"} {
		if got := statusOf(t, client, id); got != models.Status_STATUS_WAITING {
			t.Errorf("within the quarantine %s is %v", id, got)
		}
	}
	inQuarantine(t, client, "when the holders have gone")
}

// settled waits, without any request, until the quarantine ends, and checks which claims are granted then.
func settled(t *testing.T, client models.LocketClient) {
	t.Helper()
	active := func(id string) func() bool {
		return func() bool { return statusOf(t, client, id) == models.Status_STATUS_ACTIVE }
	}
	harness.Until(t, "claim that is granted at the end of the quarantine", active("k-first"))
	for n := range 5 {
		harness.Until(t, "shared hold", active(fmt.Sprint("shares-", n)))
	}
	if c, err := tryClaim(t, client); err != nil || c.GetStatus() != models.Status_STATUS_ACTIVE {
		t.Errorf("a claim was granted, and the quarantine goes on: %v, %v", c, err)
	}
	for _, resource := range []string{"k", "l"} {
		token := uint64(0)
		for n, id := range []string{"first", "second", "third"} {
			id = resource + "-" + id
			harness.Until(t, id+" that is granted", active(id))
			c := get(t, client, id)
			if c.GetToken() <= token {
				t.Errorf("%s has the token %d, and the one before had %d", id, c.GetToken(), token)
			}
			token = c.GetToken()
			if n == 0 && statusOf(t, client, resource+"-second") != models.Status_STATUS_WAITING {
				t.Errorf("two hold %s", resource)
			}
			harness.Release(t, client, id)
		}
	}
}

// quarantine is long enough for a test on a busy machine, and with harness.OnCluster for the start of two more servers.
var quarantine = map[bool]time.Duration{false: 20 * time.Second, true: 90 * time.Second}[harness.OnCluster]

// TestEndOfQuarantine: claims that wait for free resources are granted in their order when the quarantine ends, by one server and by two.
func TestEndOfQuarantine(t *testing.T) {
	t.Parallel()
	for into, servers := range map[string]int{"embedded": 1, "mysql": 2} {
		t.Run(into, func(t *testing.T) {
			t.Parallel()
			p := quarantined(t, into, quarantine)
			last := p.start(t).Client(t)
			free(t, last) // before another server starts, which may take longer than the quarantine
			for range servers - 1 {
				last = p.start(t).Client(t)
			}
			settled(t, last)
		})
	}
}

// TestQuarantineStandsStill: time without a running server, or without a database, does not count. The rest of the quarantine
// follows after that.
func TestQuarantineStandsStill(t *testing.T) {
	t.Parallel()
	for _, into := range restorable {
		t.Run("servers away, "+into, func(t *testing.T) {
			t.Parallel()
			p := quarantined(t, into, quarantine)
			s := p.start(t)
			free(t, s.Client(t))
			s.Kill()
			time.Sleep(quarantine) // real time: the quarantine would be over
			must(t, s.Start())
			inQuarantine(t, s.Client(t), "after a restart")
			settled(t, s.Client(t))
		})
	}
	t.Run("database away", func(t *testing.T) {
		t.Parallel()
		p := quarantined(t, "mysql", quarantine)
		dsn, err := mysql.ParseDSN(strings.TrimPrefix(p.database, "mysql:"))
		must(t, err)
		proxy := fixtures.NewProxy(t, dsn.Addr)
		dsn.Addr = proxy.Addr()
		client := fixtures.StartLocket(t, "mysql:"+dsn.FormatDSN()).Client(t)
		free(t, client)
		proxy.Cut()
		time.Sleep(quarantine) // real time: the quarantine would be over
		proxy.Restore()
		harness.Until(t, "answer", func() bool {
			_, err := tryClaim(t, client)
			if err == nil {
				t.Fatal("the quarantine has ended while the database was away")
			}
			return models.ReasonOf(err) == models.ReasonQuarantine
		})
		settled(t, client)
	})
}
