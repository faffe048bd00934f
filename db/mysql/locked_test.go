package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/db/dbtest"
	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/internal/rules/claim"
)

// results runs commands in one transaction and returns their errors.
func results(t *testing.T, s *Store, cmds ...claim.Command) (errs []error) {
	t.Helper()
	requests := make([]claim.Request, len(cmds))
	for i, cmd := range cmds {
		requests[i].Command = cmd
	}
	outcome, err := db.Transact(t.Context(), s, db.Batch{Requests: requests})
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range outcome.Answers {
		errs = append(errs, a.Err)
	}
	return errs
}

func acquires(names ...string) (cmds []claim.Command) {
	for _, name := range names {
		cmds = append(cmds, claim.Acquire{ID: "id-" + name, Resource: name, Owner: "o", TTL: time.Hour})
	}
	return cmds
}

// loseTransaction makes a server that is lost after it has written to resources, and before its
// COMMIT.
func loseTransaction(t *testing.T, dsn string, names ...string) {
	t.Helper()
	config, err := mysql.ParseDSN(dsn)
	if err != nil {
		t.Fatal(err)
	}
	proxy := fixtures.NewProxy(t, config.Addr)
	config.Addr = proxy.Addr()
	s := open(t, config.FormatDSN())
	ctx, cancel := context.WithCancel(t.Context())
	lost := make(chan struct{})
	go func() {
		_ = s.Update(ctx, func(tx db.Tx) error {
			_, err := db.Execute(tx, acquires(names...), func(queues *claim.Queues) {
				for _, cmd := range acquires(names...) {
					if _, err := queues.Do(cmd); err != nil {
						t.Error(err)
					}
				}
			})
			if err == nil {
				err = tx.(interface{ send() error }).send() // what is left for the packet of the COMMIT
			}
			if err != nil {
				t.Error(err)
			}
			proxy.Hang()
			cancel()
			close(lost)
			return context.Canceled
		})
	}()
	<-lost
}

// TestLostTransaction: a lost server has locked the rows of resources. Commands on these are
// refused, the others in the same transactions are not, and the locks end soon.
func TestLostTransaction(t *testing.T) {
	t.Parallel()
	dsn := fixtures.MySQL(t)
	s := open(t, dsn)
	lostIsLeftAlone(t, s, dsn)
}

func lostIsLeftAlone(t *testing.T, s *Store, dsn string) {
	t.Helper()
	results(t, s, acquires("old")...)
	loseTransaction(t, dsn, "old", "new")
	round := 0
	eventually(t, "the locks have ended", func() bool {
		round++
		other := fmt.Sprint("other ", round)
		errs := results(t, s, append(acquires("old", other, "new"),
			claim.Renew{ID: "id-old", TTL: time.Minute}, claim.Expire{Resources: []string{other, "old"}})...)
		if errs[1] != nil || errs[4] != nil {
			t.Fatalf("round %d: others got %v", round, errs)
		}
		for _, i := range []int{0, 2, 3} {
			if errs[i] != nil && !errors.Is(errs[i], db.ErrRowLocked) {
				t.Errorf("round %d: %v", round, errs)
			}
		}
		return errs[0] == nil && errs[2] == nil && errs[3] == nil
	})
}

// TestBusyRow: a row that another server's transaction locks for a while, as a slow commit does,
// is waited for, by careful transactions too.
func TestBusyRow(t *testing.T) {
	for name, careful := range map[string]bool{"normal": false, "careful": true} {
		t.Run(name, func(t *testing.T) {
			for range 20 {
				if err := lockBusyRow(t, careful); err == nil {
					return
				} else if !errors.Is(err, db.ErrRowLocked) && !errors.Is(err, db.ErrUnavailable) {
					t.Fatal(err)
				}
				// This machine was so slow that the wait for the lock timed out.
			}
			t.Error("it does not wait")
		})
	}
}

// lockBusyRow locks a row of a new store, and unlocks it when a command waits for it. It returns the error of that.
func lockBusyRow(t *testing.T, careful bool) (err error) {
	t.Helper()
	s := open(t, fixtures.MySQL(t))
	results(t, s, acquires("a")...)
	if careful {
		s.locks.beCareful()
	}
	foreign, err := s.reader.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = foreign.Rollback() }()
	if _, err := foreign.Exec("UPDATE resources SET waiting = 0 WHERE name = 'a'"); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- acquire(t.Context(), s, "a") }()
	ended := false
	eventually(t, "it waits for the lock, or ends", func() bool {
		select {
		case err = <-done:
			ended = true
		default:
		}
		return ended || waitsForLock(t, s)
	})
	if !ended {
		_ = foreign.Rollback()
		err = <-done
	}
	return err
}

