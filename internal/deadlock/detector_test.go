package deadlock_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/tedsuo/ifrit"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/db/mysql"
	"github.com/locket-service/locket/db/raft"
	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/internal/claim"
	"github.com/locket-service/locket/internal/committer"
	"github.com/locket-service/locket/internal/deadlock"
	"github.com/locket-service/locket/tests/harness"
)

func TestMain(m *testing.M) {
	code := m.Run()
	fixtures.Shutdown()
	os.Exit(code)
}

// server is what makes claims and looks for deadlocks.
type server struct {
	store    db.Store
	queues   *committer.Committer
	detector *deadlock.Detector
}

func serve(t testing.TB, store db.Store) *server {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	s := &server{store: store, queues: committer.New(store, committer.Config{
		Timeout: harness.HangTimeout, Log: log, Metrics: committer.NewMetrics(prometheus.NewRegistry()),
	})}
	s.detector = deadlock.NewDetector(store, s.queues.Do, log)
	process := ifrit.Invoke(s.queues)
	t.Cleanup(func() {
		process.Signal(os.Interrupt)
		if err := errors.Join(<-process.Wait(), store.Close()); err != nil {
			t.Error(err)
		}
	})
	return s
}

func embedded(t testing.TB) *server {
	t.Helper()
	store, err := raft.Open(filepath.Join(t.TempDir(), "data"))
	if err != nil {
		t.Fatal(err)
	}
	return serve(t, store)
}

// bubble runs a test with a server and a fake clock: by that no search takes too long.
func bubble(t *testing.T, test func(t *testing.T, s *server)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, embedded(t)) })
}

// claim makes a claim, and returns an error if it causes a deadlock. Its id is both names.
func (s *server) claim(owner, resource string) error {
	_, err := s.detector.Create(context.Background(), claim.Create{ID: owner + "-" + resource, Owner: owner, Resource: resource, TTL: time.Hour})
	return err
}

