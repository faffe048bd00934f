package backup

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/db/backup"
	"github.com/locket-service/locket/db/dbtest"
	"github.com/locket-service/locket/db/mysql"
	"github.com/locket-service/locket/db/replica"
	"github.com/locket-service/locket/internal/program/server"
	"github.com/locket-service/locket/internal/rules/claim"
	"github.com/locket-service/locket/internal/service/watch"
	"github.com/locket-service/locket/tests/harness"
)

// restorable are the engines into which a backup is restored.
var restorable = []string{"embedded", "mysql"}

func config(p place) server.Config {
	c := server.DefaultConfig()
	c.Database = p.database
	return c
}

// backUp takes a backup of a place.
func backUp(t testing.TB, p place) (file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "backup")
	_, err := server.Backup(context.Background(), config(p), file)
	must(t, err)
	return file
}

// ask carries out a command, which may be refused.
func ask(t testing.TB, s db.Store, cmd claim.Command) (*claim.Claim, error) {
	t.Helper()
	outcome, err := db.Transact(t.Context(), s, db.Batch{Requests: []claim.Request{{Command: cmd}}})
	must(t, err)
	return outcome.Answers[0].Claim, outcome.Answers[0].Err
}

// beatFor beats, so that lease time advances.
func beatFor(t testing.TB, s db.Store, d time.Duration) {
	t.Helper()
	from, err := s.Now(t.Context())
	must(t, err)
	for now := from; now.Lease.Sub(from.Lease) < d; {
		must(t, s.Beat(t.Context(), false))
		time.Sleep(50 * time.Millisecond) // real time: lease time passes with it
		now, err = s.Now(t.Context())
		must(t, err)
	}
}

// After a backup claims are released and others granted, even on resources that are not in the backup. The restored
// store gives no token again, grants no resource that may still be held before the quarantine has ended, and accepts no
// earlier cursor.
func TestRestore(t *testing.T) {
	t.Parallel()
	for _, of := range []string{"embedded", "mysql"} {
		for _, into := range restorable {
			t.Run(of+" into "+into, func(t *testing.T) { t.Parallel(); restore(t, engines[of](t), engines[into](t)) })
		}
	}
}