// TestCarefulAlike: the suite's comparison with the rules, by transactions that skip locked rows. TestSoakCarefulAlike
// runs more cases.
func TestCarefulAlike(t *testing.T) { carefulAlike(t, "SameAsRules", "SameID") }

func carefulAlike(t *testing.T, cases ...string) {
	runCases(t, cases, func(t *testing.T) func(testing.TB) dbtest.Engine {
		dsn := fixtures.MySQL(t)
		careful := func(t testing.TB) db.Store {
			s := openAmongOthers(t, dsn)
			for _, table := range s.locks.all() {
				table.stuck.until = time.Now().Add(time.Hour)
			}
			return s
		}
		return func(t testing.TB) dbtest.Engine {
			return dbtest.Engine{Store: careful(t), Reopen: careful, Second: careful}
		}
	})
}

// TestSilentServerBesideLockedSession: a session that somebody keeps locked keeps no other server's sessions attached.
func TestSilentServerBesideLockedSession(t *testing.T) {
	for _, held := range []string{"a", "b"} {
		dsn := fixtures.MySQL(t)
		s := open(t, dsn)
		for _, id := range []string{"a", "b"} {
			attach := claim.Attach{Session: claim.Session{ID: id, Secret: []byte("secret"), TTL: time.Hour}, Server: "gone with " + id}
			if err := results(t, s, attach)[0]; err != nil {
				t.Fatal(err)
			}
		}
		foreign, err := sql.Open("mysql", dsn)
		if err != nil {
			t.Fatal(err)
		}
		tx, err := foreign.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err = tx.ExecContext(t.Context(), "SELECT id FROM sessions WHERE id = ? FOR UPDATE", held); err != nil {
			t.Fatal(err)
		}
		if n, err := s.DetachSilent(t.Context(), db.ServerTimeout); n != 1 || err == nil {
			t.Errorf("%d sessions beside %q, and %v", n, held, err)
		}
		if err := errors.Join(tx.Rollback(), foreign.Close()); err != nil {
			t.Fatal(err)
		}
		if n, err := s.DetachSilent(t.Context(), db.ServerTimeout); n != 1 || err != nil {
			t.Errorf("%d sessions afterwards, and %v", n, err)
		}
	}
}

// TestStuckRowStaysStuck: a row that somebody keeps locked, and that is asked for again and again, is waited for once, for however long it is locked.
func TestStuckRowStaysStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := stuckRows{canSkip: true}
		s.noteWait([]string{"a", "b"})
		s.beCareful()
		s.skipped([]string{"a"}, []string{"b"})
		for range 10 {
			time.Sleep(carefulTime / 2)
			if !s.careful() || len(s.without([]string{"a"})) != 0 {
				t.Fatal("it is waited for again")
			}
			s.skipped([]string{"a"}, []string{"b"})
		}
		if len(s.without([]string{"b"})) != 1 {
			t.Error("one that was not locked counts as stuck")
		}
		s.skipped(nil, []string{"a", "b"})
		if len(s.without([]string{"a"})) != 1 {
			t.Error("it counts as stuck when it is free")
		}
		time.Sleep(2 * carefulTime)
		if s.careful() {
			t.Error("transactions are careful when nothing is locked any more")
		}
	})
}

// TestSilentServerBesideItsLockedSession: a session that somebody keeps locked keeps no other session of its server attached. When it is free, it is
// detached too, and has its TTL from the server's last beat on, at least.
func TestSilentServerBesideItsLockedSession(t *testing.T) {
	dsn := fixtures.MySQL(t)
	s := open(t, dsn)
	const ttl = time.Hour
	for _, id := range []string{"a", "b", "c"} {
		attach := claim.Attach{Session: claim.Session{ID: id, Secret: []byte("secret"), TTL: ttl}, Server: "gone"}
		if err := results(t, s, attach)[0]; err != nil {
			t.Fatal(err)
		}
	}
	now, err := s.Now(t.Context())
	must(t, err)
	beaten := now.Lease.Add(-time.Minute)
	_, err = s.control.Exec("INSERT INTO servers (name, seen) VALUES ('gone', ?)", beaten)
	must(t, err)
	_, err = s.control.Exec("UPDATE sessions SET attached = 1") // long before
	must(t, err)
	foreign, err := sql.Open("mysql", dsn)
	must(t, err)
	defer func() { _ = foreign.Close() }()
	tx, err := foreign.BeginTx(t.Context(), nil)
	must(t, err)
	_, err = tx.ExecContext(t.Context(), "SELECT id FROM sessions WHERE id = 'b' FOR UPDATE")
	must(t, err)
	if n, err := s.DetachSilent(t.Context(), db.ServerTimeout); n != 2 || !errors.Is(err, db.ErrRowLocked) {
		t.Errorf("%d sessions beside it, and %v", n, err)
	}
	must(t, tx.Rollback())
	if n, err := s.DetachSilent(t.Context(), db.ServerTimeout); n != 1 || err != nil {
		t.Errorf("%d sessions afterwards, and %v", n, err)
	}
	for _, id := range []string{"a", "b", "c"} {
		session, _, err := s.Session(t.Context(), id)
		if err != nil || session.Server != "" || session.Deadline < beaten.Add(ttl) {
			t.Errorf("%s is attached to %q, and due %s after the last beat (%v)", id, session.Server, session.Deadline.Sub(beaten), err)
		}
	}
}

