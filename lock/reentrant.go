package lock

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/locket-service/locket/models"
)

// ErrUpgrade is the error of a write lock for a handle that has read locks: it would wait for itself.
var ErrUpgrade = errors.New("a read lock cannot become a write lock")

// reentrant is an owner that may lock again what it has locked.
type reentrant struct {
	core *mutexCore
	// entry is full while one goroutine locks; others wait for it.
	entry chan struct{}

	mu            sync.Mutex
	hold          *Hold // nil unless writes or reads is more than 0
	shared        bool  // of the hold
	writes, reads int
}

func newReentrant(core *mutexCore) reentrant {
	return reentrant{core: core, entry: make(chan struct{}, 1)}
}

// lock locks, and counts it.
func (r *reentrant) lock(ctx context.Context, count *int, mode models.Mode, try bool) error {
	if err := r.enter(ctx, try); err != nil {
		return fmt.Errorf("lock %q: %w", r.core.key, err)
	}
	defer func() { <-r.entry }()
	if again, err := r.again(count, mode); again {
		return err
	}
	hold, err := r.core.acquire(ctx, mode, try)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hold, r.shared = hold, mode == models.Mode_MODE_SHARED
	*count++
	return nil
}

// enter waits until no other goroutine locks by this owner, unless that is no time for a try.
func (r *reentrant) enter(ctx context.Context, try bool) error {
	select {
	case r.entry <- struct{}{}:
		return nil
	default:
		if try {
			return collision(r.core.session.owner)
		}
	}
	select {
	case r.entry <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// again locks what is locked already, and reports whether it is.
func (r *reentrant) again(count *int, mode models.Mode) (locked bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.hold == nil:
		return false, nil
	case mode == models.Mode_MODE_EXCLUSIVE && r.shared:
		return true, fmt.Errorf("lock %q: %w", r.core.key, ErrUpgrade)
	}
	if err := r.hold.Err(); err != nil {
		return true, err
	}
	*count++
	return true, nil
}

// unlock takes one lock back, and releases what is held with the last one.
func (r *reentrant) unlock(count *int) error {
	r.mu.Lock()
	if *count == 0 {
		r.mu.Unlock()
		return fmt.Errorf("unlock %q: %w", r.core.key, ErrNotLocked)
	}
	*count--
	var last *Hold
	if r.writes+r.reads == 0 {
		last, r.hold = r.hold, nil
	}
	r.mu.Unlock()
	if last == nil {
		return nil
	}
	return r.core.release(last)
}

// Held returns the fencing token, and whether the handle has locked, and the session holds the lock at this moment.
func (r *reentrant) Held() (token uint64, held bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return heldBy(r.hold)
}
