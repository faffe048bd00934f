// Package clientcredentials gets credentials from an OIDC provider for a program (OAuth 2.0, RFC
// 6749, section 4.4). It keeps each until shortly before its end.
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

	"github.com/locket-service/locket/internal/certs"
	"github.com/locket-service/locket/internal/follow"
)

// timeout bounds a request to the provider.
const timeout = 10 * time.Second

// Config says where to get access tokens, and by which right.
type Config struct {
	// Issuer is the provider's address; discovery finds where it gives them.
	Issuer string
	// ID names the program at the provider.
	ID string
	// SecretFile has its secret, in a line of its own. It is looked at for every access token; while it
	// cannot be read, the last one is used.
	SecretFile string
	// Scopes may be empty.
	Scopes []string
	// Audience is sent as the parameters audience and resource, unless it is empty: providers
	// differ in which they use.
	Audience string
	// CA is a file in PEM with the authorities of the provider's certificate; "": the system's.
	CA string
}

// Source is a bearer.Source.
type Source struct {
	config Config
	client *http.Client
	secret *follow.File[string]

	mu     sync.Mutex
	access *oauth2.Token
}

// New returns a source that asks for an access token when the first is needed.
func New(c Config) (*Source, error) {
	if c.Issuer == "" || c.ID == "" || c.SecretFile == "" {
		return nil, errors.New("client credentials need an issuer, a client id and a file with the secret")
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	if c.CA != "" {
		file, err := follow.Open("the authorities of the issuer", follow.One(certs.ParseAuthorities), c.CA)
		if err != nil {
			return nil, err
		}
		pool := file.Current()
		transport.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool}
	}
	secret := follow.New("the client secret", follow.One(func(content []byte) (string, error) { return strings.TrimSpace(string(content)), nil }), c.SecretFile)
	return &Source{config: c, client: &http.Client{Transport: transport, Timeout: timeout}, secret: secret}, nil
}

// Credential implements bearer.Source. Callers that come while an access token is fetched wait for it.
func (s *Source) Credential(ctx context.Context) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.access.Valid() { // one that ends within 10 s is not
		return s.access.AccessToken, nil
	}
	access, err := s.fetch(ctx)
	if err != nil {
		return "", fmt.Errorf("no access token from %s: %w", s.config.Issuer, err)
	}
	s.access = access
	return access.AccessToken, nil
}

func (s *Source) fetch(ctx context.Context) (*oauth2.Token, error) {
	ctx, cancel := context.WithTimeout(oidc.ClientContext(ctx, s.client), timeout)
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
