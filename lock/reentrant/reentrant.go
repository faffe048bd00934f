// Package reentrant has mutexes for code that may lock again what it already holds. It must unlock as often as it
// locks. Go has no identity of goroutines, so the owner is a value: pass it along a chain of calls. Owners of one
// resource exclude each other, and exclude the mutexes of package lock.
package reentrant

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/locket-service/locket/lock"
)

// ErrUpgrade is the error of a write lock for an owner that has read locks alone: it would wait for itself.
var ErrUpgrade = errors.New("a read lock cannot become a write lock")

// Mutex is one owner of an exclusive lock. Its methods may be called by any number of goroutines.
type Mutex struct{ owner }

// NewMutex returns a new owner of the mutex of a resource; see lock.NewMutex.
func NewMutex(session *lock.Session, resource string, options ...lock.MutexOption) *Mutex {
	return &Mutex{newOwner(session, resource, options)}
}

// RWMutex is one owner of a lock for writing or reading. An owner of the write lock may also lock for reading. With
// read locks only, Lock returns ErrUpgrade. Its methods may be called by any number of goroutines.
type RWMutex struct{ owner }

// NewRWMutex returns a new owner of the mutex of a resource; see lock.NewRWMutex.
func NewRWMutex(session *lock.Session, resource string, options ...lock.MutexOption) *RWMutex {
	return &RWMutex{newOwner(session, resource, options)}
}

// RLock locks for reading; see Lock.
func (m *RWMutex) RLock(ctx context.Context) error {
	_, err := m.lock(ctx, &m.reads, true, false)
	return err
}

// TryRLock locks the mutex for reading if that is possible at once, and reports whether it did.
func (m *RWMutex) TryRLock(ctx context.Context) (bool, error) {
	return m.lock(ctx, &m.reads, true, true)
}

// RUnlock undoes one RLock; the last one releases the read lock.
func (m *RWMutex) RUnlock() error { return m.unlock(&m.reads) }

// owner counts how often it has locked its mutex, which nobody else has.
type owner struct {
	mutex    *lock.RWMutex
	resource string
	// entry is full while one goroutine locks; others wait for it.
	entry chan struct{}

	mu            sync.Mutex
	writes, reads int
	shared        bool // what is held, while writes or reads is more than 0
}

func newOwner(session *lock.Session, resource string, options []lock.MutexOption) owner {
	return owner{mutex: lock.NewRWMutex(session, resource, options...), resource: resource, entry: make(chan struct{}, 1)}
}

// Lock waits in the queue and locks the mutex. It returns at once if the owner already holds it. If the lock was lost
// in the meantime, the error wraps lock.ErrLost. Otherwise it returns the same errors as lock.Mutex.
func (o *owner) Lock(ctx context.Context) error {
	_, err := o.lock(ctx, &o.writes, false, false)
	return err
}

// TryLock locks the mutex if that is possible at once, and reports whether it did.
func (o *owner) TryLock(ctx context.Context) (bool, error) {
	return o.lock(ctx, &o.writes, false, true)
}

// Unlock undoes one Lock; the last one releases the lock. While the owner has read locks, the write lock stays.
func (o *owner) Unlock() error { return o.unlock(&o.writes) }

// Held returns the fencing token, and whether the owner has locked, and the session holds the lock at this moment.
func (o *owner) Held() (token uint64, held bool) { return o.mutex.Held() }

// lock locks, and counts it.
func (o *owner) lock(ctx context.Context, count *int, shared, try bool) (had bool, err error) {
	if entered, err := o.enter(ctx, try); !entered {
		return false, err
	}
	defer func() { <-o.entry }()
	if had, err := o.again(count, shared); had || err != nil {
		return had, err
	}
	if had, err = o.take(ctx, shared, try); had {
		o.mu.Lock()
		defer o.mu.Unlock()
		*count++
		o.shared = shared
	}
	return had, err
}

// enter waits until no other goroutine locks by this owner; a try does not wait.
func (o *owner) enter(ctx context.Context, try bool) (bool, error) {
	select {
	case o.entry <- struct{}{}:
		return true, nil
	default:
		if try {
			return false, nil
		}
	}
	select {
	case o.entry <- struct{}{}:
		return true, nil
	case <-ctx.Done():
		return false, fmt.Errorf("lock %q: %w", o.resource, ctx.Err())
	}
}

// again locks what is locked already, and reports whether it is.
func (o *owner) again(count *int, shared bool) (bool, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.writes+o.reads == 0 {
		return false, nil
	}
	if !shared && o.shared {
		return false, fmt.Errorf("lock %q: %w", o.resource, ErrUpgrade)
	}
	if _, held := o.mutex.Held(); !held {
		return false, fmt.Errorf("lock %q: %w", o.resource, lock.ErrLost)
	}
	*count++
	return true, nil
}

// take locks the mutex.
func (o *owner) take(ctx context.Context, shared, try bool) (bool, error) {
	switch {
	case shared && try:
		return o.mutex.TryRLock(ctx)
	case try:
		return o.mutex.TryLock(ctx)
	}
	lock := o.mutex.Lock
	if shared {
		lock = o.mutex.RLock
	}
	err := lock(ctx)
	return err == nil, err
}

// unlock takes one lock back, and unlocks the mutex with the last one.
func (o *owner) unlock(count *int) error {
	o.mu.Lock()
	if *count == 0 {
		o.mu.Unlock()
		return fmt.Errorf("unlock %q: %w", o.resource, lock.ErrNotLocked)
	}
	*count--
	last, shared := o.writes+o.reads == 0, o.shared
	o.mu.Unlock()
	switch {
	case !last:
		return nil
	case shared:
		return o.mutex.RUnlock()
	default:
		return o.mutex.Unlock()
	}
}
