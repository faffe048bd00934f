//go:build mysql || chaos

package mysql

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/locket-service/locket/claim"
	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/fixtures"
)

// TestGroup runs the suite on a multi-primary group of three nodes.
func TestGroup(t *testing.T) {
	g := fixtures.NewGroup(t, 3)
	runOnNodes(t, len(g.Nodes), func(node int, database string) string { return g.Nodes[node].DSN(database) })
}

// TestGroupOpenTogether: the schema is made once. A member of a group that runs the same
// CREATE TABLE a second time leaves the group for good.
func TestGroupOpenTogether(t *testing.T) {
	g := fixtures.NewGroup(t, 3)
	openTogether(t, len(g.Nodes), func(node int, database string) string { return g.Nodes[node].DSN(database) })
	if err := g.AwaitOnline(0, 3); err != nil {
		t.Error(err)
	}
}

// TestGroupMemberAlone: a member that was restarted and has not joined its group again takes
// writes, of which the others never hear. A store does not use it.
func TestGroupMemberAlone(t *testing.T) {
	g := fixtures.NewGroup(t, 3)
	s := open(t, g.Nodes[1].DSN("alone"))
	if err := g.AwaitOnline(0, 3); err != nil {
		t.Fatal(err)
	}
	plain := plainUser(t, s, g.Nodes[1].DSN("alone"))
	if err := acquire(t.Context(), open(t, plain), "plain"); err != nil {
		t.Errorf("a user with rights to the database alone: %v", err)
	}
	for _, step := range []func() error{g.Nodes[1].Kill, g.Nodes[1].Start} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
	if err := acquire(t.Context(), s, "r"); !errors.Is(err, db.ErrUnavailable) {
		t.Errorf("alone: got %v", err)
	}
	if _, err := s.Holder(t.Context(), "plain"); !errors.Is(err, db.ErrUnavailable) {
		t.Errorf("alone, reading: got %v", err)
	}
	if err := g.AwaitOnline(0, 2); err != nil {
		t.Fatal(err)
	}
	if err := g.Rejoin(1); err != nil {
		t.Fatal(err)
	}
	if err := acquire(t.Context(), s, "r"); err != nil {
		t.Errorf("back in the group: %v", err)
	}
}

// plainUser makes a user with rights to the store's database alone, and returns its DSN.
func plainUser(t *testing.T, s *Store, dsn string) string {
	t.Helper()
	config, err := mysql.ParseDSN(dsn)
	if err != nil {
		t.Fatal(err)
	}
	config.User = "plain"
	for _, statement := range []string{
		"CREATE USER plain@'127.0.0.1'",
		"GRANT ALL ON " + config.DBName + ".* TO plain@'127.0.0.1'",
	} {
		if _, err := s.reader.Exec(statement); err != nil {
			t.Fatal(err)
		}
	}
	return config.FormatDSN()
}

// TestGroupReadsWait measures what it costs that a read waits for the group.
func TestGroupReadsWait(t *testing.T) {
	g := fixtures.NewGroup(t, 3)
	a, b := open(t, g.Nodes[0].DSN("wait")), open(t, g.Nodes[1].DSN("wait"))
	for _, level := range []string{"EVENTUAL", "BEFORE"} {
		b.reader.SetMaxOpenConns(1)
		if _, err := b.reader.Exec("SET SESSION group_replication_consistency = '" + level + "'"); err != nil {
			t.Fatal(err)
		}
		const rounds = 300
		stale, took := 0, time.Duration(0)
		for i := range rounds {
			name := fmt.Sprint(level, i)
			if err := acquire(t.Context(), a, name); err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			_, err := b.Holder(t.Context(), name)
			took += time.Since(began)
			switch {
			case errors.Is(err, claim.ErrNotFound):
				stale++
			case err != nil:
				t.Fatal(err)
			}
		}
		t.Logf("%s: %v a read, %d of %d were stale", level, took/rounds, stale, rounds)
		if level == "BEFORE" && stale > 0 {
			t.Errorf("%d reads did not see what was acknowledged on another node", stale)
		}
	}
}
