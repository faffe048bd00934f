package lock

import (
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/locket-service/locket/lock/conn"
	"github.com/locket-service/locket/models"
)

const (
	// maxSessionTTL is the longest TTL of a session.
	maxSessionTTL = 24 * time.Hour
	maxOwner      = 1024
)

// ClientOption changes a default of NewClient or NewSession. These are options of both: WithTTL, WithCommandTimeout, WithDial (how to connect), and of the options of runners WithLogger, WithOwner
// and WithReleaseTimeout, which bounds Close.
type ClientOption interface{ configure(*clientConfig) }

// clientConfig is what a Client makes sessions of.
type clientConfig struct {
	dial    []conn.Option
	options []Option
	ttl     time.Duration
	timeout time.Duration

	dialer *conn.Dialer
}

func (o Option) configure(c *clientConfig) { c.options = append(c.options, o) }

// TTLOption is an option of sessions and of Acquire.
type TTLOption time.Duration

// WithTTL sets for how long a session lives without a server hearing from it, and with it everything that it
// holds: 1 s to 24 h, DefaultTTL unless it is set.
//
// The TTL is that of a session. So an Acquire with another TTL than the client's uses another session of the
// client, one for each TTL, which is opened when it is first needed and kept until the client is closed.
func WithTTL(ttl time.Duration) TTLOption { return TTLOption(ttl) }

func (o TTLOption) configure(c *clientConfig) { c.ttl = time.Duration(o) }
func (o TTLOption) acquire(a *acquisition)    { a.ttl = time.Duration(o) }

func (o TTLOption) sessionRunner(h *sessionHolder) { h.asked = append(h.asked, o) }

type commandTimeout time.Duration

func (o commandTimeout) configure(c *clientConfig) { c.timeout = time.Duration(o) }

// WithCommandTimeout bounds how long each command of a session may stay unanswered: it then ends with
// ErrTimeout. The wait for one's turn is no part of it. Without it commands end with their contexts, and
// with the session.
func WithCommandTimeout(timeout time.Duration) ClientOption { return commandTimeout(timeout) }

// AcquireOption changes a default of Acquire, of TryAcquire, of Do, and of a session's Lock and TryLock.
type AcquireOption interface {
	SessionRunnerOption
	acquire(*acquisition)
}

// SessionRunnerOption changes a default of NewSessionRunner and NewSessionPresenceRunner: every Option of runners is one, and
// every AcquireOption.
type SessionRunnerOption interface{ sessionRunner(*sessionHolder) }

func (o Option) sessionRunner(h *sessionHolder) { h.options = append(h.options, o) }

// acquisition is what is asked for.
type acquisition struct {
	mode     models.Mode
	value    string
	typeCode models.TypeCode
	ttl      time.Duration
	deadlock bool // allowed
	userData *string
	// party, if it is set, is who shares the claim with nobody: another pointer is another party.
	party *byte

	// timeout bounds the commands, if it is not 0.
	timeout time.Duration
	// keepsOut is set if what is held excludes other goroutines of the session until it is released, also when
	// the session has lost it meanwhile.
	keepsOut bool
	// watcher, if there is one, is told when the session loses what is held; observer whether it is verified.
	watcher  *watcher
	observer *observer
}

type acquireFunc func(*acquisition)

func (f acquireFunc) acquire(a *acquisition)         { f(a) }
func (f acquireFunc) sessionRunner(h *sessionHolder) { h.asked = append(h.asked, f) }

// WithShared holds the resource together with others that share it.
func WithShared() AcquireOption {
	return acquireFunc(func(a *acquisition) { a.mode = models.Mode_MODE_SHARED })
}

// WithValue sets the text that others see with the lock: up to 65,536 bytes.
func WithValue(value string) AcquireOption {
	return acquireFunc(func(a *acquisition) { a.value = value })
}

// WithUserData sets the JSON text that is stored with the claim.
func WithUserData(json string) AcquireOption {
	return acquireFunc(func(a *acquisition) { a.userData = &json })
}

// WithPresence announces that the holder is alive, with a text such as its address, for Presences.
func WithPresence(value string) AcquireOption {
	return acquireFunc(func(a *acquisition) { a.value, a.typeCode = value, models.TypeCode_PRESENCE })
}

