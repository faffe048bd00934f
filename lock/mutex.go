package lock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/locket-service/locket/models"
)

// MutexOption changes a default of NewMutex and NewRWMutex. WithCommandTimeout is one too, for the commands of this
// mutex in place of those of its session, and so is AllowDeadlock.
type MutexOption interface{ mutex(*mutexCore) }

type mutexFunc func(*mutexCore)

func (f mutexFunc) mutex(m *mutexCore) { f(m) }

func (o commandTimeout) mutex(m *mutexCore) { m.timeout = time.Duration(o) }

// OnUnexpectedUnlock has a function called when the mutex is locked, and the session loses or gives up the lock
// in another way than by Unlock of the mutex: the session is over, an administrator ended the claim, somebody
// called Session.Unlock or UnlockAll. Status.Cause says why. Calls follow each other.
func OnUnexpectedUnlock(f func(Status)) MutexOption {
	return mutexFunc(func(m *mutexCore) { m.watcher.unlocked = f })
}

// OnUnexpectedLock has a function called when the session gets the lock, and nobody wants it by a mutex or an Acquire
// of the session: somebody called Session.Lock. Session.Unlock gives it up.
func OnUnexpectedLock(f func(Status)) MutexOption {
	return mutexFunc(func(m *mutexCore) { m.watcher.locked = f })
}

// mutexCore is what a mutex and its handles have in common.
type mutexCore struct {
	session  *Session
	key      string
	timeout  time.Duration
	deadlock bool // allowed
	watcher  watcher
}

func newMutexCore(session *Session, key string, options []MutexOption) *mutexCore {
	m := &mutexCore{session: session, key: key, timeout: session.timeout, deadlock: true}
	for _, option := range options {
		option.mutex(m)
	}
	if m.watcher.locked != nil {
		session.watch(key, &m.watcher)
	}
	return m
}

// watch has a watcher told of unexpected locks of a resource for as long as the session lasts.
func (s *Session) watch(key string, w *watcher) {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.gateOf(key)
	g.watchers = append(g.watchers, w)
}

func (m *mutexCore) acquire(ctx context.Context, mode models.Mode, try bool) (*Hold, error) {
	if err := checkResource(m.key); err != nil {
		return nil, fmt.Errorf("lock %q: %w", m.key, err)
	}
	return m.session.acquire(ctx, m.key, acquisition{mode: mode, deadlock: m.deadlock, timeout: m.timeout, keepsOut: true, watcher: &m.watcher}, try)
}

// release releases a hold, within the command timeout.
func (m *mutexCore) release(h *Hold) error {
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
// Who holds a Mutex is nobody in particular: any goroutine may unlock it, and one that locks it twice waits for
// itself. Go has no identity of goroutines; an owner that may lock again is in package reentrant.
//
// If the session loses the lock, the holder is told (OnUnexpectedUnlock, Held, Session.Listen); within
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
	if hold == nil {
		return fmt.Errorf("unlock %q: %w", m.core.key, ErrNotLocked)
	}
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
