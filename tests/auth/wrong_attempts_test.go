package auth_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/locket-service/locket/fixtures"
)

// attempt is a call's credential.
type attempt struct {
	what    string
	cert    *tls.Certificate // nil for none
	headers http.Header
	// overREST is set if the attempt exists only over REST: a cookie.
	overREST bool
}

// issuer signs JWTs.
type issuer struct {
	t   *testing.T
	key jose.JSONWebKey
}

const (
	issuerURL = "https://issuer.example"
	audience  = "locket"
)

func newIssuer(t *testing.T) *issuer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	return &issuer{t, jose.JSONWebKey{Key: key, KeyID: "one", Algorithm: "ES256", Use: "sig"}}
}

// keys returns the public keys as a JWK set.
func (i *issuer) keys() string {
	text, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{i.key.Public()}})
	must(i.t, err)
	return string(text)
}

// claims returns the claims of a valid JWT with changes; nil removes one.
func claims(changes map[string]any) map[string]any {
	all := map[string]any{"iss": issuerURL, "aud": audience, "sub": "root", "exp": time.Now().Add(time.Hour).Unix(), "iat": time.Now().Unix()}
	maps.Copy(all, changes)
	maps.DeleteFunc(all, func(_ string, value any) bool { return value == nil })
	return all
}

// sign returns a JWT with the claims of a good one, changed.
func (i *issuer) sign(changes map[string]any) string { return i.signWith(nil, changes) }

func (i *issuer) signWith(options *jose.SignerOptions, changes map[string]any) string {
	i.t.Helper()
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: i.key}, options)
	must(i.t, err)
	text, err := json.Marshal(claims(changes))
	must(i.t, err)
	signed, err := signer.Sign(text)
	must(i.t, err)
	jwt, err := signed.CompactSerialize()
	must(i.t, err)
	return jwt
}

// assemble returns a JWT of a header, claims, and what sign makes of both.
func assemble(header string, changes map[string]any, sign func(text string) []byte) string {
	payload, _ := json.Marshal(claims(changes)) // never fails
	text := base64.RawURLEncoding.EncodeToString([]byte(header)) + "." + base64.RawURLEncoding.EncodeToString(payload)
	return text + "." + base64.RawURLEncoding.EncodeToString(sign(text))
}

// wrongJWTs would be an administrator's JWTs, except for one fault each.
func wrongJWTs(t *testing.T, good *issuer) map[string]string {
	other := newIssuer(t) // its key has the same id
	unknown := newIssuer(t)
	unknown.key.KeyID = "two"
	in := func(d time.Duration) int64 { return time.Now().Add(d).Unix() }
	jwt := good.sign(nil)
	parts := strings.Split(jwt, ".")
	forged, _ := json.Marshal(claims(map[string]any{"sub": "root", "exp": in(2 * time.Hour)}))
	embedded := (&jose.SignerOptions{EmbedJWK: true})
	shared := func(text string) []byte {
		mac := hmac.New(sha256.New, []byte(good.keys()))
		mac.Write([]byte(text))
		return mac.Sum(nil)
	}
	return map[string]string{
		"expired":                   good.sign(map[string]any{"exp": in(-time.Hour)}),
		"without an end":            good.sign(map[string]any{"exp": nil}),
		"with an end that is none":  good.sign(map[string]any{"exp": "never"}),
		"not yet valid":             good.sign(map[string]any{"nbf": in(time.Hour)}),
		"valid from a text":         good.sign(map[string]any{"nbf": "now"}),
		"issued in the future":      good.sign(map[string]any{"iat": in(time.Hour)}),
		"of a wrong issuer":         good.sign(map[string]any{"iss": "https://other.example"}),
		"of an issuer that is like": good.sign(map[string]any{"iss": issuerURL + "/"}),
		"without an issuer":         good.sign(map[string]any{"iss": nil}),
		"for a wrong audience":      good.sign(map[string]any{"aud": "other"}),
		"for other audiences":       good.sign(map[string]any{"aud": []string{"other", "Locket"}}),
		"without an audience":       good.sign(map[string]any{"aud": nil}),
		"without a user":            good.sign(map[string]any{"sub": nil}),
		"with an empty user":        good.sign(map[string]any{"sub": ""}),
		"with a number for a user":  good.sign(map[string]any{"sub": 1}),
		"with a user of two lines":  good.sign(map[string]any{"sub": "root\n"}),
		"with groups that are none": good.sign(map[string]any{"groups": 1}),
		"that is a logout token":    good.sign(map[string]any{"events": map[string]any{}}),
		"of another type":           good.signWith((&jose.SignerOptions{}).WithType("secevent+jwt"), nil),
		"with a critical header":    good.signWith((&jose.SignerOptions{}).WithHeader("crit", []string{"x"}).WithHeader("x", 1), nil),
		"by a wrong key":            other.sign(nil),
		"by an unknown key":         unknown.sign(nil),
		"by a key that it brings":   other.signWith(embedded, nil),
		"without a signature":       assemble(`{"alg":"none"}`, nil, func(string) []byte { return nil }),
		"by a shared key":           assemble(`{"alg":"HS256","kid":"one"}`, nil, shared),
		"with other claims":         parts[0] + "." + base64.RawURLEncoding.EncodeToString(forged) + "." + parts[2],
		"with its signature cut":    jwt[:len(jwt)-2],
		"of two parts":              parts[0] + "." + parts[1],
		"of five parts":             jwt + ".a.b",
		"of empty parts":            "..",
	}
}