func restore(t *testing.T, from, into place) {
	s := from.open(t)
	fill(t, s)
	file := backUp(t, from)
	before := read(t, inFile(file))
	position, at, err := s.End(t.Context(), true)
	must(t, err)
	cursor := watch.Cursor{Position: position, At: at}

	// A resource that is not in the backup.
	given := uint64(0)
	for _, c := range dbtest.Do(t, s, claim.End{ID: "lock"}, claim.Acquire{ID: "lock 2", Resource: "c", Owner: "you", TTL: time.Minute},
		claim.Create{ID: "new", Resource: "a new name", TTL: time.Minute}, claim.End{ID: "holds"}, claim.End{ID: "waits-2"}) {
		given = max(given, c.Token, c.Version)
	}
	next, _, _, err := s.Get(t.Context(), "waits-1", 0)
	must(t, err)
	given = max(given, next.Token)
	must(t, s.Close())

	long := 4 * time.Second // more than lease time can advance until beatFor: half a second from one commit to the next
	quarantine, err := server.Restore(t.Context(), config(into), file, server.RestoreOptions{Quarantine: &long})
	if err != nil || quarantine != long {
		t.Fatalf("the quarantine is %v, %v", quarantine, err)
	}
	if k := check(t, into.dump); k.Found != 0 || k.Active != 6 || k.Waiting != 5 || k.History != 4 || k.Sessions != 2 {
		t.Errorf("the check says %+v", k)
	}
	if after := read(t, into.dump); after.head.Quarantine != after.head.Lease.Add(long) || after.head.Floor <= given {
		t.Errorf("the restored store says %+v of itself", after.head)
	}
	if after := read(t, into.dump); len(after.claims) != len(before.claims) {
		t.Errorf("%d claims, %d before", len(after.claims), len(before.claims))
	} else {
		for id, c := range before.claims {
			got := after.claims[id]
			got.Deadline, c.Deadline = 0, 0
			if string(got.UserData) != string(c.UserData) || got.Token != c.Token || got.Enqueued != c.Enqueued || got.Status != c.Status || got.Value != c.Value {
				t.Errorf("%s is %+v, and was %+v", id, got, c)
			}
		}
	}
	// A second restore is refused, because the database is no longer empty.
	if _, err := server.Restore(t.Context(), config(into), file, server.RestoreOptions{Quarantine: &long}); !errors.Is(err, backup.ErrNotEmpty) {
		t.Errorf("a restore into what holds something: %v", err)
	}

	r := into.open(t)
	defer func() { must(t, r.Close()) }()
	if _, err := r.Changes(t.Context(), cursor.Position, true); err == nil {
		commits, _ := r.Changes(t.Context(), cursor.Position, true)
		for _, c := range commits {
			err = errors.Join(err, cursor.Position.Follow(c))
		}
		if !errors.Is(err, db.ErrFeedGap) {
			t.Errorf("a cursor of before goes on: %v", err)
		}
	} else if !errors.Is(err, db.ErrFeedGap) {
		t.Error(err)
	}
	// A lease has its full TTL again.
	now, err := r.Now(t.Context())
	must(t, err)
	if c, _, _, err := r.Get(t.Context(), "presence", 0); err != nil || c.Remaining(now) < 28*time.Second {
		t.Errorf("%v are left of it, %v", c.Remaining(now), err)
	}
	// The holder renews and releases; no other claim is granted.
	dbtest.Do(t, r, claim.Renew{ID: "holds", TTL: time.Minute}, claim.End{ID: "lock"}, claim.End{ID: "holds"})
	for resource, cmd := range map[string]claim.Command{
		"c":          claim.Acquire{ID: "lock 3", Resource: "c", Owner: "her", TTL: time.Minute},
		"a new name": claim.Create{ID: "new 2", Resource: "a new name", TTL: time.Minute, NoWait: true},
	} {
		if c, err := ask(t, r, cmd); !errors.Is(err, claim.ErrQuarantine) {
			t.Errorf("%s was granted, or not refused: %+v, %v", resource, c, err)
		}
	}
	waits := dbtest.Do(t, r, claim.Create{ID: "waits for c", Resource: "c", TTL: time.Minute}, claim.Create{ID: "waits for new", Resource: "a new name", TTL: time.Minute})
	if first, _, _, err := r.Get(t.Context(), "waits-1", 0); err != nil || first.Status != claim.Waiting || waits[0].Status != claim.Waiting || waits[1].Status != claim.Waiting {
		t.Errorf("somebody was granted something within the quarantine: %+v, %+v, %v", first, waits, err)
	}
	if state := r.ClockState(); state.Quarantine == 0 {
		t.Error("the store does not say that there is a quarantine")
	}
	if due, err := r.Due(t.Context(), db.DueQuery{Idle: time.Second}); err != nil || due.Next == 0 {
		t.Errorf("lease time need not go on: %v, %v", next, err)
	}
	beatFor(t, r, long)
	dbtest.Do(t, r, claim.Expire{Resources: []string{"a", "c", "a new name"}})
	for _, id := range []string{"waits-1", "waits for c", "waits for new"} {
		if c, _, _, err := r.Get(t.Context(), id, 0); err != nil || c.Status != claim.Active || c.Token <= given {
			t.Errorf("%s is %v with token %d, and %d was given before the restore; %v", id, c.Status, c.Token, given, err)
		}
	}
	if k := check(t, into.dump); k.Found != 0 {
		t.Error(k.Problems)
	}
}

// With --revoke-all no resource is held, claims are granted at once, and tokens are above all earlier ones.
func TestRevokeAll(t *testing.T) {
	t.Parallel()
	for _, into := range restorable {
		t.Run(into, func(t *testing.T) {
			t.Parallel()
			from, into := engines["embedded"](t), engines[into](t)
			s := from.open(t)
			fill(t, s)
			file := backUp(t, from)
			given := dbtest.Do(t, s, claim.End{ID: "lock"}, claim.Acquire{ID: "lock 2", Resource: "c", Owner: "you", TTL: time.Minute})[1].Token
			must(t, s.Close())
			quarantine, err := server.Restore(t.Context(), config(into), file, server.RestoreOptions{RevokeAll: true})
			if err != nil || quarantine != 0 {
				t.Fatalf("the quarantine is %v, %v", quarantine, err)
			}
			if k := check(t, into.dump); k.Found != 0 || k.Active+k.Waiting+k.Sessions != 0 || k.History != 15 {
				t.Errorf("the check says %+v", k)
			}
			r := into.open(t)
			defer func() { must(t, r.Close()) }()
			if c := dbtest.Do(t, r, claim.Acquire{ID: "lock 3", Resource: "c", Owner: "her", TTL: time.Minute})[0]; c.Status != claim.Active || c.Token <= given {
				t.Errorf("it is %v with token %d, and %d was given before", c.Status, c.Token, given)
			}
			if c, _, _, err := r.Get(t.Context(), "holds", 0); err != nil || c.Status != claim.Revoked || c.Reason != backup.ReasonRestored {
				t.Errorf("%+v, %v", c, err)
			}
		})
	}
}

