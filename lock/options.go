package lock

import (
	"log/slog"
	"time"

	"github.com/locket-service/locket/lock/conn"
	"github.com/locket-service/locket/lock/internal/stream"
	"github.com/locket-service/locket/models"
)

const (
	// DefaultTTL is the TTL of a runner that is given 0.
	DefaultTTL = 15 * time.Second
	// maxTTL is the longest that the servers allow: 100 years.
	maxTTL = 100 * 365 * 24 * time.Hour
	// DefaultRetryInterval is the retry interval of a runner that is given 0.
	DefaultRetryInterval = 5 * time.Second
	// DefaultWaitTTL is the wait TTL of a claim that is given none: longer than it takes to reach
	// another server after the loss of one, or to restart it, so that nobody loses a place by that.
	DefaultWaitTTL = time.Minute
)

// Option changes a default of a runner. Some are options of clients and sessions too, and say so.
type Option func(*settings)

// ClientOption changes a default of NewClient or NewSession: WithDial (how to connect), WithTTL, WithCommandTimeout, and of the
// options of runners WithLogger, WithOwner, WithObserver, and WithReleaseTimeout, which bounds Close.
type ClientOption interface{ client(*clientConfig) }

// AcquireOption changes a default of Acquire, of TryAcquire, of Do, of an Election, and of a session's Lock and TryLock.
type AcquireOption interface {
	SessionRunnerOption
	acquire(*stream.Want)
}

// SessionRunnerOption changes a default of NewSessionRunner and NewSessionPresenceRunner: every Option of runners is one, and
// every AcquireOption.
type SessionRunnerOption interface{ runner(*sessionRunnerConfig) }

// MutexOption changes a default of NewMutex and NewRWMutex.
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

// WithLogger has the runner, or the client, log to a logger instead of to none: gains and losses at level
// info and error, failures at level warn. A nil logger is refused.
func WithLogger(log *slog.Logger) Option { return func(s *settings) { s.Log = log } }

// WithOwner sets the owner, in place of the one in the resource or claim. "" changes nothing. UniqueOwner explains
// owners.
func WithOwner(owner string) Option { return func(s *settings) { s.Owner = owner } }

// WithRetryInterval sets how long after an attempt to take the lock the next one follows, in
// place of the argument: DefaultRetryInterval for a claim, unless it is set, and a quarter of
// the TTL at most. A renewal that failed is tried again after a tenth of the TTL, if that is
// shorter.
func WithRetryInterval(interval time.Duration) Option {
	return func(s *settings) { s.RetryInterval = interval }
}

// WithReleaseTimeout bounds the time that releasing the lock may take at the end: 5 s, or
// the TTL if that is shorter, unless it is set.
func WithReleaseTimeout(timeout time.Duration) Option {
	return func(s *settings) { s.ReleaseTimeout = timeout }
}

// WithWaitTTL sets for how long the claim of a runner may wait without the server hearing from
// the runner, 1 s at least: DefaultWaitTTL unless it is set, or the claim has a wait TTL. It is
// for how long a runner that is gone can delay those behind it in the queue, all that are gone
// together; and for how long one may be cut off from all servers without losing its place. With
// 0 it keeps its place for ever. It means nothing for locks and presences, which do not wait.
func WithWaitTTL(ttl time.Duration) Option { return func(s *settings) { s.WaitTTL = ttl } }

// WithoutDeadlock says that the runner does not wait independently of others with its owner: a process waits for one lock
// while it holds another one. Then the servers may abort the claim of a NewClaimRunner to end a deadlock, and the runner
// ends with a *models.DeadlockError. It means nothing for other runners.
func WithoutDeadlock() Option { return func(s *settings) { s.noDeadlock = true } }

// WithCallbacks has the runner report what happens.
func WithCallbacks(callbacks Callbacks) Option {
	return func(s *settings) { s.callbacks = callbacks }
}

// WithDial sets how a client or a session connects: TLS, credentials.
func WithDial(options ...conn.Option) ClientOption {
	return clientFunc(func(c *clientConfig) { c.dial = append(c.dial, options...) })
}

// WithTTL sets how long a session and its locks live without contact with a server: 1 s to 24 h, DefaultTTL by default.
//
// A session has one TTL. So Acquire with another TTL uses another session of the client, which is opened on demand and
// closed 10 s after its last use.
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

// WithCommandTimeout bounds how long each command of a session, or of a mutex, may stay unanswered: it then ends with
// ErrTimeout. The wait in the queue is no part of it. Without it commands end with their contexts, and
// with the session.
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

// WithShared holds the resource together with others that share it.
func WithShared() AcquireOption {
	return acquireFunc(func(w *stream.Want) { w.Mode = models.Mode_MODE_SHARED })
}

// WithValue sets the text that others see with the lock: up to 65,536 bytes.
func WithValue(value string) AcquireOption {
	return acquireFunc(func(w *stream.Want) { w.Value = value })
}

// WithUserData sets the JSON text that is stored with the claim: up to 65,536 bytes.
func WithUserData(json string) AcquireOption {
	return acquireFunc(func(w *stream.Want) { w.UserData = &json })
}

// WithPresence announces that the holder is alive, with a text such as its address, for Presences. What a Client has announced by
// Acquire, TryAcquire or Do it announces again by itself after a loss, as after an outage, until the Hold is released or the client is
// closed: the context of the Hold goes on, and its Deadline has passed while nothing is announced. A campaign of an Election, and a
// Lock of a Session, end with the loss.
func WithPresence(value string) AcquireOption {
	return acquireFunc(func(w *stream.Want) { w.Value, w.TypeCode = value, models.TypeCode_PRESENCE })
}

// WithAllowDeadlock says whether to keep waiting when sessions wait for each other in a circle. Otherwise the servers
// may abort the claim to end the deadlock: the error is a *models.DeadlockError. Session.Lock allows no deadlock by
// default: to the servers its goroutines are one owner. Acquire and mutexes allow deadlocks by default: their
// goroutines do not wait for each other, so a deadlock of sessions is often not one of goroutines. If goroutines of a
// client wait for the same claim, the first one's choice applies.
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

// WithUnexpectedUnlock has a function called when the mutex is locked, and the session loses or gives up the lock
// in another way than by Unlock of the mutex: the session is over, an administrator ended the claim, somebody
// called Session.Unlock or UnlockAll. Status.Cause says why. Calls follow each other.
func WithUnexpectedUnlock(f func(Status)) MutexOption {
	return mutexFunc(func(m *mutexCore) { m.watcher.Unlocked = toStatus(f) })
}

// WithUnexpectedLock has a function called when the session gets the lock, and nobody wants it by a mutex or an Acquire
// of the session: somebody called Session.Lock. Session.Unlock gives it up. The session does not keep the mutex: the function is
// called for as long as the program refers to the mutex.
func WithUnexpectedLock(f func(Status)) MutexOption {
	return mutexFunc(func(m *mutexCore) { m.watcher.Locked = toStatus(f) })
}
