package mysql

import (
	"testing"
	"time"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/db/dbtest"
	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/internal/rules/claim"
)

// TestResourcesInQuarantine: the lists have the resources that nobody holds though claims wait for them, and no page ends before them.
func TestResourcesInQuarantine(t *testing.T) {
	t.Parallel()
	s := open(t, fixtures.MySQL(t))
	dbtest.Do(t, s, claim.Create{ID: "holds", Resource: "held", TTL: time.Hour})
	_, err := s.control.Exec("UPDATE meta SET quarantine = 9000000000000000000 WHERE one = 1")
	must(t, err)
	waits := func(id, resource string) {
		if c := dbtest.Do(t, s, claim.Create{ID: id, Resource: resource, TTL: time.Hour})[0]; c.Status != claim.Waiting {
			t.Fatalf("%s is %s", id, c.Status)
		}
	}
	for i, resource := range []string{"a", "b", "b", "b", "held", "held", "z"} {
		waits(string(rune('0'+i)), resource)
	}
	check := func(what string, list []db.Resource, want ...string) {
		t.Helper()
		for i, r := range list {
			if i >= len(want) || r.Resource != want[i] || r.WaitsSince == 0 || r.Waiting == 0 || (r.First.ID == "") != (r.Resource != "held") || r.First.ID != r.Holder {
				t.Errorf("%s: %+v is number %d", what, r, i)
			}
		}
		if len(list) != len(want) {
			t.Errorf("%s: %d resources, want %q", what, len(list), want)
		}
	}
	list, _, _, err := s.Resources(t.Context(), "", "", 100)
	must(t, err)
	check("by name", list, "a", "b", "held", "z")
	list, _, err = s.Contended(t.Context(), "", nil, 3)
	must(t, err)
	check("most contended first", list, "b", "held", "a")
	list, _, err = s.Contended(t.Context(), "", &db.Contention{Waiting: 1, Resource: "a"}, 3)
	must(t, err)
	check("the others", list, "z")
}
