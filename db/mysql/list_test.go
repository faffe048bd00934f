package mysql

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/db/dbtest"
	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/internal/rules/claim"
)

// endless takes the database longer than it may work on a statement.
const endless = "SELECT COUNT(*) FROM information_schema.collations a, information_schema.collations b, information_schema.collations c, information_schema.collations d"

// TestScans: lists that may read everything wait for each other, and for listTime at most;
// nothing else waits for them.
func TestScans(t *testing.T) {
	t.Parallel()
	s := open(t, fixtures.MySQL(t))
	dbtest.Do(t, s, claim.Create{ID: "a", Resource: "r", Owner: "o", TTL: time.Hour})
	dbtest.Contend(t, s)
	s.limits.list = 100 * time.Millisecond // longer waits fail
	for range maxScans {
		s.scans <- struct{}{}
	}
	r, o, d := "r", "o", time.Second
	for name, c := range map[string]struct {
		f    db.Filter
		scan bool
	}{
		"all":                    {db.Filter{}, false},
		"active of an owner":     {db.Filter{Statuses: []claim.Status{claim.Active}, Owner: &o}, false}, // there are few
		"waiting for a resource": {db.Filter{Statuses: []claim.Status{claim.Waiting}, Resource: &r}, false},
		"aborted":                {db.Filter{Statuses: []claim.Status{claim.Aborted}}, true},
		"owner":                  {db.Filter{Owner: &o}, true},
		"active for a second":    {db.Filter{MinActive: &d}, true},
	} {
		if _, _, err := s.List(t.Context(), c.f); c.scan != errors.Is(err, db.ErrListTooLong) || !c.scan && err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, _, err := s.Contended(t.Context(), "many", nil, 10); !errors.Is(err, db.ErrListTooLong) {
		t.Errorf("many contended resources: %v", err)
	}
	s.limits.list = hangs
	if _, _, err := s.Contended(t.Context(), "few", nil, 10); err != nil {
		t.Errorf("few contended resources: %v", err)
	}
	<-s.scans
	for range 2 { // each leaves the place to the next
		if claims, _, err := s.List(t.Context(), db.Filter{Owner: &o}); err != nil || len(claims) != 1 {
			t.Errorf("a list when there is room: %d claims (%v)", len(claims), err)
		}
	}
}

// TestScanOfCallerWhoLeft: a list runs on at the database when its caller leaves. It counts until
// the database has ended it, which it does by itself.
func TestScanOfCallerWhoLeft(t *testing.T) {
	dsn := fixtures.MySQL(t)
	s := open(t, dsn)
	reconnect(t, &s.reader, dsn, reading)
	const query = "SELECT COUNT(*) FROM information_schema.processlist WHERE info LIKE 'SELECT COUNT(*) FROM information_schema.collations%'"
	runs := func() (n int) {
		must(t, s.control.QueryRow(query).Scan(&n))
		return n
	}
	eventually(t, "a statement runs on", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if _, err := s.scan(ctx, 0, endless, nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("got %v", err)
		}
		counts := len(s.scans)
		on := runs() > 0 // or this machine is so slow that it has ended
		if on && counts == 0 {
			t.Error("the statement does not count any more")
		}
		return on
	})
	if _, err := s.scan(t.Context(), 0, endless, nil); !errors.Is(err, db.ErrListTooLong) {
		t.Errorf("got %v", err)
	}
	eventually(t, "none runs at the database, or counts", func() bool { return runs() == 0 && len(s.scans) == 0 })
}

// TestSlowReads: the database ends each read that takes too long. A list is then too long; for any other read the
// database is unavailable.
func TestSlowReads(t *testing.T) {
	t.Parallel()
	dsn := fixtures.MySQL(t)
	s := open(t, dsn)
	dbtest.Do(t, s, claim.Create{ID: "a", Resource: "r", Owner: "o", TTL: time.Hour})
	short := reading
	short.optional = []string{limit("max_statement_time", 0.1), limit("max_execution_time", 100)}
	reconnect(t, &s.reader, dsn, short)
	locker, err := s.scanner.Conn(t.Context())
	must(t, err)
	defer func() { _ = locker.Close() }()
	_, err = locker.ExecContext(t.Context(), "LOCK TABLES claims WRITE, resources WRITE, sessions WRITE")
	must(t, err)
	active := db.Filter{Statuses: []claim.Status{claim.Active}}
	for name, read := range map[string]struct {
		do   func(ctx context.Context) error
		want error
	}{
		"Get":     {func(ctx context.Context) error { _, _, _, err := s.Get(ctx, "a", 0); return err }, db.ErrUnavailable},
		"Place":   {func(ctx context.Context) error { _, _, _, err := s.Get(ctx, "a", 10); return err }, db.ErrUnavailable},
		"Holder":  {func(ctx context.Context) error { _, err := s.Holder(ctx, "r"); return err }, db.ErrUnavailable},
		"Queue":   {func(ctx context.Context) error { _, _, err := s.Queue(ctx, "r", 10); return err }, db.ErrUnavailable},
		"Session": {func(ctx context.Context) error { _, _, err := s.Session(ctx, "s"); return err }, db.ErrUnavailable},
		"WaitsOf": {func(ctx context.Context) error {
			_, err := s.WaitsOf(ctx, []claim.OwnerKey{{Owner: "o"}}, 10)
			return err
		}, db.ErrUnavailable},
		"List": {func(ctx context.Context) error { _, _, err := s.List(ctx, db.Filter{}); return err }, db.ErrListTooLong},
		"few":  {func(ctx context.Context) error { _, _, err := s.List(ctx, active); return err }, db.ErrListTooLong},
		"Held": {func(ctx context.Context) error {
			_, err := s.Live(ctx, db.LiveOf{Held: new(claim.Lock)}, db.Page{})
			return err
		}, db.ErrListTooLong},
		"page": {func(ctx context.Context) error {
			_, err := s.Live(ctx, db.LiveOf{Held: new(claim.Lock)}, db.Page{Limit: 9, Bytes: 9})
			return err
		}, db.ErrListTooLong},
		"Live":      {func(ctx context.Context) error { _, err := s.Live(ctx, db.LiveOf{}, db.Page{Limit: 9}); return err }, db.ErrListTooLong},
		"Resources": {func(ctx context.Context) error { _, _, _, err := s.Resources(ctx, "", "", 10); return err }, db.ErrListTooLong},
		"Contended": {func(ctx context.Context) error { _, _, err := s.Contended(ctx, "", nil, 10); return err }, db.ErrListTooLong},
	} {
		err := read.do(t.Context())
		if !errors.Is(err, read.want) || errors.Is(err, db.ErrUnavailable) && errors.Is(err, db.ErrListTooLong) {
			t.Errorf("%s: got %v, want %v", name, err, read.want)
		}
	}
}
