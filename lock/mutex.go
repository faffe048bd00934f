package lock

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/locket-service/locket/lock/internal/base"
	"github.com/locket-service/locket/lock/internal/stream"
	"github.com/locket-service/locket/models"
)

// toStatus returns a function for what a session knows, nil for nil.
func toStatus(f func(Status)) func(stream.Status) {
	if f == nil {
		return nil
	}
	return func(s stream.Status) { f(statusOf(s)) }
}

// mutexCore holds a resource for a mutex, shared or not.
type mutexCore struct {
	session *Session
	key     string
	want    stream.Want
	watcher stream.Watcher
}

func newMutexCore(session *Session, key string, options []MutexOption) *mutexCore {
	m := &mutexCore{session: session, key: key, want: stream.Want{AllowDeadlock: true, Timeout: session.stream.Timeout(), KeepsOut: true}}
	m.want.Watcher = &m.watcher
	for _, option := range options {
		option.mutex(m)
	}
	if m.watcher.Locked != nil {
		session.stream.Watch(key, &m.watcher)
	}
	return m
}

func (m *mutexCore) acquire(ctx context.Context, mode models.Mode, try bool) (*Hold, error) {
	if err := base.CheckResource(m.key); err != nil {
		return nil, fmt.Errorf("lock %q: %w", m.key, err)
	}
	want := m.want
	want.Mode = mode
	return acquire(ctx, &stream.Holder{Session: m.session.stream, Resource: m.key, Want: want, Try: try}, base.Observer{})
}

// release releases a hold, within the command timeout.
func (m *mutexCore) release(h *Hold) error {
	if h == nil {
		return fmt.Errorf("unlock %q: %w", m.key, ErrNotLocked)
	}
	return h.Release(context.Background())
}

// acquired turns the error of a try into whether it was had.
func acquired(err error) (bool, error) {
	if errors.Is(err, models.ErrLockCollision) {
		return false, nil
	}
	return err == nil, err
}

// Mutex is an exclusive lock on a resource, for the goroutines of one session and everybody else: like a
// sync.Mutex, and across machines. The goroutines of a session share one claim of it, first come, first served;
// a grant serves those who waited for it here, and then the claim goes to the end of the queue.
//
// A Mutex is held by no goroutine in particular: any goroutine may unlock it, and one that locks it twice waits for
// itself. Go has no identity of goroutines; an owner that may lock again is in package reentrant.
//
// If the session loses the lock, the holder is notified (WithUnexpectedUnlock, Held, Session.Listen); within
// the session the mutex stays locked until it is unlocked.
type Mutex struct {
	core *mutexCore
	mu   sync.Mutex
	hold *Hold
}

// NewMutex returns the mutex of a resource for a session. Mutexes of one session and one resource exclude
// each other. An invalid name is an error of Lock.
func NewMutex(session *Session, resource string, options ...MutexOption) *Mutex {
	return &Mutex{core: newMutexCore(session, resource, options)}
}

// Lock waits for its turn, and locks. It ends with the error of ctx if that is done first, with ErrTimeout, or with an
// error of the session; the mutex is not locked then.
func (m *Mutex) Lock(ctx context.Context) error { return m.lock(ctx, false) }

// TryLock locks, and reports whether it could at once.
func (m *Mutex) TryLock(ctx context.Context) (bool, error) { return acquired(m.lock(ctx, true)) }

func (m *Mutex) lock(ctx context.Context, try bool) error {
	hold, err := m.core.acquire(ctx, models.Mode_MODE_EXCLUSIVE, try)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.hold = hold
	return nil
}

// Unlock unlocks, and returns when the server knows, or another goroutine of the session has taken over. It is
// ErrNotLocked if the mutex is not locked. After any other error the server will know later. A lock that
// was lost is unlocked without one.
func (m *Mutex) Unlock() error {
	m.mu.Lock()
	hold := m.hold
	m.hold = nil
	m.mu.Unlock()
	return m.core.release(hold)
}

// Held returns the fencing token, and whether the mutex is locked and the session holds the lock at this moment.
func (m *Mutex) Held() (token uint64, held bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return heldBy(m.hold)
}

func heldBy(hold *Hold) (token uint64, held bool) {
	if hold == nil || hold.Err() != nil {
		return 0, false
	}
	return hold.Token(), true
}

// Locker returns the mutex as a sync.Locker, for code that knows nothing of errors: its Lock waits for any time, and
// panics when the session is over; so does its Unlock when the mutex is not locked.
func (m *Mutex) Locker() sync.Locker { return locker{m.Lock, m.Unlock} }

type locker struct {
	lock   func(context.Context) error
	unlock func() error
}

// Lock implements sync.Locker.
func (l locker) Lock() {
	if err := l.lock(context.Background()); err != nil {
		panic(err)
	}
}

// Unlock implements sync.Locker.
func (l locker) Unlock() {
	if err := l.unlock(); errors.Is(err, ErrNotLocked) {
		panic(err)
	}
}
