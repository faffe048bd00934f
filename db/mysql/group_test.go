//go:build mysql || chaos

package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/internal/rules/claim"
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

// TestGroupMemberAlone: a member that was restarted and has not rejoined its group takes writes that the others never
// hear of. A store does not use it.
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

// refused runs a command, and returns its error or its transaction's.
func refused(ctx context.Context, s *Store, cmd claim.Command) error {
	outcome, err := db.Transact(ctx, s, db.Batch{Requests: []claim.Request{{Command: cmd}}})
	if err != nil {
		return err
	}
	return outcome.Answers[0].Err
}

// TestGroupMemberStopped: a member is stopped until its group has expelled it, and goes on. It
// takes itself for a member for some seconds more, leaves, and joins again. A store on it
// answers what is true meanwhile, or nothing: neither reads nor refusals show the past.
func TestGroupMemberStopped(t *testing.T) {
	g := fixtures.NewGroup(t, 3)
	a, b := openHasty(t, g.Nodes[0].DSN("stopped")), openHasty(t, g.Nodes[1].DSN("stopped"))
	results(t, a, acquires("ended")...)
	var changed, stop atomic.Bool
	var right atomic.Int64
	ask := func(what string, ask func() error) {
		for !stop.Load() {
			after := changed.Load()
			err := ask()
			switch {
			case !after, errors.Is(err, db.ErrUnavailable):
			case err == nil:
				right.Add(1)
			default:
				t.Errorf("%s: %v", what, err)
				return
			}
		}
	}
	var asking sync.WaitGroup
	defer asking.Wait()
	defer stop.Store(true)
	for range 4 {
		asking.Go(func() {
			ask("the holder of a lock", func() error {
				_, err := b.Holder(t.Context(), "started")
				return err
			})
		})
	}
	asking.Go(func() {
		ask("the release of a lock that has ended", func() error {
			err := refused(t.Context(), b, claim.Release{Resource: "ended", Owner: "another"})
			if errors.Is(err, claim.ErrNotFound) {
				return nil
			}
			return err
		})
	})
	time.Sleep(200 * time.Millisecond)
	if err := g.Nodes[1].Pause(); err != nil {
		t.Fatal(err)
	}
	if err := g.AwaitOnline(0, 2); err != nil {
		t.Fatal(err)
	}
	results(t, a, append(acquires("started"), claim.Release{Resource: "ended", Owner: "o"})...)
	changed.Store(true)
	if err := g.Nodes[1].Resume(); err != nil {
		t.Fatal(err)
	}
	if err := g.Rejoin(1); err != nil {
		t.Fatal(err)
	}
	for before := right.Load(); right.Load() < before+100 && !t.Failed(); {
		time.Sleep(10 * time.Millisecond)
	}
}

// TestGroupMemberLeft: a member has left its group by command, and takes reads and writes by
// itself. Over the connections that were open before, stores on it answer nothing.
func TestGroupMemberLeft(t *testing.T) {
	g := fixtures.NewGroup(t, 3)
	a := openHasty(t, g.Nodes[0].DSN("left"))
	results(t, a, acquires("ended")...)
	for name, ask := range map[string]func(*Store) error{
		"the holder of a lock": func(s *Store) error {
			_, err := s.Holder(t.Context(), "ended")
			return err
		},
		"a claim that is not there": func(s *Store) error {
			_, _, _, err := s.Get(t.Context(), "none", 0)
			return err
		},
		"a page": func(s *Store) error {
			_, err := s.Live(t.Context(), db.LiveOf{Held: new(claim.Lock)}, db.Page{Bytes: 1})
			return err
		},
		"a refusal": func(s *Store) error {
			return refused(t.Context(), s, claim.Release{Resource: "ended", Owner: "another"})
		},
		"a lock": func(s *Store) error { return acquire(t.Context(), s, "new") },
	} {
		s := openHasty(t, g.Nodes[1].DSN("left"))
		for _, pool := range s.all() {
			pool.SetConnMaxIdleTime(time.Minute) // longer than leaving takes
		}
		if err := ask(s); errors.Is(err, db.ErrUnavailable) {
			t.Errorf("%s, before: %v", name, err)
		}
		if err := g.Leave(1); err != nil {
			t.Fatal(err)
		}
		if _, err := s.control.Exec("SET GLOBAL read_only = OFF"); err != nil {
			t.Fatal(err)
		}
		if err := ask(s); !errors.Is(err, db.ErrUnavailable) {
			t.Errorf("%s: %v", name, err)
		}
		if err := g.Rejoin(1); err != nil {
			t.Fatal(err)
		}
		if err := ask(s); errors.Is(err, db.ErrUnavailable) {
			t.Errorf("%s, afterwards: %v", name, err)
		}
	}
}

