package lock

import (
	"context"
	"sync"
)

// RWMutex is a lock on a resource that one writer holds, or any number of readers: like a
// sync.RWMutex, and across machines. What Mutex says of goroutines and losses holds for it.
// Readers of a session share one claim; one that comes later joins when nobody waits for the resource.
type RWMutex struct{ writeLock }

// NewRWMutex returns the mutex of a resource for a session; see NewMutex.
func NewRWMutex(session *Session, resource string, options ...MutexOption) *RWMutex {
	return &RWMutex{newWriteLock(session, resource, options)}
}

// RLock locks for reading; its errors are those of Lock.
func (m *RWMutex) RLock(ctx context.Context) error { return m.core.lock(ctx, shared, false) }

// TryRLock locks for reading, and reports whether it could at once.
func (m *RWMutex) TryRLock(ctx context.Context) (bool, error) { return m.core.tryLock(ctx, shared) }

// RUnlock ends one read lock, the oldest; its errors are those of Unlock.
func (m *RWMutex) RUnlock() error { return m.core.unlock(shared) }

// Held returns the fencing token, and whether the mutex is locked, for writing or for reading, and the session holds the
// lock at this moment.
func (m *RWMutex) Held() (token uint64, held bool) { return m.core.held(exclusive, shared) }

// RLocker returns the read lock as a sync.Locker; see Locker.
func (m *RWMutex) RLocker() sync.Locker { return locker{m.core, shared} }
