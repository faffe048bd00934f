package authn_test

import (
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/oauth2"

	"github.com/locket-service/locket/internal/base/follow"
	"github.com/locket-service/locket/internal/doors/authn"
	"github.com/locket-service/locket/tests/harness"
)

// people is a provider that exchanges codes.
type people struct {
	*provider
	answer atomic.Value // url.Values of the request that came last
	access atomic.Value // the access token that it gives
	id     atomic.Value // the ID token
}

func newPeople(t *testing.T) *people {
	t.Helper()
	p := &people{provider: newProvider(t)}
	keys := p.Config.Handler
	p.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			keys.ServeHTTP(w, r)
			return
		}
		_ = r.ParseForm()
		if id, secret, ok := r.BasicAuth(); ok {
			r.PostForm.Set("basic", id+":"+secret)
		}
		p.answer.Store(r.PostForm)
		w.Header().Set("Content-Type", "application/json")
		if r.PostForm.Get("code") != "good" {
			w.WriteHeader(http.StatusBadRequest)
			_, _ = w.Write([]byte(`{"error": "invalid_grant", "error_description": "unknown code"}`))
			return
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"access_token": p.access.Load(), "id_token": p.id.Load(), "expires_in": 7})
	})
	p.access.Store("")
	p.id.Store("")
	return p
}

// signIn returns the sign-in for people, when the issuer's keys are known.
func (p *people) signIn(c authn.SignInConfig) *authn.SignIn {
	p.t.Helper()
	a := p.authenticator(nil)
	p.becomesAlice(a)
	return newSignIn(p.t, a, c)
}

func newSignIn(t testing.TB, a *authn.Authenticator, c authn.SignInConfig) *authn.SignIn {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	s, err := a.NewSignIn(c, follow.NewSet(log), log)
	must(t, err)
	return s
}

// finish is Finish, again and again while the issuer does not answer in time, as on a busy machine.
func finish(t testing.TB, s *authn.SignIn, code, verifier string) (jwt string, ends time.Time, err error) {
	t.Helper()
	harness.Until(t, "the issuer answers", func() bool {
		jwt, ends, err = s.Finish(t.Context(), redirect, code, verifier)
		return !errors.Is(err, authn.ErrUnavailable)
	})
	return jwt, ends, err
}

const redirect = "https://locks.example/console/callback"

// TestSignInWithACode: the redirect to the issuer, the requests to the issuer, and the choice of the JWT.
func TestSignInWithACode(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret")
	must(t, os.WriteFile(secret, []byte("of the client\n"), 0o600))
	for _, c := range []struct {
		config                 authn.SignInConfig
		audience, basic, scope string
		wantAccess             bool
	}{
		{config: authn.SignInConfig{ClientID: "console"}, audience: "locket", scope: "openid", wantAccess: true},
		{config: authn.SignInConfig{ClientID: "locket", Scopes: []string{"groups"}}, scope: "openid groups"},
		{config: authn.SignInConfig{ClientID: "locket", SecretFile: secret}, scope: "openid", basic: "locket:of+the+client"},
	} {
		p := newPeople(t)
		s := p.signIn(c.config)
		verifier := oauth2.GenerateVerifier()
		asks := begin(t, s, verifier)
		for name, want := range map[string]string{
			"response_type": "code", "client_id": c.config.ClientID, "redirect_uri": redirect, "state": "state", "scope": c.scope,
			"code_challenge": oauth2.S256ChallengeFromVerifier(verifier), "code_challenge_method": "S256", "audience": c.audience, "resource": c.audience, "code_verifier": "",
		} {
			if got := asks.Get(name); got != want {
				t.Errorf("%v: %s is %q, want %q", c.config, name, got, want)
			}
		}
		ends := time.Now().Add(time.Hour).Truncate(time.Second)
		nonce := asks.Get("nonce")
		if len(nonce) < 40 || nonce == begin(t, s, oauth2.GenerateVerifier()).Get("nonce") || strings.Contains(asks.Encode(), verifier) {
			t.Errorf("%v: the nonce is %q, of %v", c.config, nonce, asks)
		}
		good := p.jwt(claims{"exp": ends.Unix()})
		p.access.Store(good)
		p.id.Store(p.jwt(claims{"aud": c.config.ClientID, "nonce": nonce}))
		if !c.wantAccess {
			good = p.jwt(claims{"exp": ends.Unix(), "nonce": nonce})
			p.access.Store("opaque")
			p.id.Store(good)
		}
		jwt, until, err := finish(t, s, "good", verifier)
		if err != nil || jwt != good || !until.Equal(ends) {
			t.Errorf("%v: %q until %v, %v", c.config, jwt, until, err)
		}
		asked := p.answer.Load().(url.Values)
		if asked.Get("code_verifier") != verifier || asked.Get("redirect_uri") != redirect || asked.Get("resource") != c.audience || asked.Get("basic") != c.basic {
			t.Errorf("%v: the issuer was asked %v", c.config, asked)
		}
	}
}

