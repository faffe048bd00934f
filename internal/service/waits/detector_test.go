package waits_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/db/dbtest"
	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/internal/rules/claim"
	"github.com/locket-service/locket/internal/service/committer"
	"github.com/locket-service/locket/internal/service/committer/committertest"
	"github.com/locket-service/locket/internal/service/waits"
	"github.com/locket-service/locket/tests/harness"
)

func TestMain(m *testing.M) {
	code := m.Run()
	fixtures.Shutdown()
	os.Exit(code)
}

// server makes claims, and ends deadlocks.
type server struct {
	queues *committer.Committer
	store  db.Store
	reads  counted
	// metrics is the detector's registry.
	metrics  *prometheus.Registry
	detector *waits.Detector
}

// counted is a store that counts what a detector reads, and calls before, if it is set, before each read.
type counted struct {
	db.Reader
	queues, waits atomic.Int64
	before        atomic.Pointer[func() error]
}

func (s *counted) read(n *atomic.Int64) error {
	n.Add(1)
	if before := s.before.Load(); before != nil {
		return (*before)()
	}
	return nil
}

func (s *counted) Queue(ctx context.Context, resource string, limit int) (db.Snapshot, claim.Instant, error) {
	if err := s.read(&s.queues); err != nil {
		return db.Snapshot{}, claim.Instant{}, err
	}
	return s.Reader.Queue(ctx, resource, limit)
}

func (s *counted) WaitsOf(ctx context.Context, owners []claim.OwnerKey, limit int) ([]claim.Claim, error) {
	if err := s.read(&s.waits); err != nil {
		return nil, err
	}
	return s.Reader.WaitsOf(ctx, owners, limit)
}

// serve runs a detector beside a committer. do, unless it is nil, replaces the committer for the detector.
func serve(t testing.TB, queues *committer.Committer, store db.Store, do func(context.Context, claim.Command) (claim.Claim, error)) *server {
	t.Helper()
	s := &server{queues: queues, store: store, metrics: prometheus.NewRegistry()}
	s.reads.Reader = store
	if do == nil {
		do = s.do
	}
	d := waits.NewDetector(&s.reads, do, slog.New(slog.DiscardHandler), s.metrics)
	s.detector = d
	queues.Listen(d)
	committertest.Run(t, d)
	return s
}

func (s *server) do(ctx context.Context, cmd claim.Command) (claim.Claim, error) {
	result, err := s.queues.Do(ctx, cmd)
	return result.Claim, err
}

// bubble runs a test with a server and a fake clock.
func bubble(t *testing.T, test func(t *testing.T, s *server)) {
	t.Helper()
	committertest.Bubble(t, func(t *testing.T, w *committertest.World) { test(t, serve(t, w.Committer, w.Store, nil)) })
}

func create(owner, resource string) claim.Create {
	return claim.Create{ID: owner + "-" + resource, Owner: owner, Resource: resource, TTL: time.Hour}
}

// must carries out commands, one after the other.
func (s *server) must(t testing.TB, cmds ...claim.Command) {
	t.Helper()
	for _, cmd := range cmds {
		if _, err := s.do(t.Context(), cmd); err != nil {
			t.Fatalf("%+v: %v", cmd, err)
		}
		time.Sleep(time.Microsecond) // real time: none, it is for bubbles: each is younger than those before it
	}
}