// certificate returns a certificate of an authority.
func certificate(t *testing.T, by *fixtures.CA, name string, options ...fixtures.CertOption) *tls.Certificate {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(by.Issue(t, name, options...))
	must(t, err)
	return &pair
}

func spiffeIDs(t *testing.T, ids ...string) fixtures.CertOption {
	t.Helper()
	var uris []*url.URL
	for _, id := range ids {
		u, err := url.Parse(id)
		must(t, err)
		uris = append(uris, u)
	}
	return func(c *x509.Certificate) { c.URIs = uris }
}

// refusedCertificates open no connection; they would be an administrator's, except for one fault each.
func (w *guarded) refusedCertificates(t *testing.T) map[string]*tls.Certificate {
	stranger := fixtures.NewCA(t)
	mismatched := certificate(t, w.ca, "root")
	mismatched.PrivateKey = certificate(t, w.ca, "root").PrivateKey
	return map[string]*tls.Certificate{
		"of an unknown authority":        certificate(t, stranger, "root"),
		"that has expired":               certificate(t, w.ca, "root", fixtures.Expired()),
		"that is not yet valid":          certificate(t, w.ca, "root", func(c *x509.Certificate) { c.NotBefore = time.Now().Add(time.Hour) }),
		"that was revoked":               w.revoked,
		"for servers":                    certificate(t, w.ca, "root", func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth} }),
		"of an authority itself":         certificate(t, w.ca, "root", func(c *x509.Certificate) { c.IsCA, c.BasicConstraintsValid = true, true }),
		"with another key":               mismatched,
		"of a partner, as another's":     certificate(t, w.partner, "x", spiffeIDs(t, "spiffe://own.example/root")),
		"of a partner, without an id":    certificate(t, w.partner, "root"),
		"of an unknown trust domain":     certificate(t, w.own, "x", spiffeIDs(t, "spiffe://other.example/root")),
		"by the wrong authority, SPIFFE": certificate(t, w.ca, "x", spiffeIDs(t, "spiffe://own.example/root")),
	}
}

// namelessCertificates name nobody.
func (w *guarded) namelessCertificates(t *testing.T) map[string]*tls.Certificate {
	return map[string]*tls.Certificate{
		"without a name":         certificate(t, w.ca, "", func(c *x509.Certificate) { c.DNSNames = nil }),
		"with two SPIFFE ids":    certificate(t, w.own, "x", spiffeIDs(t, "spiffe://own.example/root", "spiffe://own.example/x")),
		"with a control in it":   certificate(t, w.ca, "root\n"),
		"with a blank at an end": certificate(t, w.ca, "root "),
		"of too many groups": certificate(t, w.ca, "root", func(c *x509.Certificate) {
			c.Subject = pkix.Name{CommonName: "root", Organization: slices.Repeat([]string{"o"}, 257)}
		}),
	}
}

func bearer(credential string) http.Header { return header("Authorization", "Bearer "+credential) }

func header(name string, values ...string) http.Header { return http.Header{name: values} }

// cookie returns the headers of a browser with a cookie, for a page of some site.
func cookie(name, value, site string) http.Header {
	headers := header("Cookie", name+"="+value)
	if site != "" {
		headers["Sec-Fetch-Site"] = []string{site}
	}
	return headers
}

