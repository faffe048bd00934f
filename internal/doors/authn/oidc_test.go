package authn_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/locket-service/locket/internal/doors/authn"
	"github.com/locket-service/locket/tests/harness"
)

// provider is an OIDC provider: discovery, and keys that it can rotate.
type provider struct {
	*httptest.Server
	t       testing.TB
	fetches atomic.Int64 // of its keys
	down    atomic.Bool

	mu   sync.Mutex
	keys []jose.JSONWebKey
}

func newProvider(t testing.TB) *provider {
	t.Helper()
	p := &provider{t: t}
	mux := http.NewServeMux()
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if p.down.Load() {
			http.Error(w, "down", http.StatusBadGateway)
			return
		}
		mux.ServeHTTP(w, r)
	}))
	mux.HandleFunc("/.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(map[string]any{"issuer": p.URL, "jwks_uri": p.URL + "/keys", "authorization_endpoint": p.URL, "token_endpoint": p.URL})
	})
	mux.HandleFunc("/keys", func(w http.ResponseWriter, _ *http.Request) {
		p.fetches.Add(1)
		_, _ = w.Write(p.public())
	})
	t.Cleanup(p.Close)
	p.rotate("one")
	return p
}

// public returns the public keys as a JWK set.
func (p *provider) public() []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	var set jose.JSONWebKeySet
	for _, key := range p.keys {
		set.Keys = append(set.Keys, key.Public())
	}
	text, err := json.Marshal(set)
	must(p.t, err)
	return text
}

// rotate makes a key the only one.
func (p *provider) rotate(id string) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(p.t, err)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.keys = []jose.JSONWebKey{{Key: key, KeyID: id, Algorithm: "ES256", Use: "sig"}}
}

type claims map[string]any

// jwt returns a JWT with the usual claims, changed by more; nil removes a claim.
func (p *provider) jwt(more claims) string {
	p.mu.Lock()
	key := p.keys[0]
	p.mu.Unlock()
	return sign(p.t, jose.SigningKey{Algorithm: jose.ES256, Key: key}, p.claims(more))
}

// typed is jwt with a type in its header.
func (p *provider) typed(kind string, more claims) string {
	p.mu.Lock()
	key := p.keys[0]
	p.mu.Unlock()
	return signWith(p.t, jose.SigningKey{Algorithm: jose.ES256, Key: key}, (&jose.SignerOptions{}).WithType(jose.ContentType(kind)), p.claims(more))
}

func (p *provider) claims(more claims) claims {
	all := claims{"iss": p.URL, "aud": "locket", "sub": "alice", "exp": time.Now().Add(time.Hour).Unix(), "iat": time.Now().Unix(), "groups": []string{"dev", "ops"}}
	for name, value := range more {
		all[name] = value
		if value == nil {
			delete(all, name)
		}
	}
	return all
}

func sign(t testing.TB, key jose.SigningKey, payload claims) string {
	t.Helper()
	return signWith(t, key, nil, payload)
}

func signWith(t testing.TB, key jose.SigningKey, options *jose.SignerOptions, payload claims) string {
	t.Helper()
	signer, err := jose.NewSigner(key, options)
	must(t, err)
	text, err := json.Marshal(payload)
	must(t, err)
	signed, err := signer.Sign(text)
	must(t, err)
	jwt, err := signed.CompactSerialize()
	must(t, err)
	return jwt
}

func (p *provider) authenticator(change func(*authn.OIDC)) *authn.Authenticator {
	config := authn.OIDC{Issuers: []authn.Issuer{{Name: "oidc", URL: p.URL}}, Audience: "locket", GroupsClaim: "groups"}
	if change != nil {
		change(&config)
	}
	return newAuthenticator(p.t, authn.Config{OIDC: config})
}

// ask returns the identity of a JWT.
func ask(t testing.TB, a *authn.Authenticator, jwt string) string {
	t.Helper()
	return outcome(a.Authenticate(call{headers: []string{"authorization", "Bearer " + jwt}}.context(t.Context())))
}

// decided is ask for a JWT that is accepted or refused when the keys of its issuer have been fetched: on a busy machine that takes longer than
// a call waits.
func decided(t testing.TB, a *authn.Authenticator, jwt string) (got string) {
	t.Helper()
	harness.Until(t, "a JWT is accepted or refused", func() bool {
		got = ask(t, a, jwt)
		return got != "unavailable"
	})
	return got
}

// becomesAlice waits until a new JWT is accepted.
func (p *provider) becomesAlice(a *authn.Authenticator) {
	p.t.Helper()
	harness.Until(p.t, "a JWT is accepted", func() bool { return ask(p.t, a, p.jwt(nil)) == alice })
}

const alice = "oidc:alice oidc:dev oidc:ops"

