package keychain

import (
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"
	"unicode/utf8"

	"github.com/locket-service/locket/bearer"
	"github.com/locket-service/locket/internal/base/lease"
)

const (
	// DefaultTTL is the default of WithTTL.
	DefaultTTL = time.Minute
	// DefaultWaitTTL is the default of WithWaitTTL.
	DefaultWaitTTL = time.Minute
	// DefaultReleaseTimeout is the default of WithReleaseTimeout.
	DefaultReleaseTimeout = 5 * time.Second
	// DefaultRequestTimeout is the default of WithRequestTimeout.
	DefaultRequestTimeout = 10 * time.Second
	// DefaultLongPoll is the default of WithLongPoll.
	DefaultLongPoll = 20 * time.Second
)

// Option is an option of New.
type Option func(*settings)

type settings struct {
	tls            *tls.Config
	files          *Files
	more           []string                      // addresses of servers
	credential     func() (bearer.Source, error) // nil for none
	insecure       bool
	transport      http.RoundTripper
	retries        Retries
	requestTimeout time.Duration
	releaseTimeout time.Duration
	longPoll       time.Duration
	fatal          func(error)
	alert          func(error)
	log            *slog.Logger
	claim          []ClaimOption
}

// WithFailover adds servers that share one database. The keychain uses one server until it fails (no answer in time, a
// broken connection, 5xx, an answer that is not the service's), then the next one, in turn. It pauses for long only
// after each has failed once. The more servers there are, the shorter is the timeout of an attempt, so that a renewal
// can try all of them before the trust window ends.
func WithFailover(urls ...string) Option {
	return func(s *settings) { s.more = append(s.more, urls...) }
}

// WithTLS sets the TLS configuration for https servers. It must not be changed afterwards.
func WithTLS(config *tls.Config) Option { return func(s *settings) { s.tls = config } }

// WithTLSFiles is WithTLS with files. New reads them, and each connection reads them again. While they cannot be read,
// or certificate and key do not match, the last valid ones stay in use.
func WithTLSFiles(files Files) Option { return func(s *settings) { s.files = &files } }

// WithCredential sends a bearer credential (RFC 6750) with every request to the servers, but not to a Location on
// another host. It needs https unless the servers are on this machine, or WithInsecure is given. "" means none.
func WithCredential(text string) Option {
	return func(s *settings) {
		s.credential = nil
		if text != "" {
			s.credential = func() (bearer.Source, error) { return bearer.Text(text), nil }
		}
	}
}

// WithCredentialFile is WithCredential with a file, which has the credential on a line of its own. New returns an
// error if the file cannot be read. It is read again for every request, so a new credential is used at once; while it
// cannot be read, the last valid one is used.
func WithCredentialFile(file string) Option {
	return func(s *settings) { s.credential = func() (bearer.Source, error) { return bearer.OpenFile(file) } }
}

// WithCredentialSource is WithCredential with a source that returns a credential for each request, such as package
// bearer/clientcredentials. If the source fails, the request fails, and is repeated as if the server could not be
// reached.
func WithCredentialSource(source bearer.Source) Option {
	return func(s *settings) { s.credential = func() (bearer.Source, error) { return source, nil } }
}

// WithInsecure allows a bearer credential in plain text on the way to another machine.
func WithInsecure() Option { return func(s *settings) { s.insecure = true } }

// WithTransport sets the transport of the requests. It must respect their contexts and close its own idle connections.
// It configures TLS itself.
func WithTransport(transport http.RoundTripper) Option {
	return func(s *settings) { s.transport = transport }
}

// WithRetries sets the pauses before failed requests are repeated. A field that is 0 keeps its default.
func WithRetries(retries Retries) Option { return func(s *settings) { s.retries = retries } }

// WithRequestTimeout bounds a request that does not wait in the queue: DefaultRequestTimeout by default. A renewal has
// a third of the TTL, if that is shorter; a request to end a claim has a third of the release timeout.
func WithRequestTimeout(timeout time.Duration) Option {
	return func(s *settings) { s.requestTimeout = timeout }
}

// WithReleaseTimeout bounds how long the release of a claim, and Close, may take: DefaultReleaseTimeout by default.
func WithReleaseTimeout(timeout time.Duration) Option {
	return func(s *settings) { s.releaseTimeout = timeout }
}

