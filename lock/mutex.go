package lock

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"

	"github.com/locket-service/locket/lock/internal/base"
	"github.com/locket-service/locket/lock/internal/stream"
	"github.com/locket-service/locket/models"
)

// toStatus converts a callback; nil stays nil.
func toStatus(f func(Status)) func(stream.Status) {
	if f == nil {
		return nil
	}
	return func(s stream.Status) { f(statusOf(s)) }
}

// mutexCore holds a resource for mutexes of both kinds.
type mutexCore struct {
	session *Session
	key     string
	want    stream.Want
	watcher stream.Watcher

	mu    sync.Mutex
	holds map[models.Mode][]*Hold // the oldest first
}

func newWriteLock(session *Session, key string, options []MutexOption) writeLock {
	m := &mutexCore{
		session: session, key: key, holds: make(map[models.Mode][]*Hold),
		want: stream.Want{AllowDeadlock: true, Timeout: session.stream.Timeout, ExcludesAfterLoss: true},
	}
	m.want.Watcher = &m.watcher
	for _, option := range options {
		option.mutex(m)
	}
	if m.watcher.Locked != nil {
		runtime.AddCleanup(m, func(stop func()) { stop() }, session.stream.Watch(key, &m.watcher))
	}
	return writeLock{m}
}

func (m *mutexCore) lock(ctx context.Context, mode models.Mode, try bool) error {
	if err := base.CheckResource(m.key); err != nil {
		return fmt.Errorf("lock %q: %w", m.key, err)
	}
	want := m.want
	want.Mode = mode
	hold, err := m.session.observers.acquire(ctx, m.key, m.session.Owner(), &stream.Holder{Session: m.session.stream, Resource: m.key, Want: want, Try: try}, base.Observer{})
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.holds[mode] = append(m.holds[mode], hold)
	return nil
}

func (m *mutexCore) tryLock(ctx context.Context, mode models.Mode) (bool, error) {
	err := m.lock(ctx, mode, true)
	if errors.Is(err, models.ErrLockCollision) {
		return false, nil
	}
	return err == nil, err
}

// unlock releases the oldest hold, within the command timeout.
func (m *mutexCore) unlock(mode models.Mode) error {
	m.mu.Lock()
	holds := m.holds[mode]
	if len(holds) == 0 {
		m.mu.Unlock()
		return fmt.Errorf("unlock %q: %w", m.key, ErrNotLocked)
	}
	m.holds[mode] = holds[1:]
	m.mu.Unlock()
	return holds[0].Release(context.Background())
}

// held returns the fencing token of the latest hold of some modes, and whether that is held at this moment.
func (m *mutexCore) held(modes ...models.Mode) (token uint64, held bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, mode := range modes {
		if holds := m.holds[mode]; len(holds) > 0 {
			if token, held = heldBy(holds[len(holds)-1]); held {
				return token, true
			}
		}
	}
	return 0, false
}

// writeLock has the methods common to Mutex and RWMutex.
type writeLock struct{ core *mutexCore }

// Lock waits in the queue and locks the mutex; an RWMutex for writing. It returns ctx's error if ctx is done first,
// ErrTimeout, or an error of the session. After an error the mutex is not locked.
func (m *writeLock) Lock(ctx context.Context) error { return m.core.lock(ctx, exclusive, false) }

// TryLock locks the mutex if that is possible at once, and reports whether it did.
func (m *writeLock) TryLock(ctx context.Context) (bool, error) { return m.core.tryLock(ctx, exclusive) }

// Unlock unlocks the mutex. It returns when the server has released the lock, or when another goroutine of the session
// has taken over. It returns ErrNotLocked if the mutex is not locked, and nil for a lock that was lost. After any
// other error the server releases the lock later.
func (m *writeLock) Unlock() error { return m.core.unlock(exclusive) }

// Locker returns the mutex as a sync.Locker. Its Lock waits without limit and panics when the session is over. Its
// Unlock panics when the mutex is not locked.
func (m *writeLock) Locker() sync.Locker { return locker{m.core, exclusive} }

// Mutex is an exclusive lock like a sync.Mutex, for goroutines of any number of processes. The goroutines of one
// session share one claim, first come, first served. A grant serves the goroutines that waited when it came; then the
// claim goes to the end of the queue.
//
// Any goroutine may unlock a Mutex. A goroutine that locks it twice waits for itself; package reentrant has mutexes
// for that.
//
// If the session loses the lock, the holder is notified (WithUnexpectedUnlock, Held, Session.Listen). Within the
// session the mutex stays locked until it is unlocked.
type Mutex struct{ writeLock }

// NewMutex returns the mutex of a resource for a session. Mutexes of one session and one resource exclude each other.
// Lock returns an error if the resource's name is invalid.
func NewMutex(session *Session, resource string, options ...MutexOption) *Mutex {
	return &Mutex{newWriteLock(session, resource, options)}
}

// Held returns the fencing token, and whether the mutex is locked and the session holds the lock at this moment.
func (m *Mutex) Held() (token uint64, held bool) { return m.core.held(exclusive) }

const (
	exclusive = models.Mode_MODE_EXCLUSIVE
	shared    = models.Mode_MODE_SHARED
)

type locker struct {
	core *mutexCore
	mode models.Mode
}

// Lock implements sync.Locker.
func (l locker) Lock() {
	if err := l.core.lock(context.Background(), l.mode, false); err != nil {
		panic(err)
	}
}

func (l locker) Unlock() {
	if err := l.core.unlock(l.mode); errors.Is(err, ErrNotLocked) {
		panic(err)
	}
}

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