// wrong returns the attempts that are not authenticated: each would be an administrator's, except for one fault.
func (w *guarded) wrong(t *testing.T) (all []attempt) {
	add := func(what string, cert *tls.Certificate, headers http.Header) {
		all = append(all, attempt{what: what, cert: cert, headers: headers})
	}
	good, root := w.credentials["root"], certificate(t, w.ca, "root")
	basic := func(text string) http.Header {
		return header("Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(text)))
	}
	add("nothing", nil, nil)
	for what, value := range map[string]string{
		"an empty header": "", "an empty credential": "Bearer ", "a blank for a credential": "Bearer   ", "a credential without a scheme": good,
		"another scheme": "Digest " + good, "basic authentication that is none": "Basic ???", "a scheme alone": "Bearer",
	} {
		add(what, nil, header("Authorization", value))
	}
	for what, credential := range map[string]string{
		"unknown": "locket_unknown", "cut": good[:len(good)-1], "longer": good + "x", "in capitals": strings.ToUpper(good), "too long": strings.Repeat("x", 17<<10),
		"that has expired": w.credentials["expired"], "that was withdrawn": w.credentials["withdrawn"], "that is a hash": w.hash, "that is a name": "credential:root",
	} {
		add("a credential "+what, nil, bearer(credential))
	}
	add("two credentials", nil, header("Authorization", "Bearer "+good, "Bearer "+good))
	add("a good credential and a wrong one", nil, header("Authorization", "Bearer "+good, "Bearer x"))
	add("basic authentication without a password", nil, basic("root"))
	add("basic authentication with the credential for a user", nil, basic(good+":"))
	add("basic authentication with a wrong password", nil, basic("root:x"))
	add("a good certificate and a wrong credential", root, bearer("x"))
	for what, jwt := range wrongJWTs(t, w.issuer) {
		add("a JWT "+what, nil, bearer(jwt))
	}
	for what, cert := range w.namelessCertificates(t) {
		add("a certificate "+what, cert, nil)
	}
	proxy := certificate(t, w.ca, "proxy")
	add("the header of a proxy", nil, header("X-Remote-User", "root"))
	add("the header of a proxy, by an address", nil, http.Header{"X-Remote-User": {"root"}, "X-Forwarded-For": {"127.0.0.1"}})
	add("the proxy itself", proxy, nil)
	for what, user := range map[string][]string{
		"no name": {""}, "Apache's word for nobody": {"(null)"}, "two names": {"root", "root"}, "a name that is too long": {strings.Repeat("x", 513)},
	} {
		add("a proxy with "+what, proxy, header("X-Remote-User", user...))
	}
	add("a proxy with groups twice", proxy, http.Header{"X-Remote-User": {"root"}, "X-Remote-Groups": {"a", "b"}})
	for what, headers := range map[string]http.Header{
		"a cookie that no page sent":    cookie("__Host-locket", w.issuer.sign(nil), ""),
		"a cookie of nobody's page":     cookie("__Host-locket", w.issuer.sign(nil), "none"),
		"a cookie of another name":      cookie("locket", w.issuer.sign(nil), "same-origin"),
		"a cookie with an expired JWT":  cookie("__Host-locket", w.issuer.sign(map[string]any{"exp": 1}), "same-origin"),
		"a proxy with a name backwards": header("X-Remote-User", "ro\u202eot"),
	} {
		a := attempt{what: what, headers: headers, overREST: true}
		if strings.Contains(what, "proxy") {
			a.cert = proxy
		}
		all = append(all, a)
	}
	return all
}

// powerless returns the attempts of callers who are known, and may do nothing.
func (w *guarded) powerless(t *testing.T) (all []attempt) {
	add := func(what string, cert *tls.Certificate, headers http.Header) {
		all = append(all, attempt{what: what, cert: cert, headers: headers})
	}
	group := func(names ...string) fixtures.CertOption {
		return func(c *x509.Certificate) { c.Subject.Organization = names }
	}
	add("a credential without rights", nil, bearer(w.credentials["nobody"]))
	add("a certificate without rights", certificate(t, w.ca, "nobody"), nil)
	add("a certificate with the name of another way", certificate(t, w.ca, "credential:root"), nil)
	add("a certificate with a SPIFFE id for a name", certificate(t, w.ca, "spiffe://own.example/root"), nil)
	add("a certificate in a group with the name of another way", certificate(t, w.ca, "nobody", group("oidc:ops")), nil)
	add("a SPIFFE id without rights", certificate(t, w.own, "root", spiffeIDs(t, "spiffe://own.example/nobody")), nil)
	add("a partner in everybody's group", certificate(t, w.partner, "root", spiffeIDs(t, "spiffe://partner.example/root"), group("ops", "cert:ops")), nil)
	add("a JWT without rights", nil, bearer(w.issuer.sign(map[string]any{"sub": "nobody"})))
	add("a JWT with the name of another way", nil, bearer(w.issuer.sign(map[string]any{"sub": "cert:root", "groups": []string{"cert:ops", "ops"}})))
	add("a person at the proxy without rights", certificate(t, w.ca, "proxy"), http.Header{"X-Remote-User": {"nobody"}, "X-Remote-Groups": {"ops"}})
	add("a certificate with the header of a proxy", certificate(t, w.ca, "nobody"), header("X-Remote-User", "root"))
	return all
}

// powerful returns an administrator's valid credentials, one of each kind: each wrong credential differs from one of them by its fault.
func (w *guarded) powerful(t *testing.T) []attempt {
	return []attempt{
		{what: "a credential", headers: bearer(w.credentials["root"])},
		{what: "a password", headers: header("Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte("x:"+w.credentials["root"])))},
		{what: "a JWT", headers: bearer(w.issuer.sign(nil))},
		{what: "a certificate", cert: certificate(t, w.ca, "root")},
		{what: "a group", cert: certificate(t, w.ca, "somebody", func(c *x509.Certificate) { c.Subject.Organization = []string{"ops"} })},
		{what: "a SPIFFE id", cert: certificate(t, w.own, "x", spiffeIDs(t, "spiffe://own.example/root"))},
		{what: "a person at the proxy", cert: certificate(t, w.ca, "proxy"), headers: header("X-Remote-User", "root")},
		{what: "a cookie of its own page", headers: cookie("__Host-locket", w.issuer.sign(nil), "same-origin"), overREST: true},
	}
}