// last returns the claim "last", which causes a deadlock, before that is looked for.
func (s *server) last(t testing.TB) committer.Result {
	t.Helper()
	s.must(t, "a", "1")
	s.must(t, "b", "2")
	s.must(t, "a", "2")
	result, err := s.queues.Do(t.Context(), claim.Create{ID: "last", Owner: "b", Resource: "1", TTL: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	return result
}

func (s *server) must(t testing.TB, owner, resource string) {
	t.Helper()
	if err := s.claim(owner, resource); err != nil {
		t.Fatal(err)
	}
}

func (s *server) status(t testing.TB, id string) claim.Status {
	t.Helper()
	c, _, err := s.store.Get(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return c.Status
}

// has reports whether there is a claim.
func (s *server) has(t testing.TB, id string) bool {
	t.Helper()
	_, _, err := s.store.Get(t.Context(), id)
	if err != nil && !errors.Is(err, claim.ErrNotFound) {
		t.Fatal(err)
	}
	return err == nil
}

// TestRefusedLeavesNothing: a claim that would cause a deadlock is refused before anything is committed, in the row of
// its resource neither.
func TestRefusedLeavesNothing(t *testing.T) {
	bubble(t, func(t *testing.T, s *server) {
		s.must(t, "a", "1")
		s.must(t, "b", "2")
		s.must(t, "a", "2")
		before, _, err := s.store.Queue(t.Context(), "1", 10)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 { // and again, when it is repeated
			var circle *deadlock.Error
			if err := s.claim("b", "1"); !errors.As(err, &circle) || len(circle.Members) != 2 || circle.Members[0].ID != "b-1" || circle.Members[1].ID != "a-2" {
				t.Fatalf("%v", err)
			}
		}
		after, _, err := s.store.Queue(t.Context(), "1", 10)
		if err != nil || after.Row != before.Row || s.has(t, "b-1") {
			t.Errorf("before %+v, after %+v (%v)", before.Row, after.Row, err)
		}
	})
}

// TestTwoRequestsOfOneBatch: of two requests that cause a deadlock together after both have looked, exactly one is refused,
// and its claim withdrawn.
func TestTwoRequestsOfOneBatch(t *testing.T) {
	bubble(t, func(t *testing.T, s *server) {
		s.must(t, "a", "1")
		s.must(t, "b", "2")
		var looked sync.WaitGroup
		looked.Add(2)
		s.detector = deadlock.NewDetector(s.store, func(ctx context.Context, cmd claim.Command) (committer.Result, error) {
			if create, ok := cmd.(claim.Create); ok && !create.LookFirst {
				looked.Done()
				looked.Wait()
			}
			return s.queues.Do(ctx, cmd)
		}, slog.New(slog.DiscardHandler))
		var both sync.WaitGroup
		var errs [2]error
		both.Go(func() { errs[0] = s.claim("a", "2") })
		both.Go(func() { errs[1] = s.claim("b", "1") })
		both.Wait()
		withdrawn := 0
		for _, id := range []string{"a-2", "b-1"} {
			if s.status(t, id) == claim.Withdrawn {
				withdrawn++
			}
		}
		var circle *deadlock.Error
		if withdrawn != 1 || !errors.As(errors.Join(errs[:]...), &circle) {
			t.Errorf("%d were withdrawn; %v", withdrawn, errs)
		}
	})
}

// TestAllowedIsNotWithdrawn: a claim that allows deadlocks stays, although it joined one last, and was made by another server
// after this one has looked. The claim that does not allow it is withdrawn.
func TestAllowedIsNotWithdrawn(t *testing.T) {
	bubble(t, func(t *testing.T, s *server) {
		s.must(t, "a", "1")
		s.must(t, "b", "2")
		result, err := s.queues.Do(t.Context(), claim.Create{ID: "a-2", Owner: "a", Resource: "2", TTL: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.detector.Create(t.Context(), claim.Create{ID: "b-1", Owner: "b", Resource: "1", TTL: time.Hour, AllowDeadlock: true}); err != nil {
			t.Fatal(err)
		}
		var circle *deadlock.Error
		if err := s.detector.Check(t.Context(), &result); !errors.As(err, &circle) {
			t.Error(err)
		}
		if a, b := s.status(t, "a-2"), s.status(t, "b-1"); a != claim.Withdrawn || b != claim.Waiting {
			t.Errorf("a's is %s, and b's, which allows deadlocks, %s", a, b)
		}
	})
}

// TestTwoServersCauseADeadlock: of the requests with which two servers cause a deadlock together exactly one fails, in every
// round: it is refused before it makes a claim, or its claim is withdrawn. However slow the database is, the searches end.
func TestTwoServersCauseADeadlock(t *testing.T) { twoServersCauseADeadlock(t, 30) }

func twoServersCauseADeadlock(t *testing.T, rounds int) {
	t.Helper()
	dsn := fixtures.MySQL(t)
	servers := make([]*server, 2)
	for i := range servers {
		store, err := mysql.Open(t.Context(), dsn)
		if err != nil {
			t.Fatal(err)
		}
		servers[i] = serve(t, store)
		servers[i].detector.SetLookTimeout(5 * time.Second) // a claim that is not seen to be withdrawn is waited for twice as long
	}
	early, late := 0, 0
	for round := range rounds {
		names := []string{fmt.Sprint("a", round), fmt.Sprint("b", round)}
		for i, s := range servers {
			s.must(t, names[i], "of-"+names[i])
		}
		errs := make([]error, 2)
		var both sync.WaitGroup
		for i, s := range servers {
			both.Go(func() { errs[i] = s.claim(names[i], "of-"+names[1-i]) })
		}
		both.Wait()
		var failed []string
		for i, s := range servers {
			id := names[i] + "-of-" + names[1-i]
			var circle *deadlock.Error
			switch made := s.has(t, id); {
			case errs[i] != nil && !errors.As(errs[i], &circle):
				t.Fatal(errs[i])
			case !made && errs[i] == nil:
				t.Errorf("round %d: %s was answered, and is not there", round, id)
			case !made:
				early++
				failed = append(failed, id)
			case s.status(t, id) == claim.Withdrawn:
				late++
				failed = append(failed, id)
			case errs[i] != nil:
				t.Errorf("round %d: %s was refused, and is %s", round, id, s.status(t, id))
			}
		}
		if len(failed) != 1 {
			t.Errorf("round %d: %q failed", round, failed)
		}
	}
	t.Logf("%d were refused before anything was made, %d withdrawn", early, late)
}

// TestDeadlockThatIsOver: a deadlock that dissolves while it is looked for refuses nobody.
func TestDeadlockThatIsOver(t *testing.T) {
	bubble(t, func(t *testing.T, s *server) {
		result := s.last(t)
		if _, err := s.queues.Do(t.Context(), claim.End{ID: "a-1"}); err != nil {
			t.Fatal(err)
		}
		if err := s.detector.Check(t.Context(), &result); err != nil || s.status(t, "last") != claim.Active {
			t.Errorf("%v; it is %s", err, s.status(t, "last"))
		}
	})
}

// stopping is a store whose process stands still after a read, and goes on when something has happened elsewhere.
type stopping struct {
	db.Store
	reads     int // up to the one after which it stands still
	elsewhere func()
}

func (s *stopping) read() {
	if s.reads--; s.reads == 0 {
		s.elsewhere()
		time.Sleep(time.Minute)
	}
}

func (s *stopping) WaitsOf(ctx context.Context, owners []claim.OwnerKey, limit int) ([]claim.Claim, error) {
	defer s.read()
	return s.Store.WaitsOf(ctx, owners, limit)
}

func (s *stopping) Queue(ctx context.Context, resource string, limit int) (db.Snapshot, claim.Instant, error) {
	defer s.read()
	return s.Store.Queue(ctx, resource, limit)
}

// TestDeadlockThatIsOverMeanwhile: a server that stands still, after any read, while it waits for the withdrawal of a claim of another one
// does not withdraw its own, too.
func TestDeadlockThatIsOverMeanwhile(t *testing.T) {
	for reads := 1; reads <= 12; reads++ { // of three searches
		bubble(t, func(t *testing.T, s *server) {
			s.must(t, "a", "1")
			s.must(t, "b", "2")
			result, err := s.queues.Do(t.Context(), claim.Create{ID: "first", Owner: "a", Resource: "2", TTL: time.Hour})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := s.queues.Do(t.Context(), claim.Create{ID: "last", Owner: "b", Resource: "1", TTL: time.Hour}); err != nil {
				t.Fatal(err)
			}
			withdraw := func() {
				if _, err := s.queues.Do(t.Context(), claim.Withdraw{ID: "last", Reason: deadlock.Reason}); err != nil {
					t.Error(err)
				}
			}
			store := &stopping{Store: s.store, reads: reads, elsewhere: withdraw}
			s.detector = deadlock.NewDetector(store, s.queues.Do, slog.New(slog.DiscardHandler))
			if err := s.detector.Check(t.Context(), &result); err != nil || s.status(t, "first") != claim.Waiting || store.reads > 0 {
				t.Errorf("stopped after read %d: %v; it is %s", reads, err, s.status(t, "first"))
			}
		})
	}
}

// slow is a store that is not done reading for the first times.
type slow struct {
	db.Store
	times int
}

func (s *slow) WaitsOf(ctx context.Context, owners []claim.OwnerKey, limit int) ([]claim.Claim, error) {
	if s.times--; s.times < 0 {
		return s.Store.WaitsOf(ctx, owners, limit)
	}
	<-ctx.Done()
	return nil, ctx.Err()
}

// TestFoundLater: a deadlock is found although the database did not answer the search before the claim, and the first one after it, nor does
// the caller stay.
func TestFoundLater(t *testing.T) {
	bubble(t, func(t *testing.T, s *server) {
		s.must(t, "a", "1")
		s.must(t, "b", "2")
		s.must(t, "a", "2")
		s.detector = deadlock.NewDetector(&slow{s.store, 2}, s.queues.Do, slog.New(slog.DiscardHandler))
		var circle *deadlock.Error
		if err := s.claim("b", "1"); !errors.As(err, &circle) || s.status(t, "b-1") != claim.Withdrawn {
			t.Errorf("%v; it is %s", err, s.status(t, "b-1"))
		}
		result, err := s.queues.Do(t.Context(), claim.Create{ID: "again", Owner: "b", Resource: "1", TTL: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		gone, leave := context.WithCancel(t.Context())
		leave()
		if err := s.detector.Check(gone, &result); !errors.As(err, &circle) {
			t.Errorf("its caller has left: %v", err)
		}
	})
}

// refusing is a store that refuses at once to read, until a moment.
type refusing struct {
	db.Store
	until time.Time
}

func (s *refusing) Queue(ctx context.Context, resource string, limit int) (db.Snapshot, claim.Instant, error) {
	if time.Now().Before(s.until) {
		return db.Snapshot{}, claim.Instant{}, db.ErrUnavailable
	}
	return s.Store.Queue(ctx, resource, limit)
}

// TestFoundBehindRefusals: a deadlock is found, and a claim withdrawn, although the database refuses both for a second and a half, or all for some seconds from
// then on.
func TestFoundBehindRefusals(t *testing.T) {
	for _, then := range []time.Duration{0, 5 * time.Second} {
		bubble(t, func(t *testing.T, s *server) {
			result := s.last(t)
			result.Holder = nil
			store := &refusing{s.store, time.Now().Add(1500 * time.Millisecond)}
			var first time.Time
			s.detector = deadlock.NewDetector(store, func(ctx context.Context, cmd claim.Command) (committer.Result, error) {
				if first.IsZero() {
					first = time.Now()
					store.until = first.Add(then)
				}
				if time.Since(first) < 1500*time.Millisecond {
					return committer.Result{}, db.ErrRowLocked
				}
				return s.queues.Do(ctx, cmd)
			}, slog.New(slog.DiscardHandler))
			var circle *deadlock.Error
			if err := s.detector.Check(t.Context(), &result); !errors.As(err, &circle) || s.status(t, "last") != claim.Withdrawn {
				t.Errorf("%v; it is %s", err, s.status(t, "last"))
			}
		})
	}
}

// TestOverBehindRefusals: a claim is not withdrawn when the deadlock has ended while the database refused that.
func TestOverBehindRefusals(t *testing.T) {
	bubble(t, func(t *testing.T, s *server) {
		result := s.last(t)
		refused := false
		s.detector = deadlock.NewDetector(s.store, func(ctx context.Context, cmd claim.Command) (committer.Result, error) {
			if refused {
				return s.queues.Do(ctx, cmd)
			}
			refused = true
			if _, err := s.queues.Do(ctx, claim.End{ID: "a-2"}); err != nil {
				t.Error(err)
			}
			return committer.Result{}, db.ErrRowLocked
		}, slog.New(slog.DiscardHandler))
		if err := s.detector.Check(t.Context(), &result); err != nil || s.status(t, "last") != claim.Waiting {
			t.Errorf("%v; it is %s", err, s.status(t, "last"))
		}
	})
}

// TestCheckWithoutDatabase: a claim waits if nobody can look for deadlocks.
func TestCheckWithoutDatabase(t *testing.T) {
	bubble(t, func(t *testing.T, s *server) {
		s.detector = deadlock.NewDetector(&slow{s.store, 1000}, s.queues.Do, slog.New(slog.DiscardHandler))
		s.must(t, "a", "1")
		s.must(t, "b", "1")
		if status := s.status(t, "b-1"); status != claim.Waiting {
			t.Errorf("it is %s", status)
		}
	})
}

// BenchmarkContended shows what looking for a deadlock costs a claim that has to wait: behind a holder
// alone, and behind 1,000 in a line.
func BenchmarkContended(b *testing.B) {
	for _, line := range []int{0, 1000} {
		for _, check := range []bool{false, true} {
			b.Run(fmt.Sprintf("line=%d/check=%t", line, check), func(b *testing.B) {
				s := embedded(b)
				s.must(b, "holder", "r")
				for i := range line {
					if _, err := s.queues.Do(b.Context(), claim.Create{ID: fmt.Sprint(i), Owner: fmt.Sprint("o", i), Resource: "r", TTL: time.Hour}); err != nil {
						b.Fatal(err)
					}
				}
				for b.Loop() {
					cmd := claim.Create{ID: "new", Owner: "me", Resource: "r", TTL: time.Hour, AllowDeadlock: !check}
					if _, err := s.detector.Create(b.Context(), cmd); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
