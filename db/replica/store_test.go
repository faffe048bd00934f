package replica_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/db/dbtest"
	"github.com/locket-service/locket/db/replica"
	"github.com/locket-service/locket/db/replica/disk/disktest"
	"github.com/locket-service/locket/internal/rules/claim"
)

// small has the log rotate, and snapshots made, often.
var small = replica.Options{SegmentBytes: 128 << 10, SnapshotBytes: 64 << 10, Delay: 50 * time.Millisecond}

func open(t testing.TB, folder string) *replica.Store {
	t.Helper()
	s, err := replica.OpenWith(folder, small)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// engine has its log on a disk in memory, which loses what was not synced when the store is opened again.
func engine(t testing.TB) dbtest.Engine {
	folder, d := filepath.Join(t.TempDir(), "data"), disktest.New()
	clock := new(wallClock)
	s := atClock(t, folder, d, clock)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	rnd := rand.New(rand.NewPCG(1, 2))
	return dbtest.Engine{Store: s, Reopen: func(t testing.TB) db.Store {
		t.Helper()
		before := s.Dump()
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		d = d.Crash(rnd)
		s = atClock(t, folder, d, clock)
		if after := s.Dump(); string(after) != string(before) {
			t.Errorf("the state is another one after a restart: %d bytes, %d before", len(after), len(before))
		}
		return s
	}, Step: clock.set}
}

func TestStore(t *testing.T) { dbtest.RunAlone(t, engine) }

func TestOneServer(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "data")
	first := open(t, folder)
	if _, err := replica.Open(folder); !errors.Is(err, db.ErrInUse) || err.Error() != "lock "+folder+": "+db.ErrInUse.Error() {
		t.Fatalf("a second server: %v", err)
	}
	dbtest.Do(t, first, claim.Acquire{ID: "a", Resource: "r", Owner: "o", TTL: time.Hour})
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	second := open(t, folder)
	defer func() { _ = second.Close() }()
	if c, err := second.Holder(t.Context(), "r"); err != nil || c.ID != "a" {
		t.Errorf("holder %q (%v)", c.ID, err)
	}
}

// TestPanicInUpdate: a transaction whose function panics is over: later ones do not wait for it.
func TestPanicInUpdate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := onDisk(t, filepath.Join(t.TempDir(), "data"), disktest.New())
		for range 3 { // more than there may be on their way
			func() {
				defer func() {
					if recover() == nil {
						t.Error("the panic is lost")
					}
				}()
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				t.Error(s.Update(ctx, func(db.Tx) error { panic("boom") }))
			}()
		}
		if err := do(s, create(1)); err != nil {
			t.Error(err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestReadsTogether: a read changes nothing, even if its name never existed: any number may run at once, as the race
// detector sees.
func TestReadsTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // no list takes too long, whatever else this machine does
		s := open(t, filepath.Join(t.TempDir(), "data"))
		defer func() { _ = s.Close() }()
		ctx, none := t.Context(), "none"
		var reading sync.WaitGroup
		for range 4 {
			for name, read := range map[string]func() error{
				"Get":    func() error { _, _, _, err := s.Get(ctx, none, 0); return err },
				"Holder": func() error { _, err := s.Holder(ctx, none); return err },
				"Held": func() error {
					_, err := s.Live(ctx, db.LiveOf{Held: new(claim.Presence)}, db.Page{Limit: 10})
					return err
				},
				"Live":        func() error { _, err := s.Live(ctx, db.LiveOf{}, db.Page{Limit: 10}); return err },
				"Live of one": func() error { _, err := s.Live(ctx, db.LiveOf{Resource: &none}, db.Page{}); return err },
				"List":        func() error { _, _, err := s.List(ctx, db.Filter{}); return err },
				"List of one": func() error { _, _, err := s.List(ctx, db.Filter{Resource: &none}); return err },
				"Queue":       func() error { _, _, err := s.Queue(ctx, none, 10); return err },
				"WaitsOf": func() error {
					_, err := s.WaitsOf(ctx, []claim.OwnerKey{{Owner: none}, {Session: none}}, 10)
					return err
				},
				"Resources": func() error { _, _, _, err := s.Resources(ctx, "", "", 10); return err },
				"Contended": func() error { _, _, err := s.Contended(ctx, "", nil, 10); return err },
				"Due": func() error {
					_, err := s.Due(ctx, db.DueQuery{Resources: 10, Waiters: 10, Sessions: 10})
					return err
				},
				"Session":           func() error { _, _, err := s.Session(ctx, none); return err },
				"Sessions":          func() error { _, _, err := s.Sessions(ctx, "", 10); return err },
				"Live of a session": func() error { _, err := s.Live(ctx, db.LiveOf{Session: none}, db.Page{}); return err },
				"AttachedTo":        func() error { _, err := s.AttachedTo(ctx, none); return err },
				"Census":            func() error { _, err := s.Census(ctx, 1); return err },
				"Members":           func() error { _, _, err := s.Members(ctx); return err },
				"About":             func() error { _ = s.About(); return nil },
				"ClockState":        func() error { _ = s.ClockState(); return nil },
			} {
				reading.Go(func() {
					if err := read(); err != nil && !errors.Is(err, claim.ErrNotFound) && !errors.Is(err, claim.ErrSessionEnded) {
						t.Errorf("%s: %v", name, err)
					}
				})
			}
		}
		reading.Wait()
	})
}

// TestBubble shows that other packages' tests can use the engine with a fake clock.
func TestBubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := engine(t)
		start := time.Now()
		dbtest.Do(t, e.Store, claim.Acquire{ID: "a", Resource: "r", Owner: "o", TTL: time.Minute})
		for range 240 {
			time.Sleep(db.BeatInterval)
			if err := e.Store.Beat(t.Context(), false); err != nil {
				t.Fatal(err)
			}
		}
		due, err := e.Store.Due(t.Context(), db.DueQuery{Resources: 1})
		if err != nil || len(due.Resources) != 1 {
			t.Errorf("due after a minute: %q (%v)", due.Resources, err)
		}
		now, err := e.Store.Now(t.Context())
		if err != nil || now.Wall.Std().Sub(start.UTC()) != time.Minute {
			t.Errorf("now %s, started at %s (%v)", now.Wall.Std(), start, err)
		}
	})
}

func BenchmarkFlat(b *testing.B) {
	dbtest.Benchmark(b, func(t testing.TB) db.Store {
		s, err := replica.Open(filepath.Join(t.TempDir(), "data"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		return s
	})
}
