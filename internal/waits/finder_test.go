package waits_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/tedsuo/ifrit"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/db/mysql"
	"github.com/locket-service/locket/db/sqlite"
	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/internal/claim"
	"github.com/locket-service/locket/internal/committer"
	"github.com/locket-service/locket/internal/waits"
)

func TestMain(m *testing.M) {
	code := m.Run()
	fixtures.Shutdown()
	os.Exit(code)
}

// server is what makes claims and looks for deadlocks.
type server struct {
	store  db.Store
	queues *committer.Committer
	finder *waits.Finder
}

func serve(t testing.TB, store db.Store) *server {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	s := &server{store: store, queues: committer.New(store, committer.Config{
		Timeout: 10 * time.Second, Log: log, Metrics: committer.NewMetrics(prometheus.NewRegistry()),
	})}
	s.finder = waits.NewFinder(store, func(ctx context.Context, cmd claim.Command) (claim.Claim, error) {
		result, err := s.queues.Do(ctx, cmd)
		return result.Claim, err
	}, log)
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
	store, err := sqlite.Open(filepath.Join(t.TempDir(), "locket.db"))
	if err != nil {
		t.Fatal(err)
	}
	return serve(t, store)
}

// claim makes a claim, and returns an error if it causes a deadlock. Its id is both names.
func (s *server) claim(owner, resource string) error {
	result, err := s.queues.Do(context.Background(), claim.Create{ID: owner + "-" + resource, Owner: owner, Resource: resource, TTL: time.Hour})
	if err != nil || result.Claim.Status != claim.Waiting {
		return err
	}
	return s.finder.Check(context.Background(), &result.Claim, result.Holder)
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

// TestTwoServersCauseADeadlock: of the claims with which two servers cause a deadlock together exactly
// one is withdrawn, in every round, within a second; if a request was refused it is that of this claim.
func TestTwoServersCauseADeadlock(t *testing.T) {
	const rounds = 150
	dsn := fixtures.MySQL(t)
	servers := make([]*server, 2)
	for i := range servers {
		store, err := mysql.Open(t.Context(), dsn)
		if err != nil {
			t.Fatal(err)
		}
		servers[i] = serve(t, store)
	}
	refusals := 0
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
		var withdrawn []string
		for i, s := range servers {
			id := names[i] + "-of-" + names[1-i]
			var deadlock *waits.DeadlockError
			switch status := s.status(t, id); {
			case errs[i] != nil && !errors.As(errs[i], &deadlock):
				t.Fatal(errs[i])
			case errs[i] != nil && status != claim.Withdrawn:
				t.Errorf("round %d: %s was refused, and is %s", round, id, status)
			case errs[i] != nil:
				refusals++
			}
			if s.status(t, id) == claim.Withdrawn {
				withdrawn = append(withdrawn, id)
			}
		}
		if len(withdrawn) != 1 {
			t.Errorf("round %d: %q were withdrawn", round, withdrawn)
		}
	}
	t.Logf("%d of %d were told by the answer to their request", refusals, rounds)
}

// TestDeadlockThatIsOver: a deadlock that dissolves while it is looked for refuses nobody.
func TestDeadlockThatIsOver(t *testing.T) {
	s := embedded(t)
	s.must(t, "a", "1")
	s.must(t, "b", "2")
	s.must(t, "a", "2")
	result, err := s.queues.Do(t.Context(), claim.Create{ID: "last", Owner: "b", Resource: "1", TTL: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.queues.Do(t.Context(), claim.End{ID: "a-1"}); err != nil {
		t.Fatal(err)
	}
	if err := s.finder.Check(t.Context(), &result.Claim, result.Holder); err != nil || s.status(t, "last") != claim.Active {
		t.Errorf("%v; it is %s", err, s.status(t, "last"))
	}
}

// slow is a store that is never done reading.
type slow struct{ db.Store }

func (slow) WaitsOf(ctx context.Context, _ []claim.OwnerKey, _ int) ([]claim.Claim, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// TestCheckWithoutDatabase: a claim waits if nobody can look for deadlocks.
func TestCheckWithoutDatabase(t *testing.T) {
	s := embedded(t)
	s.finder = waits.NewFinder(slow{s.store}, nil, slog.New(slog.DiscardHandler))
	s.must(t, "a", "1")
	s.must(t, "b", "1")
	if status := s.status(t, "b-1"); status != claim.Waiting {
		t.Errorf("it is %s", status)
	}
}

// BenchmarkContended shows what looking for a deadlock costs a claim that has to wait: behind a holder
// alone, and behind 1,000 in a line, on SQLite.
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
					result, err := s.queues.Do(b.Context(), claim.Create{ID: "new", Owner: "me", Resource: "r", TTL: time.Hour})
					if err == nil && check {
						err = s.finder.Check(b.Context(), &result.Claim, result.Holder)
					}
					if err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
