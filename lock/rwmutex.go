package lock

import (
	"context"
	"sync"

	"github.com/locket-service/locket/models"
)

// RWMutex is a lock on a resource that one writer holds, or any number of readers: like a
// sync.RWMutex, and across machines. What Mutex says of goroutines and losses holds for it.
// Readers of a session share one claim; one that comes later joins when nobody waits for the resource.
type RWMutex struct {
	write *Mutex
	mu    sync.Mutex
	reads []*Hold
}

// NewRWMutex returns the mutex of a resource for a session; see NewMutex.
func NewRWMutex(session *Session, resource string, options ...MutexOption) *RWMutex {
	return &RWMutex{write: NewMutex(session, resource, options...)}
}

// Lock locks for writing; its errors are those of Mutex.Lock.
func (m *RWMutex) Lock(ctx context.Context) error { return m.write.Lock(ctx) }

// TryLock locks for writing, and reports whether it could at once.
func (m *RWMutex) TryLock(ctx context.Context) (bool, error) { return m.write.TryLock(ctx) }

// Unlock ends a write lock; its errors are those of Mutex.Unlock.
func (m *RWMutex) Unlock() error { return m.write.Unlock() }

// RLock locks for reading; its errors are those of Mutex.Lock.
func (m *RWMutex) RLock(ctx context.Context) error { return m.rlock(ctx, false) }

// TryRLock locks for reading, and reports whether it could at once.
func (m *RWMutex) TryRLock(ctx context.Context) (bool, error) { return acquired(m.rlock(ctx, true)) }

func (m *RWMutex) rlock(ctx context.Context, try bool) error {
	hold, err := m.write.core.acquire(ctx, models.Mode_MODE_SHARED, try)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.reads = append(m.reads, hold)
	return nil
}

// RUnlock ends one read lock, the oldest; its errors are those of Mutex.Unlock.
func (m *RWMutex) RUnlock() error {
	m.mu.Lock()
	var hold *Hold
	if len(m.reads) > 0 {
		hold, m.reads = m.reads[0], m.reads[1:]
	}
	m.mu.Unlock()
	return m.write.core.release(hold)
}

// Held returns the fencing token, and whether the mutex is locked, for writing or for reading, and the session holds the
// lock at this moment.
func (m *RWMutex) Held() (token uint64, held bool) {
	if token, held = m.write.Held(); held {
		return token, true
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.reads) == 0 {
		return 0, false
	}
	return heldBy(m.reads[len(m.reads)-1])
}

// Locker returns the write lock as a sync.Locker; see Mutex.Locker.
func (m *RWMutex) Locker() sync.Locker { return m.write.Locker() }

// RLocker returns the read lock as a sync.Locker; see Mutex.Locker.
func (m *RWMutex) RLocker() sync.Locker { return locker{m.RLock, m.RUnlock} }