// keepsLocked returns a transaction of somebody else, which keeps the rows of a query locked until it ends, or the test does.
func keepsLocked(t *testing.T, s *Store, query string) *sql.Tx {
	t.Helper()
	tx, err := s.reader.BeginTx(t.Context(), nil)
	must(t, err)
	t.Cleanup(func() { _ = tx.Rollback() })
	_, err = tx.ExecContext(t.Context(), query)
	must(t, err)
	return tx
}

// TestRowsOfAttemptsBefore: a transaction that ends at its deadline before it locks anything says nothing of the rows of those before it.
func TestRowsOfAttemptsBefore(t *testing.T) {
	s := open(t, fixtures.MySQL(t))
	results(t, s, acquires("a")...)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := acquire(ctx, s, "b"); err == nil {
		t.Fatal("it does not end at its deadline")
	}
	for _, table := range s.locks.all() {
		if len(table.stuck.waited) > 0 {
			t.Errorf("%v count as waited for", table.stuck.waited)
		}
	}
}

// TestSessionThatCouldNotBeResumed: the TTL of a detached session passes while somebody keeps it locked, so that its
// client cannot resume it. Once it is unlocked it gets its full TTL again, even if another server has tried to end it
// in the meantime and is the first to try again.
func TestSessionThatCouldNotBeResumed(t *testing.T) {
	t.Parallel()
	dsn := fixtures.MySQL(t)
	s := open(t, dsn)
	attach := claim.Attach{Session: claim.Session{ID: "s", Secret: []byte("secret"), TTL: time.Hour}, Server: "here"}
	end := claim.EndSession{ID: "s", OnlyDue: true, Active: claim.Expired, Waiting: claim.Aborted}
	errs := results(t, s, attach, claim.Create{ID: "held", Resource: "r", Session: "s", Server: "here"}, claim.Detach{ID: "s", Server: "here"})
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	foreign, err := sql.Open("mysql", dsn)
	must(t, err)
	defer func() { _ = foreign.Close() }()
	tx, err := foreign.BeginTx(t.Context(), nil)
	must(t, err)
	_, err = tx.ExecContext(t.Context(), "SELECT id FROM sessions WHERE id = 's' FOR UPDATE")
	must(t, err)
	attach.Resume = true
	if err := results(t, s, attach)[0]; !errors.Is(err, db.ErrRowLocked) {
		t.Fatalf("it is resumed while it is locked: %v", err)
	}
	other := open(t, dsn)
	eventually(t, "another server finds it due", func() bool {
		must(t, other.Beat(t.Context(), false))
		due, err := other.Due(t.Context(), db.DueQuery{Sessions: 10})
		must(t, err)
		return slices.Equal(due.Sessions, []string{"s"})
	})
	if err := results(t, other, end)[0]; !errors.Is(err, db.ErrRowLocked) {
		t.Errorf("another server ends it while it is locked: %v", err)
	}
	must(t, tx.Rollback())
	must(t, results(t, other, end)[0])
	if err := errors.Join(results(t, s, end, attach)...); err != nil {
		t.Errorf("afterwards: %v", err)
	}
	if c, _, _, err := s.Get(t.Context(), "held", 0); err != nil || c.Status != claim.Active {
		t.Errorf("its claim is %s (%v)", c.Status, err)
	}
	detach := claim.Detach{ID: "s", Server: "here"}
	must(t, results(t, s, detach)[0])
	eventually(t, "one that could be resumed ends", func() bool {
		must(t, other.Beat(t.Context(), false))
		must(t, results(t, s, end)[0])
		_, _, err := s.Session(t.Context(), "s")
		return errors.Is(err, claim.ErrSessionEnded)
	})
}

