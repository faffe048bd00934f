package dbtest_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/locket-service/locket/claim"
	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/db/dbtest"
	"github.com/locket-service/locket/db/sqlite"
)

// This file tests the suite: each fault below must be noticed by the cases that stand
// beside it, each case must notice at least one fault, and a store without faults passes.

// recorder is a test that may fail without the real one failing.
type recorder struct {
	testing.TB
	failed atomic.Bool
	mu     sync.Mutex
	lines  []string
}

func (r *recorder) Helper()      {}
func (r *recorder) Failed() bool { return r.failed.Load() }
func (r *recorder) Fail()        { r.failed.Store(true) }
func (r *recorder) FailNow()     { r.Fail(); runtime.Goexit() }
func (r *recorder) Log(args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines = append(r.lines, fmt.Sprint(args...))
}
func (r *recorder) Logf(format string, args ...any)   { r.Log(fmt.Sprintf(format, args...)) }
func (r *recorder) Error(args ...any)                 { r.Log(args...); r.Fail() }
func (r *recorder) Errorf(format string, args ...any) { r.Logf(format, args...); r.Fail() }
func (r *recorder) Fatal(args ...any)                 { r.Log(args...); r.FailNow() }
func (r *recorder) Fatalf(format string, args ...any) { r.Logf(format, args...); r.FailNow() }

// record runs a case and returns the messages of its failure, "" when it passed. A panic is a
// failure too.
func record(t *testing.T, c dbtest.Case, open func(testing.TB) dbtest.Engine) string {
	r := &recorder{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			if p := recover(); p != nil {
				r.Errorf("panic: %v", p)
			}
		}()
		dbtest.RunCase(r, c, open)
	}()
	<-done
	if !r.Failed() {
		return ""
	}
	return "failed: " + strings.Join(r.lines, "\n")
}

// cluster is an engine that pretends to have many servers. They share one SQLite store.
type cluster struct {
	inner   *sqlite.Store
	mu      sync.Mutex
	servers []*server
	wrap    func(db.Store) db.Store
}

// server is one of them.
type server struct {
	db.Store
	c    *cluster
	name string
	feed []db.Commit // its own
}

func (c *cluster) join() db.Store {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := &server{Store: c.inner, c: c, name: fmt.Sprint(len(c.servers))}
	c.servers = append(c.servers, s)
	return c.wrap(s)
}

func (s *server) Transact(ctx context.Context, fn func(db.Tx) error) error {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	saves := &saves{}
	err := s.Store.Transact(ctx, func(tx db.Tx) error {
		saves.Tx = tx
		return fn(saves)
	})
	if err == nil && saves.queues != nil && len(saves.queues.Changed()) > 0 {
		return s.tell(saves.queues)
	}
	return err
}

func (s *server) tell(queues *claim.Queues) error {
	at, changes, err := db.ReadRecord(db.AppendRecord(nil, queues.Now.Wall, queues.Transitions()))
	s.feed = append(s.feed, db.Commit{Server: s.name, N: uint64(len(s.feed)) + 1, At: at, Changes: changes})
	return err
}

func (s *server) End(ctx context.Context, own bool) (db.Position, claim.Time, error) {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	position := db.Position{}
	for _, other := range s.c.servers {
		if len(other.feed) > 0 && (own || other != s) {
			position[other.name] = uint64(len(other.feed))
		}
	}
	now, err := s.Now(ctx)
	return position, now.Wall, err
}

func (s *server) Changes(_ context.Context, after db.Position, own bool) (commits []db.Commit, err error) {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	for _, other := range s.c.servers {
		if own || other != s {
			commits = append(commits, other.feed[after[other.name]:]...)
		}
	}
	return commits, nil
}

// saves remembers what was saved.
type saves struct {
	db.Tx
	queues *claim.Queues
}

func (s *saves) Save(queues *claim.Queues) error {
	s.queues = queues
	return s.Tx.Save(queues)
}

// opener opens clusters whose stores are wrapped.
func opener(wrap func(db.Store) db.Store) func(testing.TB) dbtest.Engine {
	return func(t testing.TB) dbtest.Engine {
		path := filepath.Join(t.TempDir(), "locket.db")
		c := &cluster{wrap: wrap}
		open := func(t testing.TB) db.Store {
			var err error
			if c.inner, err = sqlite.Open(path); err != nil {
				t.Fatal(err)
			}
			c.servers = nil
			return c.join()
		}
		store := open(t)
		t.Cleanup(func() { _ = c.inner.Close() })
		return dbtest.Engine{
			Store:  store,
			Second: func(testing.TB) db.Store { return c.join() },
			Reopen: func(t testing.TB) db.Store {
				if err := c.inner.Close(); err != nil {
					t.Fatal(err)
				}
				return open(t)
			},
		}
	}
}

// broken is a store with a fault. What is nil works.
type broken struct {
	db.Store
	load      func(tx db.Tx, wanted db.Wanted) (*claim.Queues, error)
	save      func(tx db.Tx, queues *claim.Queues) error
	claim     func(*claim.Claim) // after it was read
	filter    func(db.Filter) db.Filter
	transact  func(ctx context.Context, fn func(db.Tx) error) error
	beat      func(context.Context, time.Duration) error
	resume    func(context.Context) error
	now       func(claim.Instant) claim.Instant
	holder    func(ctx context.Context, resource string) (claim.Claim, error)
	held      func(claim.Type) claim.Type
	queue     func(ctx context.Context, resource string, limit int) (db.Snapshot, claim.Instant, error)
	snapshot  func(*db.Snapshot) // after it was read
	ahead     func(ctx context.Context, resource string, position uint64, limit int) (int, error)
	due       func(idle time.Duration, limit int) (time.Duration, int)
	names     func([]string) []string // of Due
	count     func(db.Counts) db.Counts
	cutoff    func(keep int) int
	changes   func(ctx context.Context, after db.Position, own bool) ([]db.Commit, error)
	end       func(db.Position) db.Position
	prune     func(before claim.Time, limit int) (claim.Time, int)
	resources func(after string, before claim.Time, limit int) (string, error)
	nextDue   func(ctx context.Context, idle time.Duration) (claim.Time, claim.Instant, error)
	abandoned func(ctx context.Context, limit int) ([]string, error)
	page      func(*db.Page)
	live      func([]claim.Claim) []claim.Claim

	session       func(*claim.Session) // after it was read
	sessions      func(after string, limit int) (string, int)
	counted       func(*db.SessionCount)
	sessionClaims func([]claim.Claim) []claim.Claim
	dueSessions   func([]string) []string
	detach        func(ctx context.Context, silence time.Duration) (int, error)
	vouch         func(ctx context.Context, name string) error
