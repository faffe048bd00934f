package lock

import (
	"context"
	"sync"
)

// RWMutex is a lock with one writer or any number of readers, like a sync.RWMutex, and across machines. The rules of
// Mutex about goroutines and losses apply. Readers of a session share one claim; a later reader joins if nobody waits
// for the resource.
type RWMutex struct{ writeLock }

// NewRWMutex returns the mutex of a resource for a session; see NewMutex.
func NewRWMutex(session *Session, resource string, options ...MutexOption) *RWMutex {
	return &RWMutex{newWriteLock(session, resource, options)}
}

// RLock locks for reading. It returns the same errors as Lock.
func (m *RWMutex) RLock(ctx context.Context) error { return m.core.lock(ctx, shared, false) }

// TryRLock locks for reading, and reports whether it could at once.
func (m *RWMutex) TryRLock(ctx context.Context) (bool, error) { return m.core.tryLock(ctx, shared) }

// RUnlock ends the oldest read lock. It returns the same errors as Unlock.
func (m *RWMutex) RUnlock() error { return m.core.unlock(shared) }

// Held returns the fencing token, and whether the mutex is locked, for writing or for reading, and the session holds the
// lock at this moment.
func (m *RWMutex) Held() (token uint64, held bool) { return m.core.held(exclusive, shared) }

// RLocker returns the read lock as a sync.Locker; see Locker.
func (m *RWMutex) RLocker() sync.Locker { return locker{m.core, shared} }
