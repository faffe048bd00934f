package lock

import (
	"context"
	"fmt"
	"sync"

	"github.com/locket-service/locket/models"
)

// RWMutex is a lock on a resource that one writer holds, or any number of readers: like a
// sync.RWMutex, and across machines. What Mutex says of goroutines and losses holds for it.
// Readers of a session share one claim; one that comes later joins when nobody waits for the resource.
type RWMutex struct {
	core *mutexCore
	mu   sync.Mutex
	rwHolds
}

// rwHolds are what a party holds of a RWMutex.
type rwHolds struct {
	write *Hold
	reads []*Hold
}

// NewRWMutex returns the mutex of a resource for a session; see NewMutex.
func NewRWMutex(session *Session, resource string, options ...MutexOption) *RWMutex {
	return &RWMutex{core: newMutexCore(session, resource, options)}
}

// Lock locks for writing; its errors are those of Mutex.Lock.
func (m *RWMutex) Lock(ctx context.Context) error { return m.lock(ctx, false) }

// TryLock locks for writing, and reports whether it could at once.
func (m *RWMutex) TryLock(ctx context.Context) (bool, error) { return acquired(m.lock(ctx, true)) }

func (m *RWMutex) lock(ctx context.Context, try bool) error {
	hold, err := m.core.acquire(ctx, models.Mode_MODE_EXCLUSIVE, try)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.write = hold
	return nil
}

// Unlock ends a write lock; its errors are those of Mutex.Unlock.
func (m *RWMutex) Unlock() error {
	m.mu.Lock()
	hold := m.write
	m.write = nil
	m.mu.Unlock()
	if hold == nil {
		return fmt.Errorf("unlock %q: %w", m.core.key, ErrNotLocked)
	}
	return m.core.release(hold)
}

// RLock locks for reading; its errors are those of Mutex.Lock.
func (m *RWMutex) RLock(ctx context.Context) error { return m.rlock(ctx, false) }

// TryRLock locks for reading, and reports whether it could at once.
func (m *RWMutex) TryRLock(ctx context.Context) (bool, error) { return acquired(m.rlock(ctx, true)) }

func (m *RWMutex) rlock(ctx context.Context, try bool) error {
	hold, err := m.core.acquire(ctx, models.Mode_MODE_SHARED, try)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.reads = append(m.reads, hold)
	return nil
}

// RUnlock ends one read lock; its errors are those of Mutex.Unlock.
func (m *RWMutex) RUnlock() error {
	m.mu.Lock()
	hold := m.popRead()
	m.mu.Unlock()
	if hold == nil {
		return fmt.Errorf("unlock %q: %w", m.core.key, ErrNotLocked)
	}
	return m.core.release(hold)
}

// popRead takes the oldest read lock away, nil if there is none.
func (h *rwHolds) popRead() *Hold {
	if len(h.reads) == 0 {
		return nil
	}
	hold := h.reads[0]
	h.reads = h.reads[1:]
	return hold
}

// held returns the token of the write lock, or else of a read lock.
func (h *rwHolds) held() (token uint64, held bool) {
	if h.write != nil {
		return heldBy(h.write)
	}
	if len(h.reads) > 0 {
		return heldBy(h.reads[len(h.reads)-1])
	}
	return 0, false
}

// Held returns the fencing token, and whether the mutex is locked, for writing or for reading, and the session holds the
// lock at this moment.
func (m *RWMutex) Held() (token uint64, held bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.held()
}

// Locker returns the write lock as a sync.Locker; see Mutex.Locker.
func (m *RWMutex) Locker() sync.Locker { return locker{m.Lock, m.Unlock} }

// RLocker returns the read lock as a sync.Locker; see Mutex.Locker.
func (m *RWMutex) RLocker() sync.Locker { return locker{m.RLock, m.RUnlock} }
