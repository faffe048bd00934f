package upkeep_test

import (
	"context"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/rules/claim"
	"github.com/locket-service/locket/internal/service/committer/committertest"
	"github.com/locket-service/locket/internal/service/upkeep"
)

// endless is a store with more resources than anybody can visit. A step takes a millisecond.
type endless struct {
	db.Store
	visited *atomic.Int64
}

func (e endless) PruneResources(_ context.Context, after string, _ claim.Time, limit int) (string, error) {
	time.Sleep(time.Millisecond)
	e.visited.Add(int64(limit))
	n, _ := strconv.Atoi(after)
	return strconv.Itoa(n + limit), nil
}

// TestLongWalk: with very many resources the janitor visits them as fast as they can be created.
func TestLongWalk(t *testing.T) {
	committertest.Bubble(t, func(t *testing.T, w *committertest.World) {
		store := endless{w.Store, new(atomic.Int64)}
		committertest.Run(t, upkeep.NewJanitor(store, upkeep.History{Retention: time.Hour, Limit: 1000}, w.Log, w.Registry))
		time.Sleep(71 * time.Minute) // nothing is old before an hour has passed, and no walk long before ten more minutes
		before := store.visited.Load()
		time.Sleep(10 * time.Second)
		if each := (store.visited.Load() - before) / 10; each < 20_000 {
			t.Errorf("%d are visited in a second", each)
		}
	})
}

// noHistory is a store whose history cannot be changed.
type noHistory struct{ endless }

func (noHistory) Prune(context.Context, claim.Time, int) (int, error) { return 0, db.ErrUnavailable }

// TestWalkWithoutHistory: rows of resources are deleted even when nothing can be deleted from the history, as when the
// file of the embedded engine is damaged. Otherwise they would fill its memory.
func TestWalkWithoutHistory(t *testing.T) {
	committertest.Bubble(t, func(t *testing.T, w *committertest.World) {
		store := noHistory{endless{w.Store, new(atomic.Int64)}}
		committertest.Run(t, upkeep.NewJanitor(store, upkeep.History{Retention: time.Hour, Limit: 1000}, w.Log, w.Registry))
		time.Sleep(61 * time.Minute) // nothing is old before an hour has passed
		if store.visited.Load() == 0 {
			t.Error("no resource is visited")
		}
	})
}

// faltering is a store whose every hundredth step fails.
type faltering struct {
	endless
	furthest *atomic.Int64
}

func (f faltering) PruneResources(ctx context.Context, after string, before claim.Time, limit int) (string, error) {
	next, err := f.endless.PruneResources(ctx, after, before, limit)
	if f.visited.Load()%int64(100*limit) == 0 {
		return "", db.ErrUnavailable
	}
	n, _ := strconv.ParseInt(next, 10, 64)
	f.furthest.Store(max(n, f.furthest.Load()))
	return next, err
}

// TestWalkGoesOn: after a step that fails, as when another server of a cluster becomes the decider, the janitor goes on where it was.
// Otherwise it would never visit the last ones of very many resources.
func TestWalkGoesOn(t *testing.T) {
	committertest.Bubble(t, func(t *testing.T, w *committertest.World) {
		store := faltering{endless{w.Store, new(atomic.Int64)}, new(atomic.Int64)}
		committertest.Run(t, upkeep.NewJanitor(store, upkeep.History{Retention: time.Hour, Limit: 1000}, w.Log, w.Registry))
		time.Sleep(61 * time.Minute) // nothing is old before an hour has passed
		if visited, furthest := store.visited.Load(), store.furthest.Load(); furthest < visited*9/10 {
			t.Errorf("of %d visited resources the furthest is %d", visited, furthest)
		}
	})
}
