package session_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/rules/access"
	"github.com/locket-service/locket/internal/rules/claim"
	"github.com/locket-service/locket/internal/service/committer"
	"github.com/locket-service/locket/internal/service/committer/committertest"
	"github.com/locket-service/locket/internal/service/session"
	"github.com/locket-service/locket/internal/service/watch"
)

// feed is a feed of several servers, in memory.
type feed struct {
	mu      sync.Mutex
	commits []db.Commit
	pause   time.Duration // before a read
}

// server is one of several servers on one store.
type server struct {
	*feed
	name     string
	hub      *watch.Hub
	queues   *committer.Committer
	sessions *session.Manager
}

// Committed implements committer.Listener.
func (s *server) Committed(now claim.Instant, changes []claim.Transition) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := db.Commit{Server: s.name, N: s.end()[s.name] + 1, At: now.Wall, Changes: changes}
	s.commits = append(s.commits, c)
}

// Missed implements committer.Listener.
func (s *server) Missed() {}

func (s *server) end() db.Position {
	end := make(db.Position)
	for _, c := range s.commits {
		end[c.Server] = c.N
	}
	return end
}

// End implements db.Feed.
func (s *server) End(context.Context, bool) (db.Position, claim.Time, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.end(), claim.Time(time.Now().UnixMicro()), nil
}

// Changes implements db.Feed.
func (s *server) Changes(_ context.Context, after db.Position, own bool) (commits []db.Commit, err error) {
	s.mu.Lock()
	pause := s.pause
	s.mu.Unlock()
	time.Sleep(pause)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.commits {
		if c.N > after[c.Server] && (own || c.Server != s.name) {
			if c.Server != s.name {
				c.Others = c.Changes
			}
			commits = append(commits, c)
		}
	}
	slices.SortStableFunc(commits, func(a, b db.Commit) int { return strings.Compare(a.Server, b.Server) })
	return commits, nil
}

// startServer starts a server on the store of a world.
func startServer(t *testing.T, w *committertest.World, f *feed, name string) *server {
	t.Helper()
	return startServerOn(t, w, w.Store, f, name)
}

// startServerOn is startServer with another store for the sessions.
func startServerOn(t *testing.T, w *committertest.World, store session.Store, f *feed, name string) *server {
	t.Helper()
	registry := prometheus.NewRegistry()
	s := &server{feed: f, name: name}
	s.hub = watch.NewHub(w.Store, registry)
	s.queues = committer.New(w.Store, committer.Config{
		Timeout: committertest.Timeout, Log: w.Log, Metrics: committer.NewMetrics(registry), Listeners: []committer.Listener{s.hub, s},
	})
	s.sessions = session.New(s.queues, s.hub, store, session.Config{}, registry)
	committertest.Run(t, s.queues)
	committertest.Run(t, s.sessions)
	committertest.Run(t, watch.NewFollower(s, s.hub, w.Log))
	return s
}

// servers runs a test with two servers on one store, and a fake clock.
func servers(t *testing.T, test func(t *testing.T, w *committertest.World, a, b *server)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w, f := committertest.New(t, 0), &feed{}
		test(t, w, startServer(t, w, f, "a"), startServer(t, w, f, "b"))
	})
}

// do runs a command of a session, and returns the events up to its answer.
func do(t *testing.T, a *session.Attached, cmd session.Command) string {
	t.Helper()
	if !a.Room(t.Context()) {
		t.Fatal("the session has ended")
	}
	a.Do(cmd)
	synctest.Wait()
	return heard(t, a)
}

// heard returns the events of a session so far, without waiting for more.
func heard(t *testing.T, a *session.Attached) string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return tell(a.Next(ctx))
}