// WithLongPoll sets how long one request may wait in the queue if the server offers that (Prefer: wait), in whole
// seconds: DefaultLongPoll by default, at most half of the TTL. With 0 the keychain polls instead.
func WithLongPoll(longest time.Duration) Option {
	return func(s *settings) { s.longPoll = longest }
}

// WithFatal sets a function that is called when a claim is lost or the server refuses a request. It gets the error,
// and may end the program or call Close. It runs in a goroutine of its own, and Close does not wait for it.
func WithFatal(fatal func(error)) Option { return func(s *settings) { s.fatal = fatal } }

// WithAlert sets a function that is called when an operator should know of a failure at once, because it may be
// permanent: the credentials were refused (401, 403, 407), or a proxy has answered instead of Locket. It is called for
// each claim, for the first of consecutive failures, in a goroutine of its own. The requests are repeated all the
// same.
func WithAlert(alert func(error)) Option { return func(s *settings) { s.alert = alert } }

// WithLogger sets the logger: gains at level info, losses and alerts (WithAlert) at level error, failed requests at
// level warn. By default nothing is logged. It must not be nil.
func WithLogger(log *slog.Logger) Option { return func(s *settings) { s.log = log } }

// WithDefaults sets options for every claim. A claim's own options override them.
func WithDefaults(options ...ClaimOption) Option {
	return func(s *settings) { s.claim = append(s.claim, options...) }
}

func newSettings(options []Option) settings {
	s := settings{
		requestTimeout: DefaultRequestTimeout, releaseTimeout: DefaultReleaseTimeout,
		longPoll: DefaultLongPoll, log: slog.New(slog.DiscardHandler),
	}
	for _, option := range options {
		option(&s)
	}
	s.retries = s.retries.withDefaults()
	s.requestTimeout, s.releaseTimeout = min(s.requestTimeout, maxTimeout), min(s.releaseTimeout, maxTimeout)
	return s
}

// maxTimeout is the longest timeout, in effect none. A multiple of it does not overflow.
const maxTimeout = maxTTL / postTimeoutFactor

// validate returns everything that is wrong with the options.
func (s *settings) validate() error {
	wrong := []error{s.retries.validate()}
	need := func(ok bool, format string, args ...any) {
		if !ok {
			wrong = append(wrong, fmt.Errorf(format, args...))
		}
	}
	need(s.requestTimeout > 0, "the request timeout is %s, and must be more than 0", s.requestTimeout)
	need(s.releaseTimeout > 0, "the release timeout is %s, and must be more than 0", s.releaseTimeout)
	need(s.longPoll >= 0, "the long poll is %s, and must not be negative", s.longPoll)
	need(s.tls == nil || s.files == nil, "WithTLS and WithTLSFiles: only one can be given")
	need(s.transport == nil || s.tls == nil && s.files == nil, "WithTransport: TLS must be set there")
	need(s.log != nil, "the logger is nil")
	return errors.Join(wrong...)
}

// ClaimOption is an option of Keychain.Claim.
type ClaimOption func(*claimSettings)

type claimSettings struct {
	ttl, timeout, renewPeriod time.Duration
	leastMargin               time.Duration
	userData                  any
	hasUserData               bool
	mode                      Mode
	owner                     string
	waitTTL                   time.Duration
}

// Mode is the mode of a claim: an exclusive claim holds its resource alone, shared claims hold it together.
type Mode string

// The modes.
const (
	Exclusive Mode = "exclusive"
	Shared    Mode = "shared"
)

// WithTTL sets how long the server keeps the claim after the last renewal: at least a second, DefaultTTL by default.
// The keychain renews it.
func WithTTL(ttl time.Duration) ClaimOption { return func(s *claimSettings) { s.ttl = ttl } }

// WithMargin sets how long before the end of its lease a claim that cannot be renewed is lost, for a holder that needs
// time to stop. The default is also the minimum: a twentieth of the TTL, at least 100 ms. The maximum is half of the
// TTL.
func WithMargin(margin time.Duration) ClaimOption {
	return func(s *claimSettings) { s.leastMargin = margin }
}

// WithTimeout bounds the time until the claim is active. By default, and with 0, only the context does.
func WithTimeout(timeout time.Duration) ClaimOption {
	return func(s *claimSettings) { s.timeout = timeout }
}