// The quarantine is as long as the longest known TTL; one of more than a day must be asked for.
func TestLengthOfQuarantine(t *testing.T) {
	t.Parallel()
	for ttl, want := range map[time.Duration]time.Duration{time.Second: time.Minute, 3 * time.Hour: 3 * time.Hour, 25 * time.Hour: 0} {
		from, into := engines["embedded"](t), engines["embedded"](t)
		s := from.open(t)
		dbtest.Do(t, s, claim.Create{ID: "short", Resource: "a", TTL: time.Second}, claim.Create{ID: "long", Resource: "b", TTL: ttl})
		dbtest.Do(t, s, claim.End{ID: "long"})
		must(t, s.Close())
		quarantine, err := server.Restore(t.Context(), config(into), backUp(t, from), server.RestoreOptions{})
		if quarantine != want || (err == nil) != (want != 0) {
			t.Errorf("with a TTL of %v the quarantine is %v, %v", ttl, quarantine, err)
		}
		if _, err := os.Stat(strings.TrimPrefix(into.database, "embedded:")); (err == nil) != (want != 0) {
			t.Errorf("with a TTL of %v: %v", ttl, err)
		}
	}
}

// A restore that fails at any point leaves an empty store, into which a restore is possible.
func TestRestoreFails(t *testing.T) {
	t.Parallel()
	from := filled(t, "embedded")
	failing := errors.New("it fails")
	for _, name := range restorable {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			into := engines[name](t)
			fill := filler(into)
			for after := 0; ; after += 3 {
				n := after
				err := fill(context.Background(), func(to backup.Sink) error {
					return from.dump(backup.Until(context.Background(), &failingSink{to, &n, failing}))
				})
				if err == nil {
					break
				}
				if !errors.Is(err, failing) {
					t.Fatal(err)
				}
			}
			if k := check(t, into.dump); k.Found != 0 || k.Active+k.Waiting+k.History != 15 {
				t.Errorf("the check says %+v", k)
			}
		})
	}
}

// failingSink fails after some items.
type failingSink struct {
	backup.Sink
	left *int
	err  error
}

func (f *failingSink) next() error {
	if *f.left--; *f.left < 0 {
		return f.err
	}
	return nil
}

func (f *failingSink) Claim(c *claim.Claim) error { return errors.Join(f.next(), f.Sink.Claim(c)) }
func (f *failingSink) Row(r backup.Row) error     { return errors.Join(f.next(), f.Sink.Row(r)) }
func (f *failingSink) Ended(c *claim.Claim) error { return errors.Join(f.next(), f.Sink.Ended(c)) }
func (f *failingSink) End(h backup.Head) error    { return errors.Join(f.next(), f.Sink.End(h)) }

// filler returns a function that fills a place.
func filler(p place) func(context.Context, func(backup.Sink) error) error {
	engine, source, _ := strings.Cut(p.database, ":")
	if engine == "embedded" {
		return func(_ context.Context, from func(backup.Sink) error) error { return replica.Fill(source, from) }
	}
	return func(ctx context.Context, from func(backup.Sink) error) error { return mysql.Fill(ctx, source, from) }
}

// While a restore fills a store, another one does not: it waits, or is refused, and the first one is complete.
func TestTwoRestores(t *testing.T) {
	t.Parallel()
	from := filled(t, "embedded")
	for _, name := range restorable {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			into := engines[name](t)
			halfway, goOn, filled := make(chan struct{}), make(chan struct{}), make(chan error, 1)
			go func() {
				filled <- filler(into)(t.Context(), func(to backup.Sink) error { return from.dump(&pausingSink{to, halfway, goOn}) })
			}()
			select {
			case <-halfway:
			case err := <-filled:
				t.Fatal("the first one has ended:", err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			if err := filler(into)(ctx, from.dump); err == nil {
				t.Error("another one fills it too")
			}
			close(goOn)
			must(t, harness.Await(t, "end of the first one", filled))
			if k := check(t, into.dump); k.Found != 0 || k.Active+k.Waiting+k.History != 15 {
				t.Errorf("the check says %+v", k)
			}
		})
	}
}

