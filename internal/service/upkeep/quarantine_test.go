package upkeep_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/rules/claim"
	"github.com/locket-service/locket/internal/service/committer/committertest"
	"github.com/locket-service/locket/internal/service/upkeep"
)

// restored is a store with claims that wait, and a quarantine that ends at a time.
type restored struct {
	end     claim.Time
	beaten  claim.Time // the last beat; 0: just now
	waiting []string   // the resources, in order
	refuse  func(resources []string) error

	mu      sync.Mutex
	granted map[string]bool
}

func leaseNow() claim.Time { return claim.Time(time.Now().UnixMicro()) }

func (s *restored) Now(context.Context) (claim.Instant, error) {
	return claim.Instant{Lease: leaseNow()}, nil
}

func (s *restored) ClockState() db.ClockState {
	state := db.ClockState{Lease: leaseNow(), Quarantine: s.end}
	if s.beaten != 0 {
		state.Lease = s.beaten
	}
	return state
}

func (s *restored) Contended(context.Context, string, *db.Contention, int) ([]db.Resource, claim.Instant, error) {
	return nil, claim.Instant{}, nil
}

func (s *restored) Resources(_ context.Context, _, after string, limit int) (live []db.Resource, next string, now claim.Instant, err error) {
	begin := slices.Index(s.waiting, after) + 1
	for _, name := range s.waiting[begin:min(begin+limit, len(s.waiting))] {
		live, next = append(live, db.Resource{Row: claim.Row{Resource: name, Waiting: 1}}), name
	}
	if begin+limit >= len(s.waiting) {
		next = ""
	}
	return live, next, now, nil
}

func (s *restored) do(ctx context.Context, cmd claim.Command) error {
	resources := cmd.(claim.Expire).Resources
	if s.refuse != nil {
		if err := s.refuse(resources); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, resource := range resources {
		s.granted[resource] = true
	}
	return ctx.Err()
}

// grants checks of how many resources the claims are granted.
func (s *restored) grants(t *testing.T, when string, want int) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if got := len(s.granted); got != want {
		t.Fatalf("%s %d of %d are granted, want %d", when, got, len(s.waiting), want)
	}
}

func settleAfter(left time.Duration, resources int) *restored {
	s := &restored{end: leaseNow().Add(left), granted: make(map[string]bool)}
	for n := range resources {
		s.waiting = append(s.waiting, fmt.Sprint("r", n))
	}
	return s
}

// TestSettle: nothing is granted before the end of the quarantine, then all waiting claims, of more resources than
// one command has.
func TestSettle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := settleAfter(time.Minute, 1000)
		committertest.Run(t, upkeep.NewGranter(s, s.do, slog.New(slog.DiscardHandler)))
		time.Sleep(time.Minute - time.Millisecond)
		synctest.Wait()
		s.grants(t, "within the quarantine", 0)
		time.Sleep(time.Second)
		synctest.Wait()
		s.grants(t, "after the quarantine", 1000)
	})
}

// TestSettleWithoutBeats: nobody beats for claims that only wait, so the last beat may have been before the end of the quarantine.
func TestSettleWithoutBeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := settleAfter(time.Minute, 3)
		s.beaten = s.end.Add(-db.MaxSilence / 2)
		committertest.Run(t, upkeep.NewGranter(s, s.do, slog.New(slog.DiscardHandler)))
		time.Sleep(time.Minute + time.Second)
		synctest.Wait()
		s.grants(t, "after the quarantine", 3)
	})
}

// TestSettleGoesOn: failures are retried later, and delay nothing else; after an outage, or with a slow database, it
// continues where it was.
func TestSettleGoesOn(t *testing.T) {
	const resources = 3000
	for name, test := range map[string]struct {
		refuse func(begin time.Time, resources []string) error
		first  int // how many are granted within ten minutes
	}{
		"a resource that is locked": {func(begin time.Time, resources []string) error {
			if slices.Contains(resources, "r300") && time.Since(begin) < 15*time.Minute {
				return db.ErrRowLocked
			}
			return nil
		}, resources - 1},
		"a database that goes away": {func(begin time.Time, resources []string) error {
			if !slices.Contains(resources, "r0") && time.Since(begin) < 15*time.Minute {
				return fmt.Errorf("%w: it is away", db.ErrUnavailable)
			}
			return nil
		}, 256},
		"a slow database": {func(time.Time, []string) error { time.Sleep(14 * time.Second); return nil }, resources},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, begin := settleAfter(time.Minute, resources), time.Now()
				s.refuse = func(resources []string) error { return test.refuse(begin, resources) }
				committertest.Run(t, upkeep.NewGranter(s, s.do, slog.New(slog.DiscardHandler)))
				time.Sleep(10 * time.Minute)
				s.grants(t, "in ten minutes", test.first)
				time.Sleep(10 * time.Minute)
				s.grants(t, "at last", resources)
			})
		})
	}
}

// TestGranterStopsWhileDatabaseHangs: the end does not wait for the database.
func TestGranterStopsWhileDatabaseHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := settleAfter(0, 3)
		hangs := func(ctx context.Context, _ claim.Command) error { <-ctx.Done(); return ctx.Err() }
		granter := committertest.Run(t, upkeep.NewGranter(s, hangs, slog.New(slog.DiscardHandler)))
		time.Sleep(time.Second)
		begin := time.Now()
		committertest.Stop(t, granter)
		if took := time.Since(begin); took != 0 {
			t.Errorf("it took %s", took)
		}
	})
}