func (s *server) get(t testing.TB, id string) claim.Claim {
	t.Helper()
	c, _, _, err := s.store.Get(t.Context(), id, 0)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// statusesAre checks the statuses of claims.
func (s *server) statusesAre(t testing.TB, want map[string]claim.Status) {
	t.Helper()
	for id, status := range want {
		if got := s.get(t, id).Status; got != status {
			t.Errorf("%s is %s, and must be %s", id, got, status)
		}
	}
}

// circle makes two holders that wait for each other. The claim "b-1" is the youngest.
func (s *server) circle(t testing.TB) {
	t.Helper()
	s.must(t, create("a", "1"), create("b", "2"), create("a", "2"), create("b", "1"))
}

// contract is how soon a deadlock is ended.
const contract = 2 * time.Second

// TestDeadlockIsEnded: of claims that wait for each other the youngest is aborted, within two seconds, and the others stay. Its
// reason has the members, each waiting for the next.
func TestDeadlockIsEnded(t *testing.T) {
	bubble(t, func(t *testing.T, s *server) {
		s.must(t, create("a", "1"), create("b", "2"), create("c", "3"), create("b", "3"), create("c", "1"), create("other", "1"), create("a", "2"), create("late", "2"))
		time.Sleep(contract)
		s.statusesAre(t, map[string]claim.Status{
			"a-1": claim.Active, "b-3": claim.Waiting, "c-1": claim.Waiting, "a-2": claim.Aborted, "other-1": claim.Waiting, "late-2": claim.Waiting,
		})
		c := s.get(t, "a-2")
		if got := claim.Deadlock(c.Status, c.Reason); !slices.Equal(got, []string{"a-2", "b-3", "c-1"}) {
			t.Errorf("the members are %q", got)
		}
		s.must(t, claim.End{ID: "a-1"}) // with its owner notified
		s.statusesAre(t, map[string]claim.Status{"c-1": claim.Active})
		s.must(t, claim.End{ID: "c-1"}, claim.End{ID: "c-3"})
		s.statusesAre(t, map[string]claim.Status{"b-3": claim.Active})
	})
}

// TestOneTransaction: to begin to wait costs one transaction and no read, and so does what is granted within a second.
func TestOneTransaction(t *testing.T) {
	committertest.Bubble(t, func(t *testing.T, w *committertest.World) {
		s := serve(t, w.Committer, w.Store, nil)
		time.Sleep(time.Second) // until it has looked for claims of other servers
		s.must(t, create("a", "1"), create("b", "2"))
		before, _ := w.Batches(t)
		s.must(t, create("a", "2"))
		if after, _ := w.Batches(t); after != before+1 {
			t.Errorf("%d transactions", after-before)
		}
		time.Sleep(900 * time.Millisecond)
		s.must(t, claim.End{ID: "b-2"})
		time.Sleep(10 * time.Second)
		if queues, waits := s.reads.queues.Load(), s.reads.waits.Load(); queues+waits > 0 {
			t.Errorf("%d reads of queues, %d of owners", queues, waits)
		}
	})
}

// TestExaminedTogether: many claims that wait for one resource cost one read of its queue, and few of the owners before them.
func TestExaminedTogether(t *testing.T) {
	bubble(t, func(t *testing.T, s *server) {
		s.must(t, create("holder", "r"))
		var all sync.WaitGroup
		for i := range 1000 {
			all.Go(func() {
				if _, err := s.do(t.Context(), create(fmt.Sprint(i), "r")); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		time.Sleep(20 * time.Second)
		if queues, waits := s.reads.queues.Load(), s.reads.waits.Load(); queues != 1 || waits > 40 {
			t.Errorf("%d reads of queues, %d of owners", queues, waits)
		}
	})
}

// TestTwoRequestsOfOneBatch: of two requests that are committed together and cause a deadlock exactly one is aborted.
func TestTwoRequestsOfOneBatch(t *testing.T) {
	committertest.Bubble(t, func(t *testing.T, w *committertest.World) {
		s := serve(t, w.Committer, w.Store, nil)
		s.must(t, create("a", "1"), create("b", "2"))
		goOn := w.Store.Hold()
		replies := w.Send(t.Context(), create("x", "y"), create("a", "2"), create("b", "1"))
		goOn()
		for _, r := range replies {
			committertest.Check(t, committertest.Receive(t, r).Err)
		}
		time.Sleep(contract)
		if a, b := s.get(t, "a-2").Status, s.get(t, "b-1").Status; a == b || a != claim.Aborted && b != claim.Aborted {
			t.Errorf("a's is %s, and b's %s", a, b)
		}
	})
}

// TestAllowed: a claim that allows deadlocks is not aborted as the youngest, nor is another one for it. Where it is
// older, the youngest is. A gauge has the deadlocks that last.
func TestAllowed(t *testing.T) {
	for _, allows := range [][2]bool{{false, true}, {true, true}, {true, false}} {
		bubble(t, func(t *testing.T, s *server) {
			first, last := create("a", "2"), create("b", "1")
			first.AllowDeadlock, last.AllowDeadlock = allows[0], allows[1]
			s.must(t, create("a", "1"), create("b", "2"), first, last)
			time.Sleep(contract)
			want, allowed := claim.Waiting, 1.0
			if !allows[1] {
				want, allowed = claim.Aborted, 0
			}
			s.statusesAre(t, map[string]claim.Status{"a-2": claim.Waiting, "b-1": want})
			s.gaugeIs(t, allowed)
			if got := s.detector.Lasting(); (allowed > 0) != slices.Equal(got, []string{"1", "2"}) {
				t.Errorf("resources in lasting deadlocks: %q", got)
			}
			time.Sleep(surveyed)
			s.gaugeIs(t, allowed)
			s.must(t, claim.End{ID: "a-2"})
			time.Sleep(3 * contract)
			if got := s.detector.Lasting(); len(got) > 0 {
				t.Errorf("the deadlock of %q is over", got)
			}
			s.gaugeIs(t, 0)
		})
	}
}

// gaugeIs checks the number of deadlocks that are allowed.
func (s *server) gaugeIs(t testing.TB, want float64) {
	t.Helper()
	families, err := s.metrics.Gather()
	committertest.Check(t, err)
	at := slices.IndexFunc(families, func(f *dto.MetricFamily) bool { return f.GetName() == "locket_deadlocks_allowed" })
	if got := families[at].GetMetric()[0].GetGauge().GetValue(); got != want {
		t.Errorf("%v deadlocks are allowed, want %v", got, want)
	}
}

// TestTwoDeadlocks: a claim that is in two deadlocks is aborted if it is the youngest of one of them, and nobody else if that
// ends both.
func TestTwoDeadlocks(t *testing.T) {
	shared := func(owner string) claim.Create {
		c := create(owner, "s")
		c.Units = claim.Shared
		return c
	}
	bubble(t, func(t *testing.T, s *server) {
		s.must(t, shared("a"), shared("b"), create("c", "1"), create("a", "1"), create("b", "1"), create("c", "s"))
		time.Sleep(surveyed)
		s.statusesAre(t, map[string]claim.Status{"a-1": claim.Waiting, "b-1": claim.Waiting, "c-s": claim.Aborted})
	})
	bubble(t, func(t *testing.T, s *server) {
		allows := create("b", "1")
		allows.AllowDeadlock = true
		s.must(t, shared("a"), shared("b"), create("c", "1"), create("a", "1"), create("c", "s"), allows)
		time.Sleep(surveyed)
		s.statusesAre(t, map[string]claim.Status{"a-1": claim.Waiting, "c-s": claim.Aborted, "b-1": claim.Waiting})
	})
}

// surveyed is how soon claims are found that no server has examined.
const surveyed = 32 * time.Second

// TestOneOwner: owners that wait for themselves, and claims without an owner, are in no deadlock.
func TestOneOwner(t *testing.T) {
	bubble(t, func(t *testing.T, s *server) {
		second := create("a", "1")
		second.ID = "again"
		nobody := claim.Create{ID: "nobody's", Resource: "1", TTL: time.Hour}
		s.must(t, create("a", "1"), create("a", "2"), second, nobody, claim.Create{ID: "nobody's, too", Resource: "2", TTL: time.Hour})
		time.Sleep(surveyed)
		s.statusesAre(t, map[string]claim.Status{"again": claim.Waiting, "nobody's": claim.Waiting, "nobody's, too": claim.Waiting})
	})
}

// TestDeadlockThatIsOver: no claim is aborted for a deadlock that dissolves during the search, after any of its
// reads.
func TestDeadlockThatIsOver(t *testing.T) {
	for _, end := range []string{"a-1", "b-2", "a-2"} {
		for reads := range 6 { // of the searches from both claims; 5: when these are over
			bubble(t, func(t *testing.T, s *server) {
				time.Sleep(time.Second) // until it has looked for claims of other servers
				s.circle(t)
				var left atomic.Int64
				left.Store(int64(reads))
				s.reads.before.Store(new(func() error {
					if left.Add(-1) == -1 {
						_, err := s.do(t.Context(), claim.End{ID: end})
						return err
					}
					return nil
				}))
				time.Sleep(contract)
				if got := s.get(t, "b-1").Status; (got == claim.Aborted) != (reads == 5) {
					t.Errorf("%s ends after read %d, and b-1 is %s", end, reads, got)
				}
			})
		}
	}
}

// TestEndedElsewhere: a claim that another server has ended is examined once, although its owner and the others would be in a
// deadlock with it.
func TestEndedElsewhere(t *testing.T) {
	bubble(t, func(t *testing.T, s *server) {
		time.Sleep(time.Second) // until it has looked for claims of other servers
		s.circle(t)
		dbtest.Do(t, s.store, claim.End{ID: "b-1"})
		time.Sleep(20 * time.Second)
		s.statusesAre(t, map[string]claim.Status{"a-2": claim.Waiting, "b-1": claim.Withdrawn})
		if queues := s.reads.queues.Load(); queues != 3 { // two of the first search, one of the second
			t.Errorf("%d reads of queues", queues)
		}
	})
}

// TestDatabaseIsAway: a deadlock is ended although the database refuses to be read, or to commit, when it is found.
func TestDatabaseIsAway(t *testing.T) {
	committertest.Bubble(t, func(t *testing.T, w *committertest.World) {
		var refused atomic.Int64
		var s *server
		s = serve(t, w.Committer, w.Store, func(ctx context.Context, cmd claim.Command) (claim.Claim, error) {
			if refused.Add(1) < 4 {
				return claim.Claim{}, db.ErrRowLocked
			}
			return s.do(ctx, cmd)
		})
		away := time.Now().Add(3 * time.Second)
		s.reads.before.Store(new(func() error {
			if time.Now().Before(away) {
				return db.ErrUnavailable
			}
			return nil
		}))
		s.circle(t)
		time.Sleep(5 * time.Second)
		s.statusesAre(t, map[string]claim.Status{"a-2": claim.Waiting, "b-1": claim.Aborted})
	})
}

// TestOverBehindRefusals: nobody is aborted when the deadlock has ended while the database refused to end it.
func TestOverBehindRefusals(t *testing.T) {
	committertest.Bubble(t, func(t *testing.T, w *committertest.World) {
		var s *server
		refused := false
		s = serve(t, w.Committer, w.Store, func(ctx context.Context, cmd claim.Command) (claim.Claim, error) {
			if refused {
				return s.do(ctx, cmd)
			}
			refused = true
			_, err := s.do(ctx, claim.End{ID: "a-2"})
			return claim.Claim{}, errors.Join(err, db.ErrRowLocked)
		})
		s.circle(t)
		time.Sleep(5 * time.Second)
		if s.statusesAre(t, map[string]claim.Status{"b-1": claim.Waiting}); !refused {
			t.Error("nothing was found")
		}
	})
}

// TestSurvey: claims made by a server that has failed are examined, for any kind of holder, including one of several
// shared holders. So are claims from a commit with an unknown outcome.
func TestSurvey(t *testing.T) {
	for name, circle := range map[string]func(t *testing.T, w *committertest.World){
		"exclusive": func(t *testing.T, w *committertest.World) {
			for _, cmd := range []claim.Command{create("a", "1"), create("b", "2"), create("a", "2"), create("b", "1")} {
				w.Must(t, cmd)
			}
		},
		"shared": func(t *testing.T, w *committertest.World) {
			for _, cmd := range []claim.Create{create("first", "1"), create("first", "2"), create("a", "1"), create("b", "2")} {
				cmd.Units = claim.Shared
				w.Must(t, cmd)
			}
			w.Must(t, create("a", "2"))
			w.Must(t, create("b", "1"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			committertest.Bubble(t, func(t *testing.T, w *committertest.World) {
				circle(t, w)
				time.Sleep(contract)
				s := serve(t, w.Committer, w.Store, nil)
				time.Sleep(contract)
				if a, b := s.get(t, "a-2").Status, s.get(t, "b-1").Status; a == b || a != claim.Aborted && b != claim.Aborted {
					t.Errorf("a's is %s, and b's %s", a, b)
				}
			})
		})
	}
	t.Run("outcome unknown", func(t *testing.T) {
		committertest.Bubble(t, func(t *testing.T, w *committertest.World) {
			s := serve(t, w.Committer, w.Store, nil)
			s.must(t, create("a", "1"), create("b", "2"), create("a", "2"))
			w.Store.Set(func(s *committertest.Store) {
				s.OnTransact = func(ctx context.Context, fn func(db.Tx) error) error {
					return errors.Join(w.Store.Update(ctx, fn), db.ErrOutcomeUnknown)
				}
			})
			if _, err := s.do(t.Context(), create("b", "1")); !errors.Is(err, db.ErrOutcomeUnknown) {
				t.Fatal(err)
			}
			w.Store.Set(func(s *committertest.Store) { s.OnTransact = nil })
			time.Sleep(2 * contract)
			if c := s.get(t, "b-1"); c.Status != claim.Aborted {
				t.Errorf("it is %s", c.Status)
			}
		})
	})
}

// TestLargestDeadlock: a deadlock of 300 owners is ended in one transaction.
func TestLargestDeadlock(t *testing.T) {
	const owners = 300
	s := connected(t, fixtures.MySQL(t))
	for ahead := range 2 { // each holds its own resource, and then waits for the next
		var all sync.WaitGroup
		for i := range owners {
			all.Go(func() {
				if _, err := s.do(t.Context(), create(fmt.Sprint(i), fmt.Sprint((i+ahead)%owners))); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
	}
	var aborted []claim.Claim
	harness.Until(t, "a claim that was aborted", func() bool {
		var err error
		aborted, _, err = s.store.List(t.Context(), db.Filter{Statuses: []claim.Status{claim.Aborted}, Limit: owners})
		committertest.Check(t, err)
		return len(aborted) > 0
	})
	if ids := claim.Deadlock(aborted[0].Status, aborted[0].Reason); len(aborted) > 1 || len(ids) < 100 {
		t.Errorf("%d were aborted; %q", len(aborted), ids)
	}
}

// TestTwoServers: two servers together cause a deadlock, in each of many rounds. Exactly one request is aborted,
// although both servers find the deadlock.
func TestTwoServers(t *testing.T) { twoServers(t, 30) }

func twoServers(t *testing.T, rounds int) {
	t.Helper()
	dsn := fixtures.MySQL(t)
	servers := make([]*server, 2)
	for i := range servers {
		servers[i] = connected(t, dsn)
	}
	names := func(round int) [2]string { return [2]string{fmt.Sprint("a", round), fmt.Sprint("b", round)} }
	var all sync.WaitGroup
	for round := range rounds {
		for i, s := range servers {
			name := names(round)[i]
			if _, err := s.do(t.Context(), create(name, "of "+name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	for round := range rounds {
		for i, s := range servers {
			name, other := names(round)[i], names(round)[1-i]
			all.Go(func() {
				if _, err := s.do(t.Context(), create(name, "of "+other)); err != nil {
					t.Error(err)
				}
			})
		}
	}
	all.Wait()
	aborted := func() (n int) {
		claims, _, err := servers[0].store.List(t.Context(), db.Filter{Statuses: []claim.Status{claim.Aborted}, Limit: 10 * rounds})
		committertest.Check(t, err)
		seen := make(map[string]bool)
		for i := range claims {
			seen[claims[i].Owner[1:]] = true
		}
		if len(seen) != len(claims) {
			t.Errorf("%d were aborted in %d deadlocks", len(claims), len(seen))
		}
		return len(claims)
	}
	harness.Eventually(t, func() error {
		if n := aborted(); n < rounds {
			return fmt.Errorf("%d of %d deadlocks are ended", n, rounds)
		}
		return nil
	})
	if n := aborted(); n != rounds {
		t.Errorf("%d were aborted in %d deadlocks", n, rounds)
	}
}
