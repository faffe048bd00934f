// Package backup tests backups, restores and checks with every engine.
package backup

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/db/backup"
	"github.com/locket-service/locket/db/dbtest"
	"github.com/locket-service/locket/db/mysql"
	"github.com/locket-service/locket/db/replica"
	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/internal/rules/claim"
	"github.com/locket-service/locket/tests/harness"
)

func TestMain(m *testing.M) { harness.Run(m) }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// place is where a store is.
type place struct {
	database string // as --database names it
	open     func(t testing.TB) db.Store
	dump     func(backup.Sink) error
}

// start starts a server of the place, or with harness.OnCluster a cluster that begins with the place.
func (p place) start(t *testing.T) *fixtures.Locket {
	t.Helper()
	database := p.database
	if folder, is := strings.CutPrefix(database, "embedded:"); is && harness.OnCluster {
		database = "cluster:" + filepath.Dir(folder)
	}
	return fixtures.StartLocket(t, database)
}

// engines make a new place each.
var engines = map[string]func(t testing.TB) place{
	"embedded": func(t testing.TB) place { return embeddedIn(filepath.Join(t.TempDir(), "a")) }, // as the folder of a server of a cluster is called
	"mysql": func(t testing.TB) place {
		dsn := harness.MySQL(t)
		return place{"mysql:" + dsn, opened(func() (db.Store, error) { return mysql.Open(context.Background(), dsn) }), func(to backup.Sink) error { return mysql.Dump(context.Background(), dsn, to) }}
	},
}

// embeddedIn is an embedded database in a folder, with frequent log rotations and snapshots.
func embeddedIn(folder string) place {
	small := replica.Options{SegmentBytes: 128 << 10, SnapshotBytes: 64 << 10, Delay: 50 * time.Millisecond}
	return place{"embedded:" + folder, opened(func() (db.Store, error) { return replica.OpenWith(folder, small) }), func(to backup.Sink) error { return replica.Dump(folder, to) }}
}

func opened(open func() (db.Store, error)) func(t testing.TB) db.Store {
	return func(t testing.TB) db.Store {
		t.Helper()
		s, err := open()
		must(t, err)
		must(t, s.Beat(t.Context(), false))
		return s
	}
}

// onEachEngine runs a test on a new place of each engine.
func onEachEngine(t *testing.T, test func(t *testing.T, p place)) {
	t.Parallel()
	for name, make := range engines {
		t.Run(name, func(t *testing.T) { t.Parallel(); test(t, make(t)) })
	}
}

// filled returns a place for a store of an engine, with records of every kind.
func filled(t testing.TB, engine string) place {
	t.Helper()
	p := engines[engine](t)
	s := p.open(t)
	fill(t, s)
	must(t, s.Close())
	return p
}

// fill puts records of every kind into a store.
func fill(t testing.TB, s db.Store) {
	t.Helper()
	secret := make([]byte, 32)
	create := func(id, resource string, change func(*claim.Create)) claim.Command {
		c := claim.Create{ID: id, Resource: resource, Owner: "owner of " + id, TTL: time.Minute}
		if change != nil {
			change(&c)
		}
		return c
	}
	shared := func(c *claim.Create) { c.Units = claim.Shared }
	dbtest.Do(t, s,
		create("holds", "a", func(c *claim.Create) { c.UserData, c.Value = []byte(`{"a": [1, "\u00e9"]}`), "value" }),
		create("waits-1", "a", nil), create("waits-2", "a", func(c *claim.Create) { c.WaitTTL = time.Hour }), create("waits-3", "a", shared),
		create("shares-1", "b \x01\xc3\xa9", shared), create("shares-2", "b \x01\xc3\xa9", shared), create("waits-4", "b \x01\xc3\xa9", nil),
		claim.Acquire{ID: "lock", Resource: "c", Owner: "me", Type: claim.Lock, TTL: time.Hour, Value: "v"},
		claim.Acquire{ID: "presence", Resource: "cell/1", Owner: "cell 1", Type: claim.Presence, TTL: 30 * time.Second},
		create("released", "d", nil), create("withdrawn", "d", nil), create("revoked", "D", nil), create("aborted", "D ", nil))
	dbtest.Do(t, s, claim.End{ID: "withdrawn"}, claim.End{ID: "released", Reason: "done"},
		claim.SetStatus{ID: "revoked", Status: claim.Revoked, Reason: "by hand"}, claim.SetStatus{ID: "aborted", Status: claim.Aborted})
	dbtest.Do(t, s, claim.Renew{ID: "holds", TTL: 2 * time.Minute})
	must(t, s.Beat(t.Context(), false))
	dbtest.Do(t, s, claim.Attach{Session: claim.Session{ID: "s1", Owner: "session 1", Secret: secret, TTL: 20 * time.Second}, Server: "server"},
		claim.Attach{Session: claim.Session{ID: "s2", Owner: "session 2", Secret: secret, TTL: 40 * time.Second}, Server: "server"})
	inSession := func(c *claim.Create) { c.Session, c.Server, c.TTL = "s1", "server", 0 }
	dbtest.Do(t, s, create("in-session", "e", inSession), create("in-session-waits", "a", inSession))
	dbtest.Do(t, s, claim.Detach{ID: "s2", Server: "server", Left: 10 * time.Second})
}

// contents is a Sink that keeps everything that it gets.
type contents struct {
	head     backup.Head
	claims   map[string]claim.Claim
	sessions map[string]claim.Session
	rows     map[string]uint64
	ended    map[string]claim.Claim
}

func read(t testing.TB, dump func(backup.Sink) error) *contents {
	t.Helper()
	c := &contents{claims: map[string]claim.Claim{}, sessions: map[string]claim.Session{}, rows: map[string]uint64{}, ended: map[string]claim.Claim{}}
	must(t, dump(c))
	return c
}

func (c *contents) Begin(backup.Head) error        { return nil }
func (c *contents) Claim(x *claim.Claim) error     { c.claims[x.ID] = *x; return nil }
func (c *contents) Session(s *claim.Session) error { c.sessions[s.ID] = *s; return nil }
func (c *contents) Server(backup.Server) error     { return nil }
func (c *contents) Row(r backup.Row) error         { c.rows[r.Resource] = r.Version; return nil }
func (c *contents) Ended(x *claim.Claim) error     { c.ended[x.ID] = *x; return nil }
func (c *contents) End(h backup.Head) error        { c.head = h; return nil }

func check(t testing.TB, dump func(backup.Sink) error) *backup.Checker {
	t.Helper()
	k := backup.NewChecker()
	must(t, dump(k))
	return k
}

func inFile(file string) func(backup.Sink) error {
	return func(to backup.Sink) error { return backup.Read(file, to) }
}

// unchecked is for a backup that nobody checks.
func unchecked(string) error { return nil }