// TestEventsOnce: a session locks a resource, unlocks it, and locks it again behind another one. The changes of the
// first two commands come again from the feed while the third command runs: at the server that committed them,
// because somebody watches there, or at the server that the session has moved to. No change is reported twice.
func TestEventsOnce(t *testing.T) {
	for name, test := range map[string]struct{ watched, moves, apart bool }{
		"nobody watches":               {},
		"a watch":                      {watched: true},
		"a watch, and a second server": {watched: true, apart: true},
		"the session moves":            {moves: true},
		"the session moves, a watch":   {watched: true, moves: true},
	} {
		t.Run(name, func(t *testing.T) {
			servers(t, func(t *testing.T, w *committertest.World, a, b *server) {
				home, second := a, a
				if test.apart {
					second = b
				}
				if test.moves {
					home = b
				}
				if test.watched {
					watcher, err := home.hub.Watch(t.Context(), nil)
					committertest.Check(t, err)
					defer watcher.Close()
				}
				time.Sleep(3 * time.Second) // the feed has been read
				other := open(t, second.sessions, "other")
				s := open(t, a.sessions, "s")
				do(t, s, session.Lock{Sequence: 2, Resource: "k"})
				do(t, s, session.Unlock{Sequence: 3, Resource: "k"})
				do(t, other, session.Lock{Sequence: 2, Resource: "k"})
				if test.moves {
					s = open(t, b.sessions, "s")
				}
				heard(t, s)
				goOn := w.Store.Hold()
				do(t, s, session.Lock{Sequence: 4, Resource: "k"})
				time.Sleep(5 * time.Second) // longer than the pause of an idle follower
				expect(t, heard(t, s), "")
				goOn()
				synctest.Wait()
				expect(t, heard(t, s), "k: 0 to 1 (waiting, )")
				expect(t, do(t, other, session.Unlock{Sequence: 3, Resource: "k"}), "k: 2 to 0 (released, )")
				time.Sleep(5 * time.Second)
				expect(t, heard(t, s), "k: 1 to 2 (active, )")
				expect(t, do(t, s, session.Unlock{Sequence: 5, Resource: "k"}), "k: 2 to 0 (released, )")
				time.Sleep(5 * time.Second)
				expect(t, heard(t, s), "")
			})
		})
	}
}

func expect(t *testing.T, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("heard %q, want %q", got, want)
	}
}

// TestOpenAgainBehindCommands: a command of the old stream that commits after the session was opened again is part of
// the session's state: no second claim is made beside its claim.
func TestOpenAgainBehindCommands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := committertest.New(t, 1)
		m := manage(t, w, w.Store)
		open(t, m, "first") // this server is registered from now on
		old := open(t, m, "s")
		turn := make(chan struct{})
		w.Store.Set(func(s *committertest.Store) {
			s.OnTransact = func(ctx context.Context, fn func(db.Tx) error) error {
				<-turn
				return s.Update(ctx, fn)
			}
		})
		for _, resource := range []string{"under way", "k", "l"} { // commands that wait for the commit above
			lock(t, old, resource)
		}
		synctest.Wait()
		opened := make(chan *session.Attached)
		go func() { opened <- open(t, m, "s") }()
		synctest.Wait()
		turn <- struct{}{}
		turn <- struct{}{}
		synctest.Wait()
		var again *session.Attached
		select {
		case again = <-opened:
			lock(t, again, "k")
			close(turn)
		default:
			close(turn)
			again = <-opened
			lock(t, again, "k")
		}
		synctest.Wait()
		had := strings.Split(heard(t, again), "; ") // in any order, and then the answer
		slices.Sort(had)
		expect(t, strings.Join(had, "; "), "k: 2 to 2 (active, ); k: 2 to 2 (active, ); l: 2 to 2 (active, ); under way: 2 to 2 (active, )")
		claims, err := w.Store.Live(t.Context(), db.LiveOf{Session: "s"}, db.Page{})
		committertest.Check(t, err)
		if len(claims) != 3 {
			t.Errorf("the session has %d claims: %+v", len(claims), claims)
		}
	})
}

// TestOpenAgainBehindMove: a command begins at a server while a session comes back to it from another one. It makes no
// second claim beside the one made there.
func TestOpenAgainBehindMove(t *testing.T) {
	bubble(t, session.Config{}, func(t *testing.T, w *committertest.World, m *session.Manager) {
		old := open(t, m, "s")
		secret := sha256.Sum256([]byte("s"))
		committertest.Transact(t, w.Store.Store, claim.Attach{Session: claim.Session{ID: "s", Secret: secret[:]}, Server: "other", Resume: true})
		committertest.Transact(t, w.Store.Store, claim.Create{ID: "there", Resource: "k", Session: "s", Server: "other"})
		turn := make(chan struct{})
		w.Store.Set(func(s *committertest.Store) {
			s.OnTransact = func(ctx context.Context, fn func(db.Tx) error) error {
				<-turn
				return s.Update(ctx, fn)
			}
		})
		opened := make(chan *session.Attached)
		go func() { opened <- open(t, m, "s") }()
		synctest.Wait() // it is about to be attached
		lock(t, old, "k")
		synctest.Wait()
		close(turn)
		<-opened
		synctest.Wait()
		claims, err := w.Store.Live(t.Context(), db.LiveOf{Session: "s"}, db.Page{})
		committertest.Check(t, err)
		if len(claims) != 1 {
			t.Errorf("the session has %d claims: %+v", len(claims), claims)
		}
	})
}

