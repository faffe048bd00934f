package authn

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/go-jose/go-jose/v4"

	"github.com/locket-service/locket/internal/base/certs"
	"github.com/locket-service/locket/internal/base/follow"
	"github.com/locket-service/locket/internal/base/loopback"
	"github.com/locket-service/locket/internal/doors/auth"
	"github.com/locket-service/locket/internal/rules/access"
)

// OIDC configures which JWTs (RFC 7519) are accepted.
type OIDC struct {
	Issuers []Issuer
	// Audience must be among the audiences of a JWT. It is required: JWTs for other services are not accepted.
	Audience string
	// UserClaim is the claim that names the user, DefaultUserClaim if empty. GroupsClaim is the claim with the groups,
	// "" for none.
	UserClaim, GroupsClaim string
	// KeyFile is a file with the keys of the issuer (a JWK set, RFC 7517), to be used instead of discovery. Then there
	// may be only one issuer.
	KeyFile string
	// CA is a PEM file with the authorities of the issuers' certificates; "" for the system's.
	CA string
}

// DefaultUserClaim is the default of OIDC.UserClaim.
const DefaultUserClaim = "sub"

// Issuer is an OIDC provider.
type Issuer struct {
	// Name is the prefix of its identities, without the colon.
	Name string
	// URL is the issuer in its JWTs, and the base of its discovery document.
	URL string
}

// ParseIssuers parses the issuers of a flag: URL, or NAME=URL, which all but the first need.
func ParseIssuers(texts []string) ([]Issuer, error) {
	var all []Issuer
	seen := make(map[string]bool)
	for _, text := range texts {
		name, address, named := strings.Cut(text, "=")
		if !named || strings.Contains(name, ":") { // a URL with a query
			name, address = strings.TrimSuffix(auth.OIDCPrefix, ":"), text
		}
		u, err := url.Parse(address)
		switch {
		case err != nil, u.Host == "", u.Scheme != "https" && (u.Scheme != "http" || !loopback.Is(u.Hostname())):
			return nil, fmt.Errorf("the issuer %q: must be an address as in https://login.example.com, with a name as in corp=https://login.example.com if there are several; http is for loopback only", text)
		case seen[name]:
			return nil, fmt.Errorf("the issuer %q: another one has the name %q; give each a name as in corp=https://login.example.com", text, name)
		case name+":" == auth.CertPrefix, name+":" == auth.CredentialPrefix, name+":" == auth.ProxyPrefix, name == "spiffe", strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-") != "", name == "":
			return nil, fmt.Errorf("the issuer %q: the name %q is taken, or has other characters than a-z, 0-9 and -", text, name)
		}
		seen[name] = true
		all = append(all, Issuer{name, address})
	}
	return all, nil
}

const (
	// skew is the accepted difference between the clocks of an issuer and of this machine.
	skew = 30 * time.Second
	// maxCached bounds the cache of valid JWTs, in bytes. It has room for one per stream, since each stream checks
	// its JWT every few seconds. cacheTime is how long they are cached. A JWT whose key is withdrawn is accepted for
	// at most cacheTime and keyRefresh together.
	maxCached = 64 << 20
	cacheTime = time.Minute
)

// algorithms are those with public keys: with a shared key, everybody who can check a JWT can make one.
var algorithms = []string{
	oidc.RS256, oidc.RS384, oidc.RS512, oidc.ES256, oidc.ES384, oidc.ES512, oidc.PS256, oidc.PS384, oidc.PS512, oidc.EdDSA,
}

// issuers check JWTs. They cache valid ones by their hashes, so that a caller costs one check of a signature a minute.
type issuers struct {
	config OIDC
	client *http.Client
	byURL  map[string]*issuer
	file   *follow.File[*jose.JSONWebKeySet] // nil without

	mu     sync.Mutex
	known  map[[sha256.Size]byte]knownJWT
	cached int // size of the known ones
}

type issuer struct {
	Issuer
	keys oidc.KeySet
}

type knownJWT struct {
	identity access.Identity
	until    time.Time
	size     int
}