// TestGroupViewChanged: what was read in a view of the group that is over does not count.
func TestGroupViewChanged(t *testing.T) {
	g := fixtures.NewGroup(t, 3)
	s := open(t, g.Nodes[0].DSN("view"))
	err := s.once(t.Context(), s.reader, func(*sql.Conn) error {
		if err := g.Nodes[2].Stop(); err != nil {
			return err
		}
		return g.AwaitOnline(0, 2)
	})
	if !errors.Is(err, errNotServing) {
		t.Errorf("got %v", err)
	}
	if _, err := s.Holder(t.Context(), "r"); !errors.Is(err, claim.ErrNotFound) {
		t.Errorf("in the next view: %v", err)
	}
}

// TestGroupMemberBehind: a member that lags behind its group refuses to begin a transaction after wait_timeout. The
// store tries again, and reads and writes succeed when the member has caught up.
func TestGroupMemberBehind(t *testing.T) {
	g := fixtures.NewGroup(t, 2)
	a, b := open(t, g.Nodes[0].DSN("behind")), open(t, g.Nodes[1].DSN("behind"))
	for pool, r := range map[**pool]role{&b.writer: writing, &b.reader: reading} {
		r.session = append(slices.Clone(r.session), "SET SESSION wait_timeout = 1")
		r.optional = noLimits
		reconnect(t, pool, g.Nodes[1].DSN("behind"), r)
	}
	admin, err := b.scanner.Conn(t.Context())
	must(t, err)
	defer func() { _ = admin.Close() }()
	run := func(statement string) {
		_, err := admin.ExecContext(t.Context(), statement)
		must(t, err)
	}
	refused := func() (n int) {
		const query = "SELECT SUM_ERROR_RAISED FROM performance_schema.events_errors_summary_global_by_error WHERE ERROR_NUMBER = 3797"
		must(t, admin.QueryRowContext(t.Context(), query).Scan(&n))
		return n
	}
	run("SET SESSION group_replication_consistency = 'EVENTUAL'")
	for name, do := range map[string]func() error{
		"read":  func() error { _, err := b.Holder(t.Context(), "read"); return err },
		"write": func() error { return acquire(t.Context(), b, "new") },
	} {
		run("FLUSH TABLES WITH READ LOCK") // the member applies nothing
		results(t, a, acquires(name)...)
		before, done := refused(), make(chan error, 1)
		go func() { done <- do() }()
		eventually(t, "the member refuses a transaction", func() bool { return refused() > before })
		run("UNLOCK TABLES")
		if err := <-done; err != nil {
			t.Errorf("%s: %v", name, err)
		}
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

// TestGroupTakesLargeGrants: a group takes no transaction of more than 150 MB. The largest possible grant is smaller:
// unchanged values and user data are not in the binary log.
func TestGroupTakesLargeGrants(t *testing.T) {
	s := open(t, fixtures.NewGroup(t, 1).Nodes[0].DSN("large"))
	must(t, acquire(t.Context(), s, "r"))
	const atOnce = 25
	data := strings.Repeat("d", 64<<10)
	for i := 0; i < claim.MaxGrants; i += atOnce {
		var cmds []claim.Command
		for n := range atOnce {
			id := fmt.Sprint(i + n)
			cmds = append(cmds, claim.Create{ID: id, Resource: "r", Owner: id, Units: claim.Shared, TTL: time.Hour, Value: data, UserData: []byte(data)})
		}
		must(t, errors.Join(results(t, s, cmds...)...))
	}
	s.limits.retry = time.Second
	if err := refused(t.Context(), s, claim.Release{Resource: "r", Owner: "o"}); err != nil {
		t.Fatal(err)
	}
	if q, _, err := s.Queue(t.Context(), "r", 2*claim.MaxGrants); err != nil || len(q.Holders) != claim.MaxGrants {
		t.Errorf("%d holders (%v)", len(q.Holders), err)
	}
}
