package replica_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/db/replica/record"
	"github.com/locket-service/locket/internal/rules/claim"
)

// TestDamagedState: a server whose state is not the decider's stops, and names the part that differs. The others go on. Its files are right, so it
// serves again when it is started again.
func TestDamagedState(t *testing.T) {
	for name, damage := range map[string]func(known claim.Claim) *record.Record{
		`claims of resources that begin with "f"`: func(known claim.Claim) *record.Record {
			later := known
			later.Deadline++
			return &record.Record{Claims: []claim.Transition{{Before: &known, After: &later}}}
		},
		`claims of resources that begin with "g"`: func(claim.Claim) *record.Record {
			return &record.Record{Rows: []record.Row{{Name: "gone", Version: 1}}}
		},
		"sessions": func(claim.Claim) *record.Record {
			return &record.Record{Sessions: []claim.SessionChange{{After: &claim.Session{ID: "s"}}}}
		},
		"servers": func(claim.Claim) *record.Record {
			return &record.Record{Servers: []record.Server{{Name: "unknown", Seen: 1}}}
		},
		"the last batches of servers": func(claim.Claim) *record.Record {
			return &record.Record{Batches: []record.Batch{{Origin: record.Origin{Node: 1, Seq: 1}}}}
		},
		"what was deleted from the history": func(claim.Claim) *record.Record {
			return &record.Record{Cuts: []record.Cut{{Entry: 1, Finished: 1}}}
		},
		"lease time, floor or format": func(claim.Claim) *record.Record { return &record.Record{Floor: 1} },
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, 3, func(c *cluster) {
				s := c.servers[2]
				c.servers[1].take("second")
				known, err := s.store.Holder(c.Context(), "first0")
				if err != nil {
					c.Fatal(err)
				}
				if err := s.store.Damage(damage(known)); err != nil {
					c.Fatal(err)
				}
				for n := range 2 * sumEntries {
					c.servers[n%2].take(fmt.Sprint("more", n))
				}
				time.Sleep(time.Second)
				if err := s.store.Failure(); err == nil || !strings.Contains(err.Error(), "They differ in: "+name+". ") || !strings.Contains(err.Error(), "entry ") {
					c.Fatalf("it fails with %v, and %s differ", err, name)
				}
				if _, err := s.store.Holder(c.Context(), "first0"); !errors.Is(err, db.ErrUnavailable) {
					c.Errorf("it still answers: %v", err)
				}
				s.stop(true)
				s.start()
				for _, s := range c.servers {
					s.take(fmt.Sprint("again", s.n))
				}
				c.same()
			})
		})
	}
}