// WithUserData stores data with the claim: any value that can be encoded as JSON.
func WithUserData(data any) ClaimOption {
	return func(s *claimSettings) { s.userData, s.hasUserData = data, true }
}

// WithMode sets the mode of the claim. Only Locket has modes; the parameter is sent only if this option is given.
func WithMode(mode Mode) ClaimOption { return func(s *claimSettings) { s.mode = mode } }

// WithOwner sets the owner of the claim. Only Locket has owners; the parameter is sent only if this option is given.
func WithOwner(owner string) ClaimOption { return func(s *claimSettings) { s.owner = owner } }

// WithWaitTTL sets how long the claim may wait without the server hearing from the keychain: at least 15 s,
// DefaultWaitTTL by default; 0 means without limit. If this process is killed, its claim leaves the queue after this
// time. A keychain that is cut off from all servers for longer loses its place, and claims again. Only Locket has wait
// TTLs: if a server refuses the parameter, the keychain continues without it.
func WithWaitTTL(ttl time.Duration) ClaimOption { return func(s *claimSettings) { s.waitTTL = ttl } }

// WithRenewPeriod sets the time between renewals: a third of the TTL by default, half of it at most.
func WithRenewPeriod(period time.Duration) ClaimOption {
	return func(s *claimSettings) { s.renewPeriod = period }
}

// minWaitTTL leaves time for three attempts to ask, which may be 5 s apart.
const minWaitTTL = 15 * time.Second

// maxTTL is the longest TTL that Locket accepts.
const maxTTL = 100 * 365 * 24 * time.Hour

func checkTTL(ttl time.Duration) error {
	if ttl < time.Second || ttl > maxTTL {
		return fmt.Errorf("the TTL is %s, and must be 1s to 100 years", ttl)
	}
	return nil
}

func (s *claimSettings) validate(resource string) error {
	wrong := []error{checkTTL(s.ttl)}
	if resource == "" {
		wrong = append(wrong, errors.New("the resource has no name"))
	}
	if !utf8.ValidString(resource) || !utf8.ValidString(s.owner) { // JSON would replace the invalid bytes
		wrong = append(wrong, errors.New("the resource or the owner is not UTF-8"))
	}
	if s.timeout < 0 {
		wrong = append(wrong, fmt.Errorf("the timeout is %s, and must not be negative", s.timeout))
	}
	if s.leastMargin < 0 {
		wrong = append(wrong, fmt.Errorf("the margin is %s, and must not be negative", s.leastMargin))
	}
	if s.waitTTL != 0 && (s.waitTTL < minWaitTTL || s.waitTTL > maxTTL) {
		wrong = append(wrong, fmt.Errorf("the wait TTL is %s, and must be 0 or %s to 100 years", s.waitTTL, minWaitTTL))
	}
	if s.renewPeriod < 0 || s.renewPeriod > s.ttl/2 {
		wrong = append(wrong, fmt.Errorf("the renew period is %s, and must not be more than half of the TTL, %s", s.renewPeriod, s.ttl))
	}
	return errors.Join(wrong...)
}

// margin is how long before the end of a lease its trust window ends.
func (s *claimSettings) margin(ttl time.Duration) time.Duration {
	return max(lease.Margin(ttl), min(s.leastMargin, ttl/2))
}

// registration is the body of POST. It has Locket's own parameters only if they were set, because a server of the
// REST requirements refuses unknown parameters. It has a wait TTL unless the server has refused one.
type registration struct {
	Resource string          `json:"resource"`
	TTL      float64         `json:"ttl"`
	UserData json.RawMessage `json:"user_data,omitempty"`
	Owner    string          `json:"owner,omitempty"`
	Mode     Mode            `json:"mode,omitempty"`
	WaitTTL  float64         `json:"wait_ttl,omitempty"`
}

// registration returns the body of POST.
func (s *claimSettings) registration(resource string) (registration, error) {
	r := registration{Resource: resource, TTL: s.ttl.Seconds(), Owner: s.owner, Mode: s.mode, WaitTTL: s.waitTTL.Seconds()}
	if s.hasUserData {
		text, err := json.Marshal(s.userData)
		if err != nil {
			return r, fmt.Errorf("the user data: %w", err)
		}
		r.UserData = text
	}
	return r, nil
}