// TestLockedRowAndShortTimeout: a locked row fails only the commands that need it, even where a transaction may take
// less time than the database waits for a row.
func TestLockedRowAndShortTimeout(t *testing.T) {
	dsn := fixtures.MySQL(t)
	s := openAmongOthers(t, dsn)
	results(t, s, acquires("a")...)
	foreign, err := s.reader.BeginTx(t.Context(), nil)
	must(t, err)
	defer func() { _ = foreign.Rollback() }()
	_, err = foreign.Exec("UPDATE resources SET waiting = 0 WHERE name = 'a'")
	must(t, err)
	var requests []claim.Request
	timeout := 500 * time.Millisecond
	for _, cmd := range acquires("a", "b") {
		requests = append(requests, claim.Request{Command: cmd})
	}
	eventually(t, "the other command is carried out", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), timeout)
		defer cancel()
		outcome, err := db.Transact(ctx, s, db.Batch{Requests: requests})
		if err != nil {
			timeout = min(2*timeout, hangs/4) // it has waited for the row, or this machine is so slow
			return false
		}
		if a := outcome.Answers; !errors.Is(a[0].Err, db.ErrRowLocked) || a[1].Err != nil {
			t.Errorf("got %v and %v", a[0].Err, a[1].Err)
		}
		return true
	})
}

// TestLockedRowsInNumbers: any number of rows locked by somebody else is handled alike.
func TestLockedRowsInNumbers(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]func(*testing.T, *Store){
		"names of several statements":         lockedAmongLongNames,
		"more holders than a transaction has": lockedSharedHolders,
		"claims that wait":                    lockedWaiters,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, open(t, fixtures.MySQL(t)))
		})
	}
}

// lockedAmongLongNames: locked rows fail only the commands that need them, even where one statement does not name all
// rows of a transaction.
func lockedAmongLongNames(t *testing.T, s *Store) {
	const n = 300
	name := func(i int) string { return fmt.Sprintf("%03d%s", i, strings.Repeat("x", 1000)) }
	var cmds []claim.Command
	for i := range n {
		cmds = append(cmds, claim.Acquire{ID: fmt.Sprint(i), Resource: name(i), Owner: "o", TTL: time.Hour})
	}
	must(t, errors.Join(results(t, s, cmds...)...))
	locked := []int{1, n / 2, n - 1}
	for _, i := range locked {
		keepsLocked(t, s, "SELECT name FROM resources WHERE name = '"+name(i)+"' FOR UPDATE")
	}
	for i, err := range results(t, s, cmds...) {
		if slices.Contains(locked, i) != errors.Is(err, db.ErrRowLocked) {
			t.Errorf("%d: %v", i, err)
		}
	}
}

// whileLocked carries out commands while somebody keeps the row of the resource r locked, so that they do nothing.
func whileLocked(t *testing.T, s *Store, cmds ...claim.Command) {
	t.Helper()
	tx := keepsLocked(t, s, "SELECT name FROM resources WHERE name = 'r' FOR UPDATE")
	must(t, errors.Join(results(t, s, cmds...)...))
	must(t, tx.Rollback())
}

// lockedSharedHolders: all holders that could not be renewed get their full TTL again, even if they are more than one
// transaction has.
func lockedSharedHolders(t *testing.T, s *Store) {
	const holders = db.MaxDue + 5
	var cmds []claim.Command
	for i := range holders {
		cmds = append(cmds, claim.Create{ID: fmt.Sprint(i), Resource: "r", Units: claim.Shared, TTL: time.Hour})
	}
	for some := range slices.Chunk(cmds, 400) {
		must(t, errors.Join(results(t, s, some...)...))
	}
	_, err := s.control.Exec("UPDATE claims SET deadline = 1 WHERE resource = 'r'")
	must(t, err)
	expire := claim.Expire{Resources: []string{"r"}}
	whileLocked(t, s, expire)
	for range 3 {
		must(t, errors.Join(results(t, s, expire)...))
	}
	if counts, err := s.Census(t.Context(), 0); err != nil || counts.Active != holders {
		t.Errorf("%+v of %d holders (%v)", counts, holders, err)
	}
}

// lockedWaiters: claims that wait, whose wait TTL has passed while nobody could ask about them, keep their places.
func lockedWaiters(t *testing.T, s *Store) {
	waiter := func(id string) claim.Create {
		return claim.Create{ID: id, Resource: "r", TTL: time.Hour, WaitTTL: time.Hour}
	}
	must(t, errors.Join(results(t, s, claim.Create{ID: "holder", Resource: "r", TTL: time.Hour}, waiter("first"), waiter("second"))...))
	_, err := s.control.Exec("UPDATE claims SET deadline = 1 WHERE wait_ttl > 0")
	must(t, err)
	whileLocked(t, s, claim.KeepWaiting{IDs: []string{"first", "second"}})
	must(t, errors.Join(results(t, s, claim.Expire{Waiters: []string{"second"}})...))
	must(t, errors.Join(results(t, s, claim.End{ID: "holder"})...))
	for id, want := range map[string]claim.Status{"first": claim.Active, "second": claim.Waiting} {
		if c, _, now, err := s.Get(t.Context(), id, 0); err != nil || c.Status != want || c.Deadline.Sub(now.Lease) < time.Minute {
			t.Errorf("%s is %s, due in %s (%v)", id, c.Status, c.Deadline.Sub(now.Lease), err)
		}
	}
}
