package replica_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/locket-service/locket/db/backup"
	"github.com/locket-service/locket/db/dbtest"
	"github.com/locket-service/locket/db/replica"
	"github.com/locket-service/locket/internal/rules/claim"
)

// TestCheckOfUnsettled: a backup that is taken when one transaction has granted as much as it may, and the next one has not granted the rest, is
// sound. A shared claim that waits beside other holders is not.
func TestCheckOfUnsettled(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "data")
	s := open(t, folder)
	defer func() { _ = s.Close() }()
	for resource, waiting := range map[string]int{"many": claim.MaxGrants, "few": 5} {
		commands := []claim.Command{claim.Create{ID: resource, Resource: resource, TTL: time.Hour}}
		for n := range waiting {
			commands = append(commands, claim.Create{ID: fmt.Sprint(resource, n), Resource: resource, TTL: time.Hour, Units: claim.Shared})
		}
		dbtest.Do(t, s, commands...)
	}
	dbtest.Do(t, s, claim.End{ID: "many"}, claim.End{ID: "few"})
	queue, _, err := s.Queue(t.Context(), "few", 10)
	if err != nil || len(queue.Holders) == 0 || queue.Waiting == 0 {
		t.Fatalf("%d hold, %d wait (%v)", len(queue.Holders), queue.Waiting, err)
	}
	if found := inspect(folder); found.finds() {
		t.Errorf("the check says %s", found.says())
	}
	other := grantedLater{backup.NewChecker()}
	if err := replica.Dump(folder, other); err != nil {
		t.Fatal(err)
	}
	if says := fmt.Sprint(other.Problems); !strings.Contains(says, "a shared claim waits before all others") {
		t.Errorf("of a transaction with one grant the check says %s", says)
	}
}

// grantedLater is a check of a store as if another transaction had granted the claims of one resource.
type grantedLater struct{ *backup.Checker }

func (g grantedLater) Claim(c *claim.Claim) error {
	later := *c
	if c.Resource == "few" && c.Status == claim.Active {
		later.Activated++
	}
	return g.Checker.Claim(&later)
}
