package lock

import (
	"context"
	"sync"
)

// RWMutex is a lock for one writer or any number of readers, like a sync.RWMutex, for goroutines of any number of
// processes. It treats goroutines and losses as Mutex does. Readers of a session share one claim; a later reader joins
// if nobody waits for the resource.
type RWMutex struct{ writeLock }

// NewRWMutex returns the mutex of a resource for a session; see NewMutex.
func NewRWMutex(session *Session, resource string, options ...MutexOption) *RWMutex {
	return &RWMutex{newWriteLock(session, resource, options)}
}

// RLock locks the mutex for reading. It returns the same errors as Lock.
func (m *RWMutex) RLock(ctx context.Context) error { return m.core.lock(ctx, shared, false) }

// TryRLock locks the mutex for reading if that is possible at once, and reports whether it did.
func (m *RWMutex) TryRLock(ctx context.Context) (bool, error) { return m.core.tryLock(ctx, shared) }

// RUnlock releases the oldest read lock. It returns the same errors as Unlock.
func (m *RWMutex) RUnlock() error { return m.core.unlock(shared) }

// Held returns the fencing token, and whether the mutex is locked, for writing or reading, and the session holds the
// lock at this moment.
func (m *RWMutex) Held() (token uint64, held bool) { return m.core.held(exclusive, shared) }

// RLocker returns the read lock as a sync.Locker; see Locker.
func (m *RWMutex) RLocker() sync.Locker { return locker{m.core, shared} }