// begin returns Begin's request to the issuer.
func begin(t testing.TB, s *authn.SignIn, verifier string) url.Values {
	t.Helper()
	var address string
	harness.Eventually(t, func() (err error) {
		address, err = s.Begin(t.Context(), redirect, "state", verifier)
		return err
	})
	u, err := url.Parse(address)
	must(t, err)
	return u.Query()
}

// TestSignInOfAnother: the ID token must belong to the sign-in that this browser began, even if it is not the
// credential.
func TestSignInOfAnother(t *testing.T) {
	for _, client := range []string{"console", "locket"} {
		p := newPeople(t)
		s := p.signIn(authn.SignInConfig{ClientID: client})
		own, other := begin(t, s, "v").Get("nonce"), begin(t, s, "w").Get("nonce")
		p.access.Store(p.jwt(nil))
		for what, c := range map[string]struct {
			id   string
			want error
		}{
			"its own":                {p.jwt(claims{"aud": client, "nonce": own}), nil},
			"another nonce":          {p.jwt(claims{"aud": client, "nonce": other}), authn.ErrRefused},
			"no nonce":               {p.jwt(claims{"aud": client}), authn.ErrRefused},
			"a nonce that is empty":  {p.jwt(claims{"aud": client, "nonce": ""}), authn.ErrRefused},
			"of another client":      {p.jwt(claims{"aud": "other", "nonce": own}), authn.ErrRefused},
			"of another issuer":      {newProvider(t).jwt(claims{"aud": client, "nonce": own}), authn.ErrRefused},
			"expired":                {p.jwt(claims{"aud": client, "nonce": own, "exp": time.Now().Add(-time.Hour).Unix()}), authn.ErrRefused},
			"none":                   {"", authn.ErrRefused},
			"one without signatures": {"e30.e30.", authn.ErrRefused},
		} {
			p.id.Store(c.id)
			if got, _, err := finish(t, s, "good", "v"); !errors.Is(err, c.want) || (got != "") != (err == nil) {
				t.Errorf("%s, %s: %q, %v", client, what, got, err)
			}
		}
	}
}

// TestSignInUntil: a sign-in lasts as long as its JWT, however the issuer writes the time, and a JWT that ends now signs
// nobody in.
func TestSignInUntil(t *testing.T) {
	p := newPeople(t)
	s := p.signIn(authn.SignInConfig{ClientID: "locket"})
	nonce, at := begin(t, s, "v").Get("nonce"), time.Now().Add(time.Hour).Truncate(time.Second)
	p.access.Store("opaque")
	for _, c := range []struct {
		exp  any
		want error
	}{
		{at.Unix(), nil},
		{strconv.FormatInt(at.Unix(), 10), nil},
		{float64(at.Unix()) + 0.5, nil},
		{time.Now().Add(-time.Second).Unix(), authn.ErrRefused}, // good for calls, as the clocks may differ
		{"soon", authn.ErrRefused},
		{nil, authn.ErrRefused},
	} {
		p.id.Store(p.jwt(claims{"nonce": nonce, "exp": c.exp}))
		_, ends, err := finish(t, s, "good", "v")
		if !errors.Is(err, c.want) || err == nil && !ends.Equal(at) {
			t.Errorf("exp %v: until %s, %v", c.exp, ends, err)
		}
	}
}

