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

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/db/dbtest"
	"github.com/locket-service/locket/db/replica"
	"github.com/locket-service/locket/db/replica/disk/disktest"
	"github.com/locket-service/locket/internal/rules/claim"
)

// This file tests the suite: each fault below must be noticed by the cases that stand
// beside it (TestFaults, TestFaultsSoak), each case must notice at least one fault, and a store without faults passes (TestSoundSoak; the tests of
// the engines show that too).

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

// cluster is an engine that pretends to have many servers. They share one store.
type cluster struct {
	inner   *replica.Store
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

func (s *server) Transact(ctx context.Context, batch db.Batch) (db.Outcome, db.Completion, error) {
	outcome, err := db.CarryOut(ctx, s, batch)
	return outcome, nil, err
}

func (s *server) Update(ctx context.Context, fn func(db.Tx) error) error {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	saves := &saves{}
	err := dbtest.Update(ctx, s.Store, func(tx db.Tx) error {
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
			for _, c := range other.feed[after[other.name]:] {
				if other != s {
					c.Others = c.Changes
				}
				commits = append(commits, c)
			}
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
		var wrong atomic.Int64
		wall := func() time.Time { return time.Now().Add(time.Duration(wrong.Load())) }
		folder, options := filepath.Join(t.TempDir(), "data"), replica.Options{Disk: disktest.New(), SegmentBytes: 64 << 10, Wall: wall}
		c := &cluster{wrap: wrap}
		open := func(t testing.TB) db.Store {
			var err error
			if c.inner, err = replica.OpenWith(folder, options); err != nil {
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
			Step: func(by time.Duration) { wrong.Store(int64(by)) },
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
	outcome   func(*db.Outcome)
	commit    db.Completion
	prepare   func(context.Context) error
	about     func(*db.About)
	beat      func(ctx context.Context, resumes bool) error
	now       func(claim.Instant) claim.Instant
	holder    func(ctx context.Context, resource string) (claim.Claim, error)
	held      func(claim.Type) claim.Type
	queue     func(ctx context.Context, resource string, limit int) (db.Snapshot, claim.Instant, error)
	snapshot  func(*db.Snapshot) // after it was read
	place     func(ctx context.Context, id string, limit int) (claim.Claim, int, claim.Instant, error)
	due       func(*db.DueQuery)
	overdue   func(db.DueQuery, *db.Overdue)
	census    func(*db.Census)
	usage     func(c claim.Count, identity string) claim.Count
	except    func([]string) []string // of Usage
	cutoff    func(keep int) int
	changes   func(ctx context.Context, after db.Position, own bool) ([]db.Commit, error)
	end       func(db.Position) db.Position
	prune     func(before claim.Time, limit int) (claim.Time, int)
	remember  func(now claim.Instant) ([]claim.Instant, error)
	resources func(after string, before claim.Time, limit int) (string, error)
	waitsOf   func(ctx context.Context, owners []claim.OwnerKey, limit int) ([]claim.Claim, error)
	page      func(*db.Page)
	live      func([]claim.Claim) []claim.Claim
	announce  func(m *db.Member, leaves *bool)
	members   func([]db.Member) []db.Member
	info      func(list []db.Resource, next string) ([]db.Resource, string) // of Resources
	after     func(after string) string                                     // of Resources
	contended func(prefix string, after *db.Contention, list []db.Resource, err error) ([]db.Resource, error)

	session       func(*claim.Session) // after it was read
	sessions      func(after string, limit int) (string, int)
	counted       func(*db.SessionCount)
	sessionClaims func([]claim.Claim) []claim.Claim
	attachedTo    func(ctx context.Context, server string) ([]string, error)
	detach        func(ctx context.Context, silence time.Duration) (int, error)
	register      func(ctx context.Context, name string) error
}

type brokenTx struct {
	db.Tx
	b *broken
}

func (t brokenTx) Load(wanted db.Wanted) (*claim.Queues, error) {
	if t.b.load != nil {
		return t.b.load(t.Tx, wanted)
	}
	return t.Tx.Load(wanted)
}

func (t brokenTx) Save(queues *claim.Queues) error {
	if t.b.save != nil {
		return t.b.save(t.Tx, queues)
	}
	return t.Tx.Save(queues)
}

func (b *broken) Transact(ctx context.Context, batch db.Batch) (db.Outcome, db.Completion, error) {
	outcome, err := db.CarryOut(ctx, b, batch)
	if b.outcome != nil {
		b.outcome(&outcome)
	}
	return outcome, b.commit, err
}

func (b *broken) Prepare(cmd claim.Command) (read func(context.Context) error, release func()) {
	if b.prepare != nil {
		return b.prepare, nil
	}
	return b.Store.Prepare(cmd)
}

func (b *broken) About() db.About {
	about := b.Store.About()
	if b.about != nil {
		b.about(&about)
	}
	return about
}

// endless is a Completion that does not end.
type endless struct{}

func (endless) Done() <-chan struct{}      { return nil }
func (endless) Wait(context.Context) error { return nil }

func (b *broken) Update(ctx context.Context, fn func(db.Tx) error) error {
	if b.transact != nil {
		return b.transact(ctx, fn)
	}
	return dbtest.Update(ctx, b.Store, func(tx db.Tx) error { return fn(brokenTx{tx, b}) })
}

func (b *broken) Beat(ctx context.Context, resumes bool) error {
	if b.beat != nil {
		return b.beat(ctx, resumes)
	}
	return b.Store.Beat(ctx, resumes)
}

func (b *broken) Changes(ctx context.Context, after db.Position, own bool) ([]db.Commit, error) {
	if b.changes != nil {
		return b.changes(ctx, after, own)
	}
	return b.Store.Changes(ctx, after, own)
}

func (b *broken) End(ctx context.Context, own bool) (db.Position, claim.Time, error) {
	position, now, err := b.Store.End(ctx, own)
	if b.end != nil {
		position = b.end(position)
	}
	return position, now, err
}

func (b *broken) Now(ctx context.Context) (claim.Instant, error) {
	at, err := b.Store.Now(ctx)
	if b.now != nil {
		at = b.now(at)
	}
	return at, err
}

func (b *broken) Get(ctx context.Context, id string, limit int) (c claim.Claim, ahead int, now claim.Instant, err error) {
	if b.place != nil && limit > 0 {
		c, ahead, now, err = b.place(ctx, id, limit)
	} else {
		c, ahead, now, err = b.Store.Get(ctx, id, limit)
	}
	if b.claim != nil {
		b.claim(&c)
	}
	return c, ahead, now, err
}

func (b *broken) Holder(ctx context.Context, resource string) (claim.Claim, error) {
	if b.holder != nil {
		return b.holder(ctx, resource)
	}
	return b.Store.Holder(ctx, resource)
}

func (b *broken) Live(ctx context.Context, of db.LiveOf, page db.Page) ([]claim.Claim, error) {
	if of.Held != nil && b.held != nil {
		kind := b.held(*of.Held)
		of.Held = &kind
	}
	if b.page != nil && of.Session == "" {
		b.page(&page)
	}
	claims, err := b.Store.Live(ctx, of, page)
	switch {
	case of.Session != "":
		if b.sessionClaims != nil {
			claims = b.sessionClaims(claims)
		}
	case of.Held == nil && b.live != nil:
		claims = b.live(claims)
	}
	return claims, err
}

func (b *broken) List(ctx context.Context, f db.Filter) ([]claim.Claim, claim.Instant, error) {
	if b.filter != nil {
		f = b.filter(f)
	}
	return b.Store.List(ctx, f)
}

func (b *broken) Queue(ctx context.Context, resource string, limit int) (db.Snapshot, claim.Instant, error) {
	read := b.Store.Queue
	if b.queue != nil {
		read = b.queue
	}
	s, at, err := read(ctx, resource, limit)
	if b.snapshot != nil {
		b.snapshot(&s)
	}
	return s, at, err
}

func (b *broken) Due(ctx context.Context, query db.DueQuery) (db.Overdue, error) {
	if b.due != nil {
		b.due(&query)
	}
	o, err := b.Store.Due(ctx, query)
	if b.overdue != nil {
		b.overdue(query, &o)
	}
	return o, err
}

func (b *broken) WaitsOf(ctx context.Context, owners []claim.OwnerKey, limit int) ([]claim.Claim, error) {
	if b.waitsOf != nil {
		return b.waitsOf(ctx, owners, limit)
	}
	return b.Store.WaitsOf(ctx, owners, limit)
}

func (b *broken) Census(ctx context.Context, keep int) (db.Census, error) {
	if b.cutoff != nil {
		keep = b.cutoff(keep)
	}
	n, err := b.Store.Census(ctx, keep)
	if b.census != nil {
		b.census(&n)
	}
	return n, err
}

func (b *broken) Usage(ctx context.Context, identity string, except []string) (claim.Count, error) {
	if b.except != nil {
		except = b.except(except)
	}
	c, err := b.Store.Usage(ctx, identity, except)
	if b.usage != nil {
		c = b.usage(c, identity)
	}
	return c, err
}

func (b *broken) Remember(ctx context.Context, now claim.Instant) ([]claim.Instant, error) {
	if b.remember != nil {
		return b.remember(now)
	}
	return b.Store.Remember(ctx, now)
}

func (b *broken) Prune(ctx context.Context, before claim.Time, limit int) (int, error) {
	if b.prune != nil {
		before, limit = b.prune(before, limit)
	}
	return b.Store.Prune(ctx, before, limit)
}

func (b *broken) PruneResources(ctx context.Context, after string, before claim.Time, limit int) (string, error) {
	if b.resources != nil {
		return b.resources(after, before, limit)
	}
	return b.Store.PruneResources(ctx, after, before, limit)
}

func (b *broken) Session(ctx context.Context, id string) (claim.Session, claim.Instant, error) {
	s, at, err := b.Store.Session(ctx, id)
	if b.session != nil && err == nil {
		b.session(&s)
	}
	return s, at, err
}

func (b *broken) Sessions(ctx context.Context, after string, limit int) ([]db.SessionCount, claim.Instant, error) {
	if b.sessions != nil {
		after, limit = b.sessions(after, limit)
	}
	page, at, err := b.Store.Sessions(ctx, after, limit)
	for i := range page {
		if b.counted != nil {
			b.counted(&page[i])
		}
	}
	return page, at, err
}

func (b *broken) AttachedTo(ctx context.Context, server string) ([]string, error) {
	if b.attachedTo != nil {
		return b.attachedTo(ctx, server)
	}
	return b.Store.AttachedTo(ctx, server)
}

func (b *broken) DetachSilent(ctx context.Context, silence time.Duration) (int, error) {
	if b.detach != nil {
		return b.detach(ctx, silence)
	}
	return b.Store.DetachSilent(ctx, silence)
}

func (b *broken) Register(ctx context.Context, name string) error {
	if b.register != nil {
		return b.register(ctx, name)
	}
	return b.Store.Register(ctx, name)
}

func (b *broken) Announce(ctx context.Context, m db.Member, leaves bool) error {
	if b.announce != nil {
		b.announce(&m, &leaves)
	}
	return b.Store.Announce(ctx, m, leaves)
}

func (b *broken) Members(ctx context.Context) ([]db.Member, claim.Instant, error) {
	members, now, err := b.Store.Members(ctx)
	if b.members != nil {
		members = b.members(members)
	}
	return members, now, err
}

func (b *broken) Resources(ctx context.Context, prefix, after string, limit int) ([]db.Resource, string, claim.Instant, error) {
	if b.after != nil {
		after = b.after(after)
	}
	list, next, now, err := b.Store.Resources(ctx, prefix, after, limit)
	if b.info != nil {
		list, next = b.info(list, next)
	}
	return list, next, now, err
}

func (b *broken) Contended(ctx context.Context, prefix string, after *db.Contention, limit int) ([]db.Resource, claim.Instant, error) {
	list, now, err := b.Store.Contended(ctx, prefix, after, limit)
	if b.contended != nil {
		list, err = b.contended(prefix, after, list, err)
	}
	return list, now, err
}

// claims calls fn for a copy of each claim that is about to be saved; answers stay unchanged.
func claims(fn func(c *claim.Claim, made bool)) func(db.Tx, *claim.Queues) error {
	return func(tx db.Tx, queues *claim.Queues) error {
		changes, made := queues.Transitions(), map[string]bool{}
		for i, change := range changes {
			saved := *change.After
			made[saved.ID] = made[saved.ID] || change.Before == nil
			fn(&saved, made[saved.ID])
			changes[i].After = &saved
		}
		return tx.Save(queues)
	}
}

// rows calls fn for the row of each resource that was read.
func rows(fn func(*claim.Row)) func(*broken) {
	return func(b *broken) {
		b.load = func(tx db.Tx, wanted db.Wanted) (*claim.Queues, error) {
			queues, err := tx.Load(wanted)
			for _, r := range wanted.Resources {
				if err != nil {
					break
				}
				row := queues.Resource(r).Stored()
				if fn(&row); row != queues.Resource(r).Stored() {
					queues.Put(claim.NewQueue(row, 0, firstOnly(b.Store)))
				}
			}
			return queues, err
		}
	}
}

// fault is one thing that may be wrong with a store, and the cases that must notice it.
type fault struct {
	name  string
	sets  func(b *broken)
	cases []string
}

// TestFaults: the first case beside each fault notices it. TestFaultsSoak shows the same of all others.
func TestFaults(t *testing.T) {
	notice(t, func(cases []string) []string { return cases[:1] })
}

// notice checks that some of the cases beside each fault notice it.
func notice(t *testing.T, some func(cases []string) []string) {
	cases := map[string]dbtest.Case{}
	for _, c := range dbtest.Cases() {
		cases[c.Name] = c
	}
	for _, f := range faults {
		for _, name := range some(f.cases) {
			t.Run(f.name+"/"+name, func(t *testing.T) {
				t.Parallel()
				c, ok := cases[name]
				if !ok {
					t.Fatal("unknown case")
				}
				synctest.Test(t, func(t *testing.T) { mustFail(t, f, c) })
			})
		}
	}
}

func mustFail(t *testing.T, f fault, c dbtest.Case) {
	failure := record(t, c, opener(func(s db.Store) db.Store {
		b := &broken{Store: s}
		f.sets(b)
		return b
	}))
	if failure == "" {
		t.Fatal("the suite did not notice")
	}
	t.Log(failure)
}

// TestEachCaseCanFail wants a fault for each case.
func TestEachCaseCanFail(t *testing.T) {
	var noticed []string
	for _, f := range faults {
		noticed = append(noticed, f.cases...)
	}
	for _, c := range dbtest.Cases() {
		if !slices.Contains(noticed, c.Name) {
			t.Errorf("no fault is known that %s would notice", c.Name)
		}
	}
}

var errNoise = errors.New("a fault")

const lots = math.MaxInt32