// TestDoneBehindCommitThatHung: the outcome of an UNLOCK_ALL, or of a CLOSE, is unknown, and it is committed after
// the session has read its claims. It is answered after the ends of its claims were reported.
func TestDoneBehindCommitThatHung(t *testing.T) {
	for name, test := range map[string]struct {
		cmd  session.Command
		ends claim.EndSession
	}{
		"unlock-all": {session.UnlockAll{Sequence: 3}, claim.EndSession{Keep: true}},
		"close":      {session.Close{Sequence: 3}, claim.EndSession{}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, session.Config{}, func(t *testing.T, w *committertest.World, m *session.Manager) {
				a := open(t, m, "a")
				do(t, a, session.Lock{Sequence: 2, Resource: "k"})
				w.Store.Set(func(s *committertest.Store) {
					s.OnTransact = func(context.Context, func(db.Tx) error) error { return db.ErrOutcomeUnknown }
				})
				expect(t, do(t, a, test.cmd), "")
				w.Store.Set(func(s *committertest.Store) { s.OnTransact = nil })
				test.ends.ID, test.ends.Active, test.ends.Waiting = "a", claim.Released, claim.Withdrawn
				committertest.Transact(t, w.Store.Store, test.ends)
				var told []session.Event
				for len(told) == 0 || told[len(told)-1].Sequence != 3 {
					told = append(told, a.Next(t.Context())...)
				}
				expect(t, tell(told), "k: 2 to 0 (released, )")
				if !told[len(told)-1].Done {
					t.Errorf("the answer is %+v", told[len(told)-1])
				}
			})
		})
	}
}

// TestDoneBehindEndElsewhere: another server has ended a session, and this one has not heard of it. The ends of its claims are reported
// before a CLOSE or UNLOCK_ALL is answered.
func TestDoneBehindEndElsewhere(t *testing.T) {
	for name, cmd := range map[string]session.Command{"unlock-all": session.UnlockAll{Sequence: 3}, "close": session.Close{Sequence: 3}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, session.Config{}, func(t *testing.T, w *committertest.World, m *session.Manager) {
				a := open(t, m, "a")
				do(t, a, session.Lock{Sequence: 2, Resource: "k"})
				_, unlocks := cmd.(session.UnlockAll)
				committertest.Transact(t, w.Store.Store, claim.EndSession{ID: "a", Active: claim.Expired, Waiting: claim.Aborted, Keep: unlocks})
				if a.Room(t.Context()) {
					a.Do(cmd)
				}
				var told []session.Event
				for len(told) == 0 || told[len(told)-1].Sequence != 3 {
					told = append(told, a.Next(t.Context())...)
				}
				expect(t, tell(told), "k: 2 to 0 (expired, )")
			})
		})
	}
}

// made makes a claim of a session without this server, which does not learn of it.
func made(t *testing.T, w *committertest.World, id, resource string) claim.Transition {
	t.Helper()
	row, _, err := w.Store.Session(t.Context(), "a")
	committertest.Check(t, err)
	committertest.Transact(t, w.Store.Store, claim.Create{ID: id, Resource: resource, Session: "a", Server: row.Server})
	c, _, _, err := w.Store.Get(t.Context(), id, 0)
	committertest.Check(t, err)
	return claim.Transition{After: &c}
}

// TestClaimNotKnown: a claim that the session does not know, because the outcome of its commit was unknown, is found
// when a change of it arrives. A claim that has ended by then is not reported.
func TestClaimNotKnown(t *testing.T) {
	bubble(t, session.Config{}, func(t *testing.T, w *committertest.World, m *session.Manager) {
		a := open(t, m, "a")
		heard(t, a)
		k, l := made(t, w, "1", "k"), made(t, w, "2", "l")
		committertest.Transact(t, w.Store.Store, claim.End{ID: "2"})
		for range 3 {
			a.Changed(k)
			a.Changed(l)
			synctest.Wait()
		}
		expect(t, heard(t, a), "k: 0 to 2 (active, )")
	})
}