func newIssuers(c OIDC, files *follow.Set, log *slog.Logger) (*issuers, error) {
	if c.Audience == "" {
		return nil, errors.New("the audience of the JWTs is missing")
	}
	if c.UserClaim == "" {
		c.UserClaim = DefaultUserClaim
	}
	all := &issuers{config: c, byURL: make(map[string]*issuer), known: make(map[[sha256.Size]byte]knownJWT)}
	client, err := newClient(c.CA, files)
	if err != nil {
		return nil, err
	}
	all.client = client
	if c.KeyFile != "" {
		if len(c.Issuers) > 1 {
			return nil, errors.New("a file of keys is for one issuer, and there are several")
		}
		if all.file, err = follow.Open("--oidc-keys", follow.One(parseKeyFile), c.KeyFile); err != nil {
			return nil, err
		}
		files.Add(all.file)
	}
	for _, i := range c.Issuers {
		var keys oidc.KeySet = fileKeys{all.file}
		if all.file == nil {
			remote := &remoteKeys{issuer: i.URL, client: client, log: log}
			remote.fetch()
			keys = remote
		}
		all.byURL[i.URL] = &issuer{i, keys}
	}
	return all, nil
}

// newClient returns the HTTP client for requests to issuers.
func newClient(ca string, files *follow.Set) (*http.Client, error) {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	if ca == "" {
		return clientOver(transport), nil
	}
	file, err := follow.Open("--oidc-ca", follow.One(func(text []byte) (*http.Transport, error) {
		pool, err := certs.ParseAuthorities(text)
		trusting := transport.Clone()
		trusting.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool}
		return trusting, err
	}), ca)
	if err != nil {
		return nil, err
	}
	files.Add(file)
	return clientOver(current{file}), nil
}

func clientOver(transport http.RoundTripper) *http.Client {
	return &http.Client{Transport: bounded{transport}, Timeout: fetchTimeout, CheckRedirect: stayEncrypted}
}

// current is the transport with the authorities that the file has now.
type current struct{ file *follow.File[*http.Transport] }

// RoundTrip implements http.RoundTripper.
func (c current) RoundTrip(r *http.Request) (*http.Response, error) {
	return c.file.Current().RoundTrip(r)
}

// stayEncrypted refuses redirects from HTTPS to plain HTTP.
func stayEncrypted(r *http.Request, before []*http.Request) error {
	if before[0].URL.Scheme == "https" && r.URL.Scheme != "https" {
		return errPlainKeys
	}
	if len(before) >= 5 {
		return errors.New("too many redirects")
	}
	return nil
}

func (s *issuers) urls() (urls []string) {
	for _, i := range s.config.Issuers {
		urls = append(urls, i.URL)
	}
	return urls
}

// identity returns the identity that a JWT names, after it has checked the signature, issuer, audience and times.
func (s *issuers) identity(ctx context.Context, jwt string) (access.Identity, error) {
	hash := sha256.Sum256([]byte(jwt))
	if id, found := s.remembered(hash); found {
		return id, nil
	}
	id, verified, err := s.verify(ctx, jwt)
	if err != nil {
		return access.Identity{}, err
	}
	s.remember(hash, id, verified.Expiry.Add(skew))
	return id, nil
}

// verify is identity without the cache. It also returns the JWT.
func (s *issuers) verify(ctx context.Context, jwt string) (access.Identity, *oidc.IDToken, error) {
	i := s.byURL[issuerOf(jwt)]
	if i == nil {
		return access.Identity{}, nil, refused(errors.New("the JWT is not of an accepted issuer"))
	}
	verified, err := i.verify(ctx, s.config.Audience, jwt)
	if err != nil {
		return access.Identity{}, nil, err
	}
	id, err := s.named(i, verified)
	return id, verified, refused(err)
}

// verify checks the signature, issuer, audience and end of a JWT.
func (i *issuer) verify(ctx context.Context, audience, jwt string) (*oidc.IDToken, error) {
	verifier := oidc.NewVerifier(i.URL, i.keys, &oidc.Config{
		ClientID: audience, SupportedSigningAlgs: algorithms, Now: func() time.Time { return time.Now().Add(-skew) },
	})
	var unavailable error
	verified, err := verifier.Verify(context.WithValue(ctx, unavailableKey{}, &unavailable), jwt)
	if unavailable != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, unavailable)
	}
	return verified, refused(err)
}

