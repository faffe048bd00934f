package robustness_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/tests/harness"
)

// foreignRows are rows that another connection locks, one in each table that requests change, with the claim whose end needs the row: ""
// is a lock of the session. The claim "held" holds the resource "k", "waits" waits for it, and "bound" belongs to the session.
var foreignRows = map[string]string{
	"resources WHERE name = 'k'":         "held",
	"claims WHERE id = 'held'":           "held",
	"claims WHERE id = 'waits'":          "held", // whose end grants it
	"owner_waits WHERE owner = 'waits'":  "waits",
	"session_claims WHERE claim = BOUND": "bound",
	"sessions WHERE owner = 'bound'":     "",
}

// TestForeignRowLocks: while another connection locks a row, requests that need it get RESOURCE_LOCKED. Others are not affected.
func TestForeignRowLocks(t *testing.T) {
	t.Parallel()
	dsn := harness.MySQL(t)
	server := fixtures.StartLocket(t, "mysql:"+dsn)
	client := server.Client(t)
	for row, id := range foreignRows {
		t.Run(row, func(t *testing.T) {
			harness.Create(t, client, "k", "held", time.Hour)
			harness.Create(t, client, "k", "waits", time.Hour)
			s := openAt(t, server, "bound")
			claims := map[string]string{"held": "held", "waits": "waits", "bound": s.Lock("b", harness.Held).GetClaim()}
			foreign := openForeigner(t, dsn)
			foreign.exec("BEGIN")
			foreign.exec("SELECT * FROM " + strings.Replace(row, "BOUND", "'"+claims["bound"]+"'", 1) + " FOR UPDATE")
			ctx, stop := context.WithCancel(t.Context())
			var victim sync.WaitGroup
			victim.Go(func() { refuses(ctx, t, client, s, claims[id]) })
			serves(t, client)
			stop()
			victim.Wait()
			foreign.exec("ROLLBACK")
			s.Close()
			for _, id := range []string{"held", "waits"} {
				harness.Eventually(t, func() error {
					_, err := client.EndClaim(t.Context(), &models.EndClaimRequest{Id: id})
					return err
				})
			}
			foreign.exec("DELETE FROM claims") // the names are used again
		})
	}
}

// refuses sends requests that need the row until ctx ends: the end of a claim, or a lock of the session. It checks that they are refused.
func refuses(ctx context.Context, t *testing.T, client models.LocketClient, s *harness.Session, id string) {
	for n := 0; ctx.Err() == nil; n++ {
		if id == "" {
			if response := s.Answer(s.Ask(harness.LockCommand(fmt.Sprint("other ", n)))); response.GetError().GetReason() != "RESOURCE_LOCKED" {
				t.Errorf("got %v", response)
			}
			continue
		}
		_, err := client.EndClaim(t.Context(), &models.EndClaimRequest{Id: id})
		if status.Code(err) != codes.Unavailable || models.ReasonOf(err) != "RESOURCE_LOCKED" {
			t.Errorf("the end of %s got %v", id, err)
		}
	}
}

// serves runs many callers, each with locks of its own, and checks that all their requests succeed, and that none waits for longer than others may.
func serves(t *testing.T, client models.LocketClient) {
	const callers, rounds = 64, 5
	begin := time.Now()
	var all sync.WaitGroup
	var longest atomic.Int64
	for i := range callers {
		resource := &models.Resource{Key: fmt.Sprint("own ", i), Owner: "o", TypeCode: models.TypeCode_LOCK}
		all.Go(func() {
			for range rounds {
				start := time.Now()
				_, err := client.Lock(t.Context(), &models.LockRequest{Resource: resource, TtlInSeconds: 60})
				atomicMax(&longest, int64(time.Since(start))) // real time: for AtMost
				if err == nil {
					start = time.Now()
					_, err = client.Release(t.Context(), &models.ReleaseRequest{Resource: resource})
					atomicMax(&longest, int64(time.Since(start))) // real time: for AtMost
				}
				if err != nil {
					t.Errorf("beside it: %v", err)
				}
			}
		})
	}
	all.Wait()
	harness.LogTime(t, fmt.Sprintf("%d locks of each of %d callers", rounds, callers), begin)
	harness.AtMost(t, "the longest request beside it", time.Duration(longest.Load()), othersWait)
}
