package lock

import (
	"log/slog"
	"time"

	"github.com/locket-service/locket/lock/conn"
	"github.com/locket-service/locket/lock/internal/stream"
	"github.com/locket-service/locket/models"
)

const (
	// DefaultTTL is the default TTL of clients, sessions and runners.
	DefaultTTL = 15 * time.Second
	// maxTTL is the longest that the servers allow: 100 years.
	maxTTL = 100 * 365 * 24 * time.Hour
	// DefaultRetryInterval is the default interval between attempts of runners to take a lock.
	DefaultRetryInterval = 5 * time.Second
	// DefaultWaitTTL is the default wait TTL of runners' claims: longer than a restart of a server takes, so that
	// nobody loses a place by that.
	DefaultWaitTTL = time.Minute
)

// Option is an option of runners. Some are options of clients and sessions too, as their comments say.
type Option func(*settings)

// ClientOption is an option of NewClient and NewSession: WithDial, WithTTL, WithCommandTimeout, WithLogger, WithOwner,
// WithObserver, and WithReleaseTimeout, which bounds Close.
type ClientOption interface{ client(*clientConfig) }

// AcquireOption is an option of Acquire, TryAcquire and Do, of an Election, and of a session's Lock and TryLock.
type AcquireOption interface {
	SessionRunnerOption
	acquire(*stream.Want)
}

// SessionRunnerOption is an option of NewSessionRunner and NewSessionPresenceRunner: every Option and every
// AcquireOption is one.
type SessionRunnerOption interface{ runner(*sessionRunnerConfig) }

// MutexOption is an option of NewMutex and NewRWMutex.
type MutexOption interface{ mutex(*mutexCore) }

func (o Option) client(c *clientConfig)        { c.options = append(c.options, o) }
func (o Option) runner(c *sessionRunnerConfig) { c.options = append(c.options, o) }

type clientFunc func(*clientConfig)

func (f clientFunc) client(c *clientConfig) { f(c) }

type acquireFunc func(*stream.Want)

func (f acquireFunc) acquire(w *stream.Want)        { f(w) }
func (f acquireFunc) runner(c *sessionRunnerConfig) { c.asked = append(c.asked, f) }

type mutexFunc func(*mutexCore)

func (f mutexFunc) mutex(m *mutexCore) { f(m) }

// WithLogger sets the logger of a runner, a client or a session: gains and losses at level info and error, failures at
// level warn. By default nothing is logged. A nil logger is an error.
func WithLogger(log *slog.Logger) Option { return func(s *settings) { s.Log = log } }

// WithOwner sets the owner of a runner, a client or a session. It overrides the owner of the resource or claim; ""
// changes nothing. UniqueOwner explains owners.
func WithOwner(owner string) Option { return func(s *settings) { s.Owner = owner } }

// WithRetryInterval sets the pause between attempts to take the lock. It overrides the argument of NewLockRunner. For
// claims the default is DefaultRetryInterval, a quarter of the TTL at most. A failed renewal is repeated after a tenth
// of the TTL, if that is shorter.
func WithRetryInterval(interval time.Duration) Option {
	return func(s *settings) { s.RetryInterval = interval }
}

// WithReleaseTimeout bounds the time that releasing the lock may take at the end. The default is 5 s, or the TTL if
// that is shorter.
func WithReleaseTimeout(timeout time.Duration) Option {
	return func(s *settings) { s.ReleaseTimeout = timeout }
}

// WithWaitTTL sets how long a runner's claim may wait without the server hearing from the runner: at least 1 s, by
// default DefaultWaitTTL or the claim's own wait TTL. Runners that have died delay the queue by this time at most,
// however many they are. A runner that is cut off from all servers for longer loses its place. With 0 it keeps its
// place for ever. Locks and presences do not wait, so the option has no effect on them.
func WithWaitTTL(ttl time.Duration) Option { return func(s *settings) { s.WaitTTL = ttl } }

// WithoutDeadlock says that the process waits for this lock while it holds others of the same owner. Then the servers
// may abort the claim of a NewClaimRunner to end a deadlock, and the runner ends with a *models.DeadlockError. It has
// no effect on other runners.
func WithoutDeadlock() Option { return func(s *settings) { s.noDeadlock = true } }