func (s *issuers) named(i *issuer, jwt *oidc.IDToken) (access.Identity, error) {
	var claims map[string]any
	if err := jwt.Claims(&claims); err != nil {
		return access.Identity{}, err
	}
	user, ok := claims[s.config.UserClaim].(string)
	if !ok {
		return access.Identity{}, fmt.Errorf("the JWT has no claim %q that is a text", s.config.UserClaim)
	}
	if s.config.UserClaim == "email" && claims["email_verified"] != true {
		return access.Identity{}, errors.New("the email of the JWT is not verified")
	}
	if err := kindOf(claims); err != nil {
		return access.Identity{}, err
	}
	for _, name := range []string{"nbf", "iat"} {
		if err := started(name, claims[name]); err != nil {
			return access.Identity{}, err
		}
	}
	groups, err := textsOf(claims[s.config.GroupsClaim])
	if err != nil {
		return access.Identity{}, fmt.Errorf("the claim %q: %w", s.config.GroupsClaim, err)
	}
	return auth.NewIdentity(i.Name+":", user, groups)
}

// kinds are the values of "typ" in access tokens and ID tokens, in the header (RFC 9068, section 2.1) or among the
// claims, where some providers put it.
var kinds = map[string]bool{
	"jwt": true, "at+jwt": true, "application/at+jwt": true, "application/jwt": true, "bearer": true, "id": true,
	"access": true, "access_token": true, "id_token": true,
}

// kindOf returns an error for a JWT whose claims show that it is not an access token or an ID token, for example a
// logout token (OpenID Connect Back-Channel Logout 1.0, section 2.4).
func kindOf(claims map[string]any) error {
	if _, logout := claims["events"]; logout {
		return errors.New("the JWT reports an event, and is no access token")
	}
	switch kind, given := claims["typ"]; kind := kind.(type) {
	case string:
		if kinds[strings.ToLower(kind)] {
			return nil
		}
		return fmt.Errorf("the JWT is of the type %q", kind)
	default:
		if given {
			return errors.New("the type of the JWT is not a text")
		}
		return nil
	}
}

// started returns an error if a JWT becomes valid, or was issued, in the future.
func started(name string, claim any) error {
	switch at := claim.(type) {
	case nil:
		return nil
	case float64:
		if at <= float64(time.Now().Add(skew).Unix()) {
			return nil
		}
		return fmt.Errorf("the time %s of the JWT is in the future", name)
	}
	return fmt.Errorf("the time %s of the JWT is not a number", name)
}

// textsOf returns the value of a claim that is a string or a list of strings.
func textsOf(claim any) ([]string, error) {
	switch claim := claim.(type) {
	case nil:
		return nil, nil
	case string:
		return []string{claim}, nil
	case []any:
		texts := make([]string, len(claim))
		for i, one := range claim {
			text, ok := one.(string)
			if !ok {
				return nil, errors.New("must be texts")
			}
			texts[i] = text
		}
		return texts, nil
	}
	return nil, errors.New("must be a text or a list of texts")
}

func (s *issuers) remembered(hash [sha256.Size]byte) (access.Identity, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	known, found := s.known[hash]
	if !found || time.Now().After(known.until) {
		return access.Identity{}, false
	}
	return known.identity, true
}

// sizeOf returns about how many bytes the cache takes for a JWT of an identity.
func sizeOf(id access.Identity) int {
	size := 200 + len(id.Name) + len(id.Credential) // with the hash, and its place in the map
	for _, group := range id.Groups {
		size += 16 + len(group)
	}
	return size
}

// remember caches the identity of a valid JWT.
func (s *issuers) remember(hash [sha256.Size]byte, id access.Identity, expiry time.Time) {
	size, until := sizeOf(id), time.Now().Add(cacheTime)
	if expiry.Before(until) {
		until = expiry
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cached+size > maxCached {
		for other, of := range s.known {
			if time.Now().After(of.until) {
				s.forget(other)
			}
		}
		if s.cached > maxCached/2 { // so that the cache is rarely searched
			clear(s.known)
			s.cached = 0
		}
	}
	s.forget(hash)
	s.known[hash] = knownJWT{id, until, size}
	s.cached += size
}

// forget removes a JWT from the cache. s.mu is locked.
func (s *issuers) forget(hash [sha256.Size]byte) {
	s.cached -= s.known[hash].size
	delete(s.known, hash)
}

// issuerOf returns the issuer that a JWT claims, unverified, to choose its verifier.
func issuerOf(jwt string) string {
	_, rest, _ := strings.Cut(jwt, ".")
	payload, _, _ := strings.Cut(rest, ".")
	text, err := base64.RawURLEncoding.DecodeString(payload)
	var claims struct {
		Issuer string `json:"iss"`
	}
	if err != nil || json.Unmarshal(text, &claims) != nil {
		return ""
	}
	return claims.Issuer
}