func TestOIDC(t *testing.T) {
	p, other := newProvider(t), newProvider(t)
	a := p.authenticator(nil)
	now := time.Now()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	must(t, err)
	foreign := sign(t, jose.SigningKey{Algorithm: jose.RS256, Key: jose.JSONWebKey{Key: key, KeyID: "one"}}, p.claims(nil))
	shared := sign(t, jose.SigningKey{Algorithm: jose.HS256, Key: jose.JSONWebKey{Key: p.public(), KeyID: "one"}}, p.claims(nil))
	part := func(v any) string {
		text, err := json.Marshal(v)
		must(t, err)
		return base64.RawURLEncoding.EncodeToString(text)
	}
	unsigned := part(claims{"alg": "none"}) + "." + part(p.claims(nil)) + "."
	good := p.jwt(nil)
	parts := strings.Split(good, ".")
	for what, c := range map[string]struct{ jwt, want string }{
		"good":                       {good, alice},
		"of several audiences":       {p.jwt(claims{"aud": []string{"a", "locket"}}), alice},
		"without groups":             {p.jwt(claims{"groups": nil}), "oidc:alice"},
		"one group":                  {p.jwt(claims{"groups": "dev"}), "oidc:alice oidc:dev"},
		"groups that are none":       {p.jwt(claims{"groups": []any{1}}), "refused"},
		"for somebody else":          {p.jwt(claims{"aud": "other"}), "refused"},
		"for nobody":                 {p.jwt(claims{"aud": nil}), "refused"},
		"expired":                    {p.jwt(claims{"exp": now.Add(-time.Minute).Unix()}), "refused"},
		"expired within the skew":    {p.jwt(claims{"exp": now.Add(-20 * time.Second).Unix()}), alice},
		"without an end":             {p.jwt(claims{"exp": nil}), "refused"},
		"not valid yet":              {p.jwt(claims{"nbf": now.Add(time.Hour).Unix()}), "refused"},
		"valid soon, within skew":    {p.jwt(claims{"nbf": now.Add(20 * time.Second).Unix()}), alice},
		"not valid yet by a minute":  {p.jwt(claims{"nbf": now.Add(time.Minute).Unix()}), "refused"},
		"issued in a minute":         {p.jwt(claims{"iat": now.Add(time.Minute).Unix()}), "refused"},
		"issued within skew":         {p.jwt(claims{"iat": now.Add(20 * time.Second).Unix()}), alice},
		"without a time of issue":    {p.jwt(claims{"iat": nil}), alice},
		"a text for a time":          {p.jwt(claims{"nbf": "now"}), "refused"},
		"for logout":                 {p.jwt(claims{"events": claims{"http://schemas.openid.net/event/backchannel-logout": claims{}}}), "refused"},
		"of type access":             {p.typed("at+jwt", nil), alice},
		"of type JWT":                {p.typed("JWT", nil), alice},
		"of type logout":             {p.typed("logout+jwt", nil), "refused"},
		"of type DPoP":               {p.typed("dpop+jwt", nil), "refused"},
		"that says Bearer":           {p.jwt(claims{"typ": "Bearer"}), alice},
		"that says ID":               {p.jwt(claims{"typ": "ID"}), alice},
		"that says Refresh":          {p.jwt(claims{"typ": "Refresh"}), "refused"},
		"that says Logout":           {p.jwt(claims{"typ": "Logout"}), "refused"},
		"that says a number":         {p.jwt(claims{"typ": 1}), "refused"},
		"of another issuer":          {other.jwt(nil), "refused"},
		"says another issuer":        {p.jwt(claims{"iss": other.URL}), "refused"},
		"of another's key":           {other.jwt(claims{"iss": p.URL}), "refused"},
		"without a user":             {p.jwt(claims{"sub": nil}), "refused"},
		"an empty user":              {p.jwt(claims{"sub": ""}), "refused"},
		"a number for a user":        {p.jwt(claims{"sub": 7}), "refused"},
		"alg none":                   {unsigned, "refused"},
		"another algorithm's key":    {foreign, "refused"},
		"shared key: the public one": {shared, "refused"},
		"changed":                    {parts[0] + "." + part(p.claims(claims{"sub": "root"})) + "." + parts[2], "refused"},
		"cut off":                    {good[:len(good)-2], "refused"},
		"nothing":                    {"..", "refused"},
		"no JSON":                    {"a.b.c", "refused"},
	} {
		if got := decided(t, a, c.jwt); got != c.want {
			t.Errorf("a JWT %s: %q, want %q", what, got, c.want)
		}
	}
	email := p.authenticator(func(c *authn.OIDC) { c.UserClaim = "email"; c.GroupsClaim = "" })
	for verified, want := range map[any]string{true: "oidc:a@b", false: "refused", nil: "refused", "true": "refused", 1: "refused"} {
		if got := decided(t, email, p.jwt(claims{"email": "a@b", "email_verified": verified})); got != want {
			t.Errorf("verified %v: %q", verified, got)
		}
	}
}