// pausingSink waits between claims and sessions.
type pausingSink struct {
	backup.Sink
	halfway chan<- struct{}
	goOn    <-chan struct{}
}

func (p *pausingSink) Session(s *claim.Session) error {
	if p.halfway != nil {
		close(p.halfway)
		p.halfway = nil
		<-p.goOn
	}
	return p.Sink.Session(s)
}

// A restore changes nothing outside of its folder, and keeps an existing folder.
func TestRestoreTouchesNothingElse(t *testing.T) {
	t.Parallel()
	from := filled(t, "embedded")
	file := backUp(t, from)
	folder := filepath.Join(t.TempDir(), "data")
	for _, suffix := range []string{".new", ""} { // the second one leaves a database untouched, too
		into := embeddedIn(folder + suffix)
		must(t, os.Mkdir(folder+suffix, 0o750)) //nolint:gosec // a different mode than for new folders
		before, err := os.Stat(folder + suffix)
		must(t, err)
		_, err = server.Restore(t.Context(), config(into), file, server.RestoreOptions{})
		must(t, err)
		if after, err := os.Stat(folder + suffix); err != nil || !os.SameFile(before, after) || after.Mode() != before.Mode() {
			t.Errorf("%s%s is another folder: %v, %v", folder, suffix, after, err)
		}
	}
	for _, suffix := range []string{".new", ""} {
		if k := check(t, embeddedIn(folder+suffix).dump); k.Found != 0 || k.Active != 6 {
			t.Errorf("the check of %s%s says %+v", folder, suffix, k)
		}
	}
	if _, err := server.Restore(t.Context(), config(embeddedIn(folder)), file, server.RestoreOptions{}); !errors.Is(err, backup.ErrNotEmpty) {
		t.Errorf("into a database: %v", err)
	}
}

// A folder with other files is refused, and nothing is left in it.
func TestRestoreIntoOtherThings(t *testing.T) {
	t.Parallel()
	from := filled(t, "embedded")
	file, home := backUp(t, from), t.TempDir()
	must(t, os.WriteFile(filepath.Join(home, "letter"), nil, 0o600))
	if _, err := server.Restore(t.Context(), config(embeddedIn(home)), file, server.RestoreOptions{}); !errors.Is(err, backup.ErrNotEmpty) {
		t.Errorf("it is restored: %v", err)
	}
	if _, err := replica.Open(home); !errors.Is(err, replica.ErrFolder) {
		t.Errorf("a server opens it: %v", err)
	}
	if entries, err := os.ReadDir(home); err != nil || len(entries) != 1 {
		t.Errorf("there is %v, %v", entries, err)
	}
}

// A database that a restore has half filled is served by nobody, and can be filled.
func TestHalfRestoredDatabase(t *testing.T) {
	t.Parallel()
	into := engines["mysql"](t)
	dsn := strings.TrimPrefix(into.database, "mysql:")
	must(t, into.open(t).Close())
	pool, err := sql.Open("mysql", dsn)
	must(t, err)
	for _, statement := range []string{"UPDATE locket_schema SET version = 1 << 30", "INSERT INTO resources (name, version, holder, shared, waiting) VALUES ('left', 1, '', 0, 0)"} {
		_, err := pool.Exec(statement)
		must(t, err)
	}
	must(t, pool.Close())
	if _, err := mysql.Open(t.Context(), dsn); !errors.Is(err, backup.ErrHalfRestored) {
		t.Errorf("a server opens it: %v", err)
	}
	if err := into.dump(backup.NewChecker()); !errors.Is(err, backup.ErrHalfRestored) {
		t.Errorf("it is read: %v", err)
	}
	from := filled(t, "embedded")
	must(t, mysql.Fill(context.Background(), dsn, from.dump))
	if k := check(t, into.dump); k.Found != 0 || k.Active != 6 {
		t.Errorf("the check says %+v", k)
	}
}