// TestEndInAGap: if the change that ends a waiting claim does not arrive, the end is reported when the claims are read.
func TestEndInAGap(t *testing.T) {
	bubble(t, session.Config{}, func(t *testing.T, w *committertest.World, m *session.Manager) {
		do(t, open(t, m, "b"), session.Lock{Sequence: 2, Resource: "k"})
		a := open(t, m, "a")
		expect(t, do(t, a, session.Lock{Sequence: 2, Resource: "k"}), "k: 0 to 1 (waiting, )")
		waits, err := w.Store.WaitsOf(t.Context(), []claim.OwnerKey{{Session: "a"}}, 10)
		committertest.Check(t, err)
		committertest.Transact(t, w.Store.Store, claim.End{ID: waits[0].ID, Reason: "why"})
		a.Missed()
		synctest.Wait()
		expect(t, heard(t, a), "k: 1 to 0 (withdrawn, why)")
	})
}

// TestUnlockOfWhatIsGone: a claim has ended without an event, and is no longer in the history. An UNLOCK of it reports
// its end with an unknown status. So does a LOCK, which then makes another claim.
func TestUnlockOfWhatIsGone(t *testing.T) {
	bubble(t, session.Config{}, func(t *testing.T, w *committertest.World, m *session.Manager) {
		a := open(t, m, "a")
		do(t, a, session.Lock{Sequence: 2, Resource: "k"})
		do(t, a, session.Lock{Sequence: 3, Resource: "l"})
		claims, err := w.Store.Live(t.Context(), db.LiveOf{Session: "a"}, db.Page{})
		committertest.Check(t, err)
		for _, c := range claims {
			committertest.Transact(t, w.Store.Store, claim.End{ID: c.ID})
		}
		time.Sleep(time.Second)
		pruned, err := w.Store.Prune(t.Context(), claim.Time(time.Now().UnixMicro()), 10)
		committertest.Check(t, err)
		if pruned != 2 {
			t.Fatalf("pruned %d claims", pruned)
		}
		expect(t, do(t, a, session.Unlock{Sequence: 4, Resource: "k"}), "k: 2 to 0 (status 0, ); k: 0 to 0 (status 0, )")
		expect(t, do(t, a, session.Lock{Sequence: 5, Resource: "l"}), "l: 2 to 0 (status 0, ); l: 0 to 2 (active, )")
	})
}

// fewGets is a store that fails when a claim has been read often.
type fewGets struct {
	*committertest.Store
	left atomic.Int64
}

func (s *fewGets) Get(ctx context.Context, id string, limit int) (claim.Claim, int, claim.Instant, error) {
	if s.left.Add(-1) < 0 {
		return claim.Claim{}, 0, claim.Instant{}, errors.New("it is asked for again and again")
	}
	return s.Store.Get(ctx, id, limit)
}

// TestClaimsOfNobody: a session that was made while authentication was off, and is resumed by an identity that may not
// see its claims, still has them.
func TestClaimsOfNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := committertest.New(t, 0)
		store := &fewGets{Store: w.Store}
		store.left.Store(10)
		m := manage(t, w, store)
		b := open(t, m, "b")
		do(t, b, session.Lock{Sequence: 2, Resource: "l"})
		a := open(t, m, "a")
		do(t, a, session.Lock{Sequence: 2, Resource: "k"})
		do(t, a, session.Lock{Sequence: 3, Resource: "l"})
		caller := access.Caller{Identity: access.Identity{Name: "me"}, Rules: access.NewRules(nil)}
		ctx := access.WithCaller(t.Context(), func() access.Caller { return caller })
		again, err := m.Open(ctx, session.Open{ID: "a", Secret: "s", TTL: time.Minute, Sequence: 1})
		committertest.Check(t, err)
		defer again.Detach()
		heard(t, again)
		expect(t, do(t, again, session.Lock{Sequence: 2, Resource: "k"}), "k: 2 to 2 (active, )")
		expect(t, do(t, again, session.Lock{Sequence: 3, Resource: "l"}), "l: 1 to 1 (waiting, )")
		expect(t, do(t, again, session.Unlock{Sequence: 4, Resource: "k"}), "k: 2 to 0 (released, )")
		expect(t, do(t, again, session.Unlock{Sequence: 5, Resource: "l"}), "l: 1 to 0 (withdrawn, )")
	})
}

// Arrived implements db.Feed.
func (*server) Arrived() <-chan struct{} { return nil }