func TestSeveralIssuers(t *testing.T) {
	p, q := newProvider(t), newProvider(t)
	a := p.authenticator(func(c *authn.OIDC) { c.Issuers = []authn.Issuer{{Name: "a", URL: p.URL}, {Name: "b", URL: q.URL}} })
	if got := decided(t, a, p.jwt(claims{"groups": nil})) + " " + decided(t, a, q.jwt(claims{"groups": nil})); got != "a:alice b:alice" {
		t.Errorf("got %s", got)
	}
	for text, want := range map[string]bool{
		"https://a": true, "corp=https://a": true, "corp=https://a/?x=y": true, "https://a/?x=y": true, "http://127.0.0.1:1": true, "http://localhost": true,
		"http://a": false, "a": false, "": false, "cert=https://a": false, "credential=https://a": false, "spiffe=https://a": false, "a:b=https://a": false, "Corp=https://a": false, "=https://a": false, "ftp://a": false,
	} {
		if _, err := authn.ParseIssuers([]string{text}); (err == nil) != want {
			t.Errorf("%q: %v", text, err)
		}
	}
	if _, err := authn.ParseIssuers([]string{"https://a", "https://b"}); err == nil {
		t.Error("two issuers without names")
	}
}

func TestKeyRotation(t *testing.T) {
	t.Parallel()
	p := newProvider(t)
	a := p.authenticator(nil)
	old := p.jwt(nil)
	if got := decided(t, a, old); got != alice {
		t.Fatal(got)
	}
	p.rotate("two")
	p.becomesAlice(a)
	if n := p.fetches.Load(); n != 2 { // many were refused meanwhile: the cool-down after the first fetch
		t.Errorf("%d fetches", n)
	}
}

func TestUnknownKeys(t *testing.T) {
	p, forger := newProvider(t), newProvider(t)
	begin := time.Now()
	a := p.authenticator(nil)
	jwts := make([]string, 10_000)
	for i := range jwts {
		forger.mu.Lock()
		forger.keys[0].KeyID = strconv.Itoa(i)
		forger.mu.Unlock()
		jwts[i] = forger.jwt(claims{"iss": p.URL})
	}
	var wg sync.WaitGroup
	for worker := range 8 {
		wg.Go(func() {
			for i := worker; i < len(jwts); i += 8 {
				if got := decided(t, a, jwts[i]); got != "refused" {
					t.Errorf("%d: %s", i, got)
				}
			}
		})
	}
	wg.Wait()
	if n, most := p.fetches.Load(), 1+int64(time.Since(begin)/(10*time.Second)); n > most { // real time: a slower machine allows more
		t.Errorf("%d fetches", n)
	}
	if got := decided(t, a, p.jwt(nil)); got != alice {
		t.Errorf("a good JWT after it: %s", got)
	}
}

func TestIssuerThatIsDown(t *testing.T) {
	t.Parallel()
	p := newProvider(t)
	p.down.Store(true)
	a := p.authenticator(nil)
	if got := ask(t, a, p.jwt(nil)); got != "unavailable" {
		t.Errorf("down: %s", got)
	}
	p.down.Store(false)
	p.becomesAlice(a)
	p.down.Store(true)
	if got := ask(t, a, p.jwt(claims{"jti": "another"})); got != alice {
		t.Errorf("with keys from before: %s", got)
	}
}

func TestKeyFile(t *testing.T) {
	t.Parallel()
	p := newProvider(t)
	file := filepath.Join(t.TempDir(), "keys.json")
	must(t, os.WriteFile(file, p.public(), 0o600))
	a := p.authenticator(func(c *authn.OIDC) { c.KeyFile = file })
	if got := ask(t, a, p.jwt(nil)); got != alice || p.fetches.Load() != 0 {
		t.Errorf("%s after %d fetches", got, p.fetches.Load())
	}
	p.rotate("two")
	if got := ask(t, a, p.jwt(nil)); got != "refused" {
		t.Errorf("with another key: %s", got)
	}
	must(t, os.WriteFile(file, p.public(), 0o600))
	p.becomesAlice(a)
}

func FuzzOIDC(f *testing.F) {
	p := newProvider(f)
	a := p.authenticator(nil)
	good := p.jwt(nil)
	if got := decided(f, a, good); got != alice { // the keys are known from here on
		f.Fatal(got)
	}
	f.Add(good)
	f.Add("a.b.c")
	f.Add("eyJhbGciOiJub25lIn0.e30.")
	f.Fuzz(func(t *testing.T, jwt string) {
		if got := ask(t, a, jwt); got != "refused" && strings.TrimSpace(jwt) != good {
			t.Errorf("%q is %s", jwt, got)
		}
	})
}

func BenchmarkOIDC(b *testing.B) {
	p := newProvider(b)
	a := p.authenticator(nil)
	jwt := p.jwt(nil)
	for b.Loop() {
		if got := ask(b, a, jwt); got != alice {
			b.Fatal(got)
		}
	}
}
