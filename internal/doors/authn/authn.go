package authn

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/locket-service/locket/internal/base/follow"
	"github.com/locket-service/locket/internal/doors/auth"
	"github.com/locket-service/locket/internal/rules/access"
)

var (
	// ErrNoCredentials is returned for a caller without credentials.
	ErrNoCredentials = errors.New("the call has no credentials")
	// ErrRefused is wrapped by the errors of credentials that are not accepted. Their texts are for the log; a caller
	// sees only ErrRefused.
	ErrRefused = errors.New("the credentials are not valid")
	// ErrUnavailable is wrapped by the errors of credentials that cannot be checked now, because the keys of an issuer
	// cannot be fetched.
	ErrUnavailable = errors.New("the credentials cannot be checked now")
)

// Config has the ways of authentication.
type Config struct {
	// Certificates accepts client certificates that TLS has verified.
	Certificates bool
	// Verify checks the client certificate of an open connection against the current files and time; nil: the check
	// when the connection was opened is enough.
	Verify func(tls.ConnectionState) error
	// CredentialFile is a credentials file, "" for none.
	CredentialFile string
	// OIDC are the issuers of JWTs.
	OIDC OIDC
	// Proxy has the trusted proxies.
	Proxy Proxy
	// Anonymous accepts callers without credentials, as access.Anonymous. Invalid credentials are still refused.
	Anonymous bool
}

// Enabled reports whether there is any way of authentication.
func (c Config) Enabled() bool {
	return c.Certificates || c.CredentialFile != "" || len(c.OIDC.Issuers) > 0 || c.Proxy.enabled()
}

// OtherThanCertificates reports whether callers without a certificate can be identified.
func (c Config) OtherThanCertificates() bool {
	c.Certificates = false
	return c.Enabled()
}

// Authenticator authenticates callers.
type Authenticator struct {
	config      Config
	credentials *follow.File[*auth.Credentials] // nil without a file
	issuers     *issuers                        // nil without any
	proxy       *proxy
}

// New reads the files for the first time, and adds them to the set that follows them. Its errors name the file or the
// setting.
func New(c Config, files *follow.Set, log *slog.Logger) (*Authenticator, error) {
	a := &Authenticator{config: c}
	var err error
	if c.CredentialFile != "" {
		if a.credentials, err = follow.OpenPrivate("--auth-credentials", follow.One(auth.ParseCredentials), c.CredentialFile); err != nil {
			return nil, err
		}
		files.Add(a.credentials)
	}
	if len(c.OIDC.Issuers) > 0 {
		if a.issuers, err = newIssuers(c.OIDC, files, log); err != nil {
			return nil, err
		}
	}
	a.proxy, err = newProxy(c.Proxy)
	return a, err
}

// Headers returns the names of the headers that Authenticate reads, in lower case. A listener passes on only these.
func (a *Authenticator) Headers() []string {
	return append([]string{authorization}, a.proxy.headers()...)
}

const authorization = "authorization"

// Authenticate returns the identity of the caller of a call, by the peer and the incoming metadata of its context.
func (a *Authenticator) Authenticate(ctx context.Context) (access.Identity, error) {
	p, _ := peer.FromContext(ctx)
	cert, err := a.certificateOf(p)
	if err != nil {
		return access.Identity{}, refused(err)
	}
	proxied := a.proxy.trusts(p, cert)
	if proxied {
		if id, found, err := a.proxy.identity(ctx); found || err != nil {
			return id, refused(err)
		}
	}
	credential, found, err := credentialOf(metadata.ValueFromIncomingContext(ctx, authorization))
	switch {
	case err != nil:
		return access.Identity{}, refused(err)
	case found:
		return a.byCredential(ctx, credential)
	case cert != nil && a.config.Certificates && !proxied:
		id, err := auth.OfCertificate(cert)
		return id, refused(err)
	case a.config.Anonymous && !proxied:
		return access.Identity{Name: access.Anonymous}, nil
	}
	return access.Identity{}, ErrNoCredentials
}

// Known reports whether a call has valid credentials, as far as that can be told without waiting for keys.
func (a *Authenticator) Known(ctx context.Context) bool {
	id, err := a.atOnce(ctx)
	return err == nil && id.Name != access.Anonymous
}

// Still reports whether the credentials of a call still give an identity. It reports true while they cannot be checked.
func (a *Authenticator) Still(ctx context.Context, id access.Identity) bool {
	now, err := a.atOnce(ctx)
	return errors.Is(err, ErrUnavailable) || err == nil && now.Name == id.Name && slices.Equal(now.Groups, id.Groups)
}

// atOnce is Authenticate without waiting.
func (a *Authenticator) atOnce(ctx context.Context) (access.Identity, error) {
	ended, cancel := context.WithCancel(ctx)
	cancel() // so that waiting ends at once
	return a.Authenticate(ended)
}

func refused(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrRefused, err)
}

// byCredential looks in the file first, which is cheap.
func (a *Authenticator) byCredential(ctx context.Context, credential string) (access.Identity, error) {
	if a.credentials != nil {
		if id, err := a.credentials.Current().Find(credential, time.Now()); !errors.Is(err, auth.ErrUnknownCredential) {
			return id, refused(err)
		}
	}
	if a.issuers != nil && strings.Count(credential, ".") == 2 {
		return a.issuers.identity(ctx, credential)
	}
	return access.Identity{}, refused(auth.ErrUnknownCredential)
}

// certificateOf returns the client certificate that TLS has verified, nil for none. If it is no longer valid, it
// returns an error, whatever other credentials the call has.
func (a *Authenticator) certificateOf(p *peer.Peer) (*x509.Certificate, error) {
	if p == nil {
		return nil, nil
	}
	info, ok := p.AuthInfo.(credentials.TLSInfo)
	if !ok || len(info.State.VerifiedChains) == 0 {
		return nil, nil
	}
	if a.config.Verify != nil {
		if err := a.config.Verify(info.State); err != nil {
			return nil, err
		}
	}
	return info.State.VerifiedChains[0][0], nil
}

// Challenges returns the accepted ways of authentication, as values of the header WWW-Authenticate (RFC 9110, section
// 11.6.1). Certificate and Proxy are not registered schemes: there are none for these ways.
func (a *Authenticator) Challenges() []string {
	var challenges []string
	if a.credentials != nil || a.issuers != nil {
		challenges = append(challenges, `Bearer realm="locket"`, `Basic realm="locket", charset="UTF-8"`)
	}
	if a.config.Certificates {
		challenges = append(challenges, `Certificate realm="locket"`)
	}
	if a.config.Proxy.enabled() {
		challenges = append(challenges, `Proxy realm="locket"`)
	}
	return challenges
}

// Accepted describes the accepted ways of authentication.
func (a *Authenticator) Accepted() string {
	var ways []string
	if a.issuers != nil {
		ways = append(ways, "a bearer credential of "+strings.Join(a.issuers.urls(), " or "))
	}
	if a.credentials != nil {
		ways = append(ways, "a credential of the server's credentials file")
	}
	if a.config.Certificates {
		ways = append(ways, "a client certificate")
	}
	if a.config.Proxy.enabled() {
		ways = append(ways, "single sign-on at the proxy")
	}
	return strings.Join(ways, ", or ")
}
