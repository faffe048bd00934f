package mysql

import (
	"errors"
	"testing"
	"time"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/internal/rules/claim"
)

// foreignLocks are rows that somebody else locks, one in each table that transactions change, and a command that needs it.
var foreignLocks = map[string]struct {
	row   string
	needs claim.Command
}{
	"resources":      {"resources WHERE name = 'a'", claim.End{ID: "id-a"}},
	"claims":         {"claims WHERE id = 'id-a'", claim.End{ID: "id-a"}},
	"claim, renewed": {"claims WHERE id = 'id-a'", claim.Renew{ID: "id-a", TTL: time.Hour}},
	"claim, granted": {"claims WHERE id = 'waits'", claim.End{ID: "id-w"}},
	"sessions":       {"sessions WHERE id = 's'", claim.Create{ID: "new", Resource: "new", Session: "s", Server: "here"}},
	"session_claims": {"session_claims WHERE claim = 'bound'", claim.End{ID: "bound"}},
	"owner_waits":    {"owner_waits WHERE owner = 'waiter'", claim.End{ID: "waits"}},
	"all claims":     {"claims WHERE id > 'id-'", claim.End{ID: "id-a"}},
}

// TestForeignLocks: a row that somebody else keeps locked refuses the commands that need it; the others of the same
// transaction are carried out.
func TestForeignLocks(t *testing.T) {
	t.Parallel()
	for name, c := range foreignLocks {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := open(t, fixtures.MySQL(t))
			results(t, s, append(acquires("a", "w"),
				claim.Create{ID: "waits", Resource: "w", Owner: "waiter", TTL: time.Hour},
				claim.Attach{Session: claim.Session{ID: "s", Secret: []byte("secret"), TTL: time.Hour}, Server: "here"},
				claim.Create{ID: "bound", Resource: "b", Session: "s", Server: "here"})...)
			foreign, err := s.reader.BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = foreign.Rollback() }()
			if _, err := foreign.Exec("SELECT * FROM " + c.row + " FOR UPDATE"); err != nil {
				t.Fatal(err)
			}
			for range 3 {
				errs := results(t, s, append(acquires("x", "y", "z"), c.needs)...)
				if errs[0] != nil || errs[1] != nil || errs[2] != nil || !errors.Is(errs[3], db.ErrRowLocked) {
					t.Fatalf("got %v", errs)
				}
			}
			if err := foreign.Rollback(); err != nil {
				t.Fatal(err)
			}
			if errs := results(t, s, c.needs); errs[0] != nil {
				t.Errorf("after its end: %v", errs)
			}
		})
	}
}

// TestNoDirtyReads: when a query for uncommitted rows fails, its connection is not used for a later query, for example
// of the feed, which would also see uncommitted rows.
func TestNoDirtyReads(t *testing.T) {
	t.Parallel()
	s := open(t, fixtures.MySQL(t))
	s.control.SetMaxOpenConns(1)
	foreign, err := s.reader.BeginTx(t.Context(), nil)
	must(t, err)
	defer func() { _ = foreign.Rollback() }()
	_, err = foreign.Exec(insertResources + "('dirty', 1, '', 0, 0, 0, 0)")
	must(t, err)
	if _, err := (&tx{ctx: t.Context(), store: s}).uncommitted("SELECT name FROM", nil); err == nil {
		t.Fatal("it does not fail")
	}
	var n int
	must(t, s.control.QueryRow("SELECT COUNT(*) FROM resources WHERE name = 'dirty'").Scan(&n))
	if n != 0 {
		t.Error("it has read what was not committed")
	}
}