// WithCallbacks sets functions that a runner calls when something happens to its lock.
func WithCallbacks(callbacks Callbacks) Option {
	return func(s *settings) { s.callbacks = callbacks }
}

// WithDial sets the options of the connections of a client or a session: TLS, credentials.
func WithDial(options ...conn.Option) ClientOption {
	return clientFunc(func(c *clientConfig) { c.dial = append(c.dial, options...) })
}

// WithTTL sets how long a session and its locks last without contact with a server: 1 s to 24 h, by default
// DefaultTTL.
//
// A session has one TTL, so Acquire with another TTL uses another session of the client, which is closed 10 s after
// its last use.
func WithTTL(ttl time.Duration) interface {
	ClientOption
	AcquireOption
} {
	return struct {
		clientFunc
		acquireFunc
	}{
		func(c *clientConfig) { c.ttl = ttl },
		func(w *stream.Want) { w.TTL = ttl },
	}
}

// WithCommandTimeout bounds how long a command of a session or a mutex may stay unanswered; then it fails with
// ErrTimeout. The wait in the queue does not count. By default commands end with their contexts and with the session.
func WithCommandTimeout(timeout time.Duration) interface {
	ClientOption
	MutexOption
} {
	return struct {
		clientFunc
		mutexFunc
	}{
		func(c *clientConfig) { c.timeout = timeout },
		func(m *mutexCore) { m.want.Timeout = timeout },
	}
}

// WithShared takes the lock in shared mode: any number of shared holders hold it together, and an exclusive one waits
// for all of them.
func WithShared() AcquireOption {
	return acquireFunc(func(w *stream.Want) { w.Mode = models.Mode_MODE_SHARED })
}

// WithValue sets a text that lists show to others: up to 65,536 bytes.
func WithValue(value string) AcquireOption {
	return acquireFunc(func(w *stream.Want) { w.Value = value })
}

// WithUserData sets JSON that is stored with the claim: up to 65,536 bytes.
func WithUserData(json string) AcquireOption {
	return acquireFunc(func(w *stream.Want) { w.UserData = &json })
}

// WithPresence announces the holder with a text, such as its address; Presences lists it. After a loss, for example in
// an outage, a Client announces the presence of Acquire, TryAcquire or Do again, until the Hold is released or the
// client is closed. The Hold's context does not end meanwhile; while nothing is announced, its Deadline has passed. An
// Election's campaign and a Session's Lock end with the loss instead.
func WithPresence(value string) AcquireOption {
	return acquireFunc(func(w *stream.Want) { w.Value, w.TypeCode = value, models.TypeCode_PRESENCE })
}

// WithAllowDeadlock sets whether the claim may keep waiting in a deadlock: sessions that wait for each other in a
// cycle. If not, the servers may abort it to end the deadlock, and the error is a *models.DeadlockError. Session.Lock
// allows no deadlocks by default, because the servers see one owner. Acquire and mutexes allow them by default,
// because goroutines wait independently of each other. If goroutines of a client share a claim, the choice of the
// first one applies.
func WithAllowDeadlock(allowed bool) interface {
	AcquireOption
	MutexOption
} {
	return struct {
		acquireFunc
		mutexFunc
	}{
		func(w *stream.Want) { w.AllowDeadlock = allowed },
		func(m *mutexCore) { m.want.AllowDeadlock = allowed },
	}
}

// WithUnexpectedUnlock sets a function that is called when the session loses or releases the lock while the mutex is
// locked: the session is over, an administrator ended the claim, or the program called Session.Unlock or UnlockAll.
// Status.Cause has the reason. Calls follow each other.
func WithUnexpectedUnlock(f func(Status)) MutexOption {
	return mutexFunc(func(m *mutexCore) { m.watcher.Unlocked = toStatus(f) })
}

// WithUnexpectedLock sets a function that is called when the session gets the lock although no mutex and no Acquire of
// the session asked for it: the program called Session.Lock. Session.Unlock releases it. The function is called for as
// long as the program refers to the mutex.
func WithUnexpectedLock(f func(Status)) MutexOption {
	return mutexFunc(func(m *mutexCore) { m.watcher.Locked = toStatus(f) })
}
