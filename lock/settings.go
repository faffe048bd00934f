package lock

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	"github.com/locket-service/locket/internal/base/ids"
	"github.com/locket-service/locket/internal/base/lease"
	"github.com/locket-service/locket/lock/conn"
	"github.com/locket-service/locket/lock/internal/base"
	"github.com/locket-service/locket/lock/internal/stream"
	"github.com/locket-service/locket/models"
)

const (
	// maxSessionTTL is the longest TTL of a session.
	maxSessionTTL = 24 * time.Hour
	maxOwner      = 1024
)

// settings apply to a runner or a client.
type settings struct {
	base.Settings
	wrong     error // of the TTL, which is the default then
	callbacks Callbacks
	observers observers
	// noDeadlock is set by WithoutDeadlock.
	noDeadlock bool
}

func newSettings(ttl, retryInterval, longest time.Duration, options []Option) settings {
	s := settings{Settings: base.Settings{TTL: ttl, RetryInterval: retryInterval, Log: slog.New(slog.DiscardHandler)}}
	if ttl == 0 {
		s.TTL = DefaultTTL
	}
	if retryInterval == 0 {
		s.RetryInterval = DefaultRetryInterval
	}
	if s.TTL < time.Second || s.TTL > longest {
		s.wrong = fmt.Errorf("the TTL is %s, and must be 1s to %s", ttl, limit(longest))
		s.TTL = DefaultTTL
	}
	s.ReleaseTimeout = min(5*time.Second, s.TTL)
	s.WaitTTL = DefaultWaitTTL
	s.Margin = lease.Margin(s.TTL)
	for _, option := range options {
		option(&s)
	}
	s.SessionResumed, s.RenewalFailed, s.SessionHeld = s.observers.sessionResumed, s.observers.renewalFailed, s.observers.sessionHeld()
	return s
}

// newClaimSettings is newSettings with a TTL in seconds, as claims have it.
func newClaimSettings(seconds float64, longest time.Duration, options []Option) settings {
	if seconds >= 0 && seconds <= longest.Seconds() {
		return newSettings(time.Duration(math.Round(seconds*float64(time.Second))), 0, longest, options)
	}
	s := newSettings(0, 0, longest, options) // even if seconds is not a number
	s.wrong = fmt.Errorf("the TTL is %vs, and must be 1s to %s", seconds, limit(longest))
	return s
}

func limit(ttl time.Duration) string {
	if ttl == maxTTL {
		return "100 years"
	}
	return ttl.String()
}

// unless returns an error if something is not so.
func unless(ok bool, format string, args ...any) error {
	if ok {
		return nil
	}
	return fmt.Errorf(format, args...)
}

// validate reports all invalid arguments of a runner.
func (r *Runner) validate() error {
	return errors.Join(
		r.settings.validate(r.owner),
		unless(r.usable, "the client or the lock is missing"),
		base.CheckResource(r.key),
		unless(r.RetryInterval > 0, "the retry interval is %s, and must be more than 0", r.RetryInterval),
		unless(r.WaitTTL == 0 || r.WaitTTL >= time.Second, "the wait TTL is %s, and must be 0 or at least 1s", r.WaitTTL),
	)
}

// validate reports all invalid settings common to runners and sessions, and an invalid owner.
func (s *settings) validate(owner string) error {
	return errors.Join(
		s.wrong,
		unless(len(owner) <= maxOwner && utf8.ValidString(owner), "the owner must be UTF-8 of at most %d bytes", maxOwner),
		unless(s.Log != nil, "the logger is nil"),
		unless(s.ReleaseTimeout > 0, "the release timeout is %s, and must be more than 0", s.ReleaseTimeout),
	)
}

// withType returns a copy of a resource, with this type if it has none.
func withType(resource *models.Resource, code models.TypeCode) *models.Resource {
	resource, _ = proto.Clone(resource).(*models.Resource)
	if resource.GetTypeCode() == models.TypeCode_UNKNOWN && resource.GetType() == "" && resource != nil {
		resource.TypeCode = code
	}
	return resource
}

// clientConfig is the configuration of a Client, for its sessions.
type clientConfig struct {
	dial    []conn.Option
	options []Option
	ttl     time.Duration
	timeout time.Duration

	dialer *conn.Dialer
}

// newWant applies options. allowDeadlock is the default.
func newWant(resource string, allowDeadlock bool, options []AcquireOption) (a stream.Want, err error) {
	a.AllowDeadlock = allowDeadlock
	for _, option := range options {
		option.acquire(&a)
	}
	if a.UserData != nil {
		err = checkText("user data", *a.UserData)
	}
	return a, errors.Join(base.CheckResource(resource), checkText("value", a.Value), err)
}

// checkText returns an error if a text is too long or not UTF-8. Sending it would break the stream of a session, or
// make a runner retry forever.
func checkText(what, text string) error {
	return errors.Join(
		unless(len(text) <= base.MaxValue, "the %s has %d bytes, and at most %d are allowed", what, len(text), base.MaxValue),
		unless(utf8.ValidString(text), "the %s is not UTF-8", what),
	)
}

// newClientConfig applies options, and reports everything that is wrong with them.
func newClientConfig(addresses []string, options []ClientOption) (*clientConfig, error) {
	c := &clientConfig{ttl: DefaultTTL}
	for _, option := range options {
		option.client(c)
	}
	dialer, err := conn.NewDialer(addresses, c.dial...)
	c.dialer = dialer
	s := c.settings(c.ttl)
	return c, errors.Join(
		err, s.validate(s.Owner),
		unless(c.timeout >= 0, "the command timeout is %s, and must not be negative", c.timeout),
		unless(!s.callbacks.any(), "WithCallbacks is an option of runners; use Session.Listen"),
		unless(s.RetryInterval == DefaultRetryInterval, "WithRetryInterval is an option of runners"),
	)
}

func (c *clientConfig) settings(ttl time.Duration) settings {
	return newSettings(ttl, 0, maxSessionTTL, c.options)
}

// session returns the config of a session with a TTL and an owner, or an error if it is invalid. Without an owner the
// options' applies.
func (c *clientConfig) session(ttl time.Duration, owner string) (stream.Config, error) {
	s := c.settings(ttl)
	s.Owner = cmp.Or(owner, s.ownerOr(""))
	return stream.Config{Dialer: c.dialer, Settings: s.Settings, Timeout: c.timeout}, s.validate(s.Owner)
}

// UniqueOwner returns a new owner, HOST/PROCESS/RANDOM, which differs for every call. It is the default owner of
// runners.
//
// A caller that locks as the owner of the current holder renews that lock. So if two processes, or two runners of one
// process, use the same owner, both hold the lock. A host's name is not unique: in a rolling restart the new process
// starts before the old one has ended.
func UniqueOwner() string { return ids.NewOwner() }