// TestSignInRefused: neither a JWT that calls may not use nor a refusal of the issuer signs anybody in.
func TestSignInRefused(t *testing.T) {
	p := newPeople(t)
	s := p.signIn(authn.SignInConfig{ClientID: "console"})
	p.id.Store(p.jwt(claims{"aud": "console", "nonce": begin(t, s, "v").Get("nonce")}))
	for what, jwt := range map[string]string{
		"for others": p.jwt(claims{"aud": "other"}), "expired": p.jwt(claims{"exp": time.Now().Add(-time.Hour).Unix()}), "no JWT": "opaque", "of another": newProvider(t).jwt(nil),
	} {
		p.access.Store(jwt)
		if got, _, err := finish(t, s, "good", "v"); !errors.Is(err, authn.ErrRefused) || got != "" {
			t.Errorf("%s: %q, %v", what, got, err)
		}
	}
	if _, _, err := finish(t, s, "bad", "v"); !errors.Is(err, authn.ErrRefused) {
		t.Errorf("a wrong code: %v", err)
	}
	p.down.Store(true)
	if _, err := newSignIn(t, p.authenticator(nil), authn.SignInConfig{ClientID: "console"}).Begin(t.Context(), redirect, "s", "v"); !errors.Is(err, authn.ErrUnavailable) {
		t.Errorf("while the issuer is down: %v", err)
	}
}

// TestSignInWarnings: failed sign-ins cannot fill the log.
func TestSignInWarnings(t *testing.T) {
	p := newPeople(t)
	var lines counter
	a := p.authenticator(nil)
	log := slog.New(slog.NewTextHandler(&lines, nil))
	s, err := a.NewSignIn(authn.SignInConfig{ClientID: "console"}, follow.NewSet(log), log)
	must(t, err)
	began := time.Now()
	for range 200 {
		if _, _, err := finish(t, s, "bad", "v"); !errors.Is(err, authn.ErrRefused) {
			t.Fatal(err)
		}
	}
	if most := 20 + 1 + int64(time.Since(began)/time.Second); lines.Load() == 0 || lines.Load() > most { // real time: the limit is one of lines a second, at any speed
		t.Errorf("%d lines, more than %d", lines.Load(), most)
	}
}

// counter counts what is written to it.
type counter struct{ atomic.Int64 }

func (c *counter) Write(line []byte) (int, error) {
	c.Add(1)
	return len(line), nil
}

// TestSignInAtOnce: of many concurrent sign-ins while the issuer is silent, only a few wait.
func TestSignInAtOnce(t *testing.T) {
	silent, arrived := make(chan struct{}), make(chan struct{}, 100)
	issuer := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		arrived <- struct{}{}
		<-silent
	}))
	t.Cleanup(issuer.Close)
	a := newAuthenticator(t, authn.Config{OIDC: authn.OIDC{Issuers: []authn.Issuer{{Name: "oidc", URL: issuer.URL}}, Audience: "locket"}})
	s := newSignIn(t, a, authn.SignInConfig{ClientID: "console"})
	done := make(chan error)
	const places = 32
	for range places {
		go func() {
			_, err := s.Begin(t.Context(), redirect, "s", "v")
			done <- err
		}()
	}
	for range places + 1 { // and the keys
		<-arrived
	}
	if _, err := s.Begin(t.Context(), redirect, "s", "v"); !errors.Is(err, authn.ErrUnavailable) {
		t.Errorf("one more: %v", err)
	}
	close(silent)
	for range places {
		if err := <-done; !errors.Is(err, authn.ErrUnavailable) {
			t.Errorf("an issuer that says nothing: %v", err)
		}
	}
}
