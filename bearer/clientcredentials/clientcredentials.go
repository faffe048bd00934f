// Package clientcredentials gets access tokens for a program from an OIDC provider (OAuth 2.0 client credentials, RFC
// 6749, section 4.4). It caches each until shortly before it expires.
package clientcredentials

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"

	"github.com/locket-service/locket/internal/base/certs"
	"github.com/locket-service/locket/internal/base/follow"
)

// defaultTimeout limits a request to the provider.
const defaultTimeout = 10 * time.Second

// Config configures a Source.
type Config struct {
	// Issuer is the provider's URL; discovery finds the endpoint that issues credentials.
	Issuer string
	// ID is the program's client id at the provider.
	ID string
	// SecretFile has the client secret, on a line of its own. It is read again for every access token; while it
	// cannot be read, the last secret is used.
	SecretFile string
	// Scopes may be empty.
	Scopes []string
	// Audience is sent as the parameters audience and resource, because some providers use one and some the other; ""
	// for neither.
	Audience string
	// CA is a PEM file with the authorities of the provider's certificate; "" for the system's. It is checked for
	// every request; while it cannot be used, the last valid authorities are used.
	CA string
}

// Source is a bearer.Source.
type Source struct {
	config  Config
	timeout time.Duration // of a request to the provider
	client  *http.Client
	secret  *follow.File[string]

	mu     sync.Mutex
	access *oauth2.Token
	until  time.Time // when it expires, by the monotonic clock; zero: never
	asked  *asked    // nil: no request is under way
}

// expiryMargin is how long before it expires an access token is not used any more.
const expiryMargin = 10 * time.Second

// asked is a request to the provider. done is closed when it has ended; the rest is its result.
type asked struct {
	done   chan struct{}
	access *oauth2.Token
	err    error
}

// New returns a source that requests an access token when one is first needed.
func New(c Config) (*Source, error) {
	if c.Issuer == "" || c.ID == "" || c.SecretFile == "" {
		return nil, errors.New("client credentials need an issuer, a client id and a file with the secret")
	}
	transport, err := c.transport()
	if err != nil {
		return nil, err
	}
	secret := follow.New("the client secret", follow.One(func(content []byte) (string, error) { return strings.TrimSpace(string(content)), nil }), c.SecretFile)
	return &Source{config: c, timeout: defaultTimeout, client: &http.Client{Transport: transport, Timeout: defaultTimeout}, secret: secret}, nil
}

// transport returns the HTTP transport for requests to the provider.
func (c Config) transport() (http.RoundTripper, error) {
	system := http.DefaultTransport.(*http.Transport).Clone()
	if c.CA == "" {
		return system, nil
	}
	file, err := follow.Open("the authorities of the issuer", follow.One(func(content []byte) (*http.Transport, error) {
		pool, err := certs.ParseAuthorities(content)
		trusting := system.Clone()
		trusting.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool}
		return trusting, err
	}), c.CA)
	return fresh{file}, err
}

// fresh returns the transport with the current authorities of the file.
type fresh struct{ file *follow.File[*http.Transport] }

// RoundTrip implements http.RoundTripper.
func (f fresh) RoundTrip(r *http.Request) (*http.Response, error) {
	transport, _ := f.file.Fresh(r.Context()) // the last valid one if the file cannot be used
	return transport.RoundTrip(r)
}

// Credential implements bearer.Source. Callers that arrive during a request to the provider wait for its result, each
// until its context ends. The request itself has its own timeout.
func (s *Source) Credential(ctx context.Context) (string, error) {
	access, asked := s.current()
	if asked == nil {
		return access.AccessToken, nil
	}
	var err error
	select {
	case <-asked.done:
		access, err = asked.access, asked.err
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if err != nil {
		return "", fmt.Errorf("no access token from %s: %w", s.config.Issuer, err)
	}
	return access.AccessToken, nil
}

// current returns the access token if it is valid, and otherwise the request for another one.
func (s *Source) current() (*oauth2.Token, *asked) {
	s.mu.Lock()
	defer s.mu.Unlock()
	// Valid reads the machine's clock, which may have been set back; the monotonic clock stands still while the
	// machine sleeps.
	if s.access.Valid() && (s.until.IsZero() || time.Until(s.until) > expiryMargin) {
		return s.access, nil
	}
	if s.asked == nil {
		s.asked = &asked{done: make(chan struct{})}
		go s.ask(s.asked)
	}
	return nil, s.asked
}

func (s *Source) ask(a *asked) {
	defer close(a.done)
	a.access, a.err = s.fetch(context.Background())
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.asked = nil; a.err != nil {
		return
	}
	if s.access, s.until = a.access, (time.Time{}); !a.access.Expiry.IsZero() {
		s.until = time.Now().Add(time.Until(a.access.Expiry))
	}
}

func (s *Source) fetch(ctx context.Context) (*oauth2.Token, error) {
	ctx, cancel := context.WithTimeout(oidc.ClientContext(ctx, s.client), s.timeout)
	defer cancel()
	secret, err := s.secret.Fresh(ctx)
	if secret == "" && err != nil {
		return nil, err
	}
	provider, err := oidc.NewProvider(ctx, s.config.Issuer)
	if err != nil {
		return nil, err
	}
	credentials := clientcredentials.Config{
		ClientID: s.config.ID, ClientSecret: secret, TokenURL: provider.Endpoint().TokenURL, Scopes: s.config.Scopes,
	}
	if s.config.Audience != "" {
		credentials.EndpointParams = url.Values{"audience": {s.config.Audience}, "resource": {s.config.Audience}}
	}
	return credentials.Token(ctx)
}