// AllowDeadlock says whether to wait even if that causes a deadlock, in which each session waits for the next. Otherwise
// the error is a *models.DeadlockError. Session.Lock refuses it unless it is allowed: its goroutines are one
// owner to the servers. Acquire and mutexes allow it unless it is refused: their goroutines do not wait for each other, so that a
// deadlock of sessions is often none of goroutines. The servers are asked when no other goroutine of the client
// waits for the resource before this one.
func AllowDeadlock(allowed bool) DeadlockOption { return DeadlockOption(allowed) }

// DeadlockOption is an option of Acquire, of a session's Lock, and of mutexes.
type DeadlockOption bool

func (o DeadlockOption) acquire(a *acquisition)         { a.deadlock = bool(o) }
func (o DeadlockOption) sessionRunner(h *sessionHolder) { h.asked = append(h.asked, o) }
func (o DeadlockOption) mutex(m *mutexCore)             { m.deadlock = bool(o) }

// newAcquisition returns what options ask for. allowDeadlock is what holds without an option.
func newAcquisition(resource string, allowDeadlock bool, options []AcquireOption) (a acquisition, err error) {
	a.deadlock = allowDeadlock
	for _, option := range options {
		option.acquire(&a)
	}
	switch {
	case len(a.value) > maxValue:
		err = fmt.Errorf("the value has %d bytes, and at most %d are allowed", len(a.value), maxValue)
	case !utf8.ValidString(a.value):
		err = errors.New("the value is no UTF-8")
	}
	return a, errors.Join(checkResource(resource), err)
}

func (a *acquisition) shared() bool { return a.mode == models.Mode_MODE_SHARED }

// same reports whether the claim that others have asked for is what is asked for here. deadlock says nothing of
// a claim, but of who may wait for it.
func (a *acquisition) same(other *acquisition) bool {
	return a.mode == other.mode && a.value == other.value && a.typeCode == other.typeCode && a.party == other.party &&
		(a.userData == nil) == (other.userData == nil) && (a.userData == nil || *a.userData == *other.userData)
}

// joins reports whether this may hold together with others, by the claim that they have asked for.
func (a *acquisition) joins(other *acquisition) bool { return a.shared() && a.same(other) }

func (a *acquisition) command(resource string, try bool) *models.LockCommand {
	return &models.LockCommand{
		Resource: resource, Mode: a.mode, Try: try, Value: a.value, TypeCode: a.typeCode, AllowDeadlock: a.deadlock, UserData: a.userData,
	}
}

// newClientConfig returns what options say, or everything that is wrong with them.
func newClientConfig(addresses []string, options []ClientOption) (*clientConfig, error) {
	c := &clientConfig{ttl: DefaultTTL}
	for _, option := range options {
		option.configure(c)
	}
	dialer, err := conn.NewDialer(addresses, c.dial...)
	c.dialer = dialer
	s := c.settings(c.ttl)
	if c.timeout < 0 {
		err = errors.Join(err, fmt.Errorf("the command timeout is %s, and must not be negative", c.timeout))
	}
	if cb := s.callbacks; cb.Acquired != nil || cb.Unverifiable != nil || cb.Verified != nil || cb.Lost != nil || cb.Refused != nil {
		err = errors.Join(err, errors.New("WithCallbacks is an option of runners; use Session.Listen"))
	}
	if s.retryInterval != DefaultRetryInterval {
		err = errors.Join(err, errors.New("WithRetryInterval is an option of runners"))
	}
	if err = errors.Join(err, s.validateSession()); err != nil {
		return nil, err
	}
	return c, nil
}

// settings returns those of a session with a TTL.
func (c *clientConfig) settings(ttl time.Duration) settings {
	return newSettings(ttl, 0, maxSessionTTL, c.options)
}

// validateSession returns everything that is wrong with the settings of a session.
func (s *settings) validateSession() error {
	wrong := []error{s.wrong}
	need := func(ok bool, format string, args ...any) {
		if !ok {
			wrong = append(wrong, fmt.Errorf(format, args...))
		}
	}
	need(s.log != nil, "the logger is nil")
	need(s.releaseTimeout > 0, "the release timeout is %s, and must be more than 0", s.releaseTimeout)
	need(len(s.owner) <= maxOwner && utf8.ValidString(s.owner), "the owner must be UTF-8 of at most %d bytes", maxOwner)
	return errors.Join(wrong...)
}
