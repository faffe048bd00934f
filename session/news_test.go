package session_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/locket-service/locket/claim"
	"github.com/locket-service/locket/committer"
	"github.com/locket-service/locket/committer/committertest"
	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/session"
	"github.com/locket-service/locket/watch"
)

// feed is that of several servers, in memory.
type feed struct {
	mu      sync.Mutex
	commits []db.Commit
}

// server is one of several on a store.
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
	defer s.mu.Unlock()
	for _, c := range s.commits {
		if c.N > after[c.Server] && (own || c.Server != s.name) {
			c.Own = c.Server == s.name
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

// startServerOn is startServer with another view of the store for the sessions.
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

// do has a session do something, and returns what it then hears.
func do(t *testing.T, a *session.Attached, cmd session.Command) string {
	t.Helper()
	if !a.Room(t.Context()) {
		t.Fatal("the session has ended")
	}
	a.Do(cmd)
	synctest.Wait()
	return heard(t, a)
}

// heard returns what a session has heard, without waiting for anything.
func heard(t *testing.T, a *session.Attached) string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return tell(a.Next(ctx))
}

// TestNewsOnce: a session locks a resource, unlocks it, and locks it again behind another one. What the first
// two did comes once more from the feed while the third is carried out: to the server that committed it, because
// somebody watches there, or to the server that the session has moved to. Nothing is told again.
func TestNewsOnce(t *testing.T) {
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
				time.Sleep(5 * time.Second) // longer than the feed is left alone
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

// TestOpenAgainBehindCommands: a command of the older stream that is carried out late, after the session was opened
// again, is part of what the session then has: no second claim is made beside its claim.
func TestOpenAgainBehindCommands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := committertest.New(t, 1)
		m := session.New(w.Committer, w.Hub, w.Store, session.Config{}, w.Registry)
		committertest.Run(t, w.Committer)
		committertest.Run(t, m)
		open(t, m, "first") // this server vouches from now on
		old := open(t, m, "s")
		turn := make(chan struct{})
		w.Store.Set(func(s *committertest.Store) {
			s.OnTransact = func(ctx context.Context, fn func(db.Tx) error) error {
				<-turn
				return s.Store.Transact(ctx, fn)
			}
		})
		for _, resource := range []string{"under way", "k", "l"} { // new work, which waits for what else there is
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
		claims, err := w.Store.SessionClaims(t.Context(), "s")
		committertest.Check(t, err)
		if len(claims) != 3 {
			t.Errorf("the session has %d claims: %+v", len(claims), claims)
		}
	})
}
