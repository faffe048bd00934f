package gateway_test

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/metadata"

	"github.com/locket-service/locket/gateway"
)

// provider is a SignIn that accepts the code "good".
type provider struct{ credential string }

func (p *provider) Begin(_ context.Context, redirect, state, verifier string) (string, error) {
	if p.credential == "" {
		return "", errors.New("down")
	}
	return "https://issuer.example/?" + url.Values{"redirect_uri": {redirect}, "state": {state}, "verifier": {verifier}}.Encode(), nil
}

func (p *provider) Finish(_ context.Context, _, code, verifier string) (string, time.Time, error) {
	if code != "good" || verifier == "" {
		return "", time.Time{}, errors.New("refused")
	}
	return p.credential, time.Now().Add(time.Hour), nil
}

// signInServer is a server where people sign in; its metrics show the credential of a request.
func signInServer(t *testing.T, p *provider) (*server, *http.Client) {
	t.Helper()
	s := startAs(t, func(c *gateway.Config) {
		c.SignIn, c.Origins = p, []string{"https://console.example"}
		c.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}
		c.Guard = func(ctx context.Context, _ string, _ func()) error {
			md, _ := metadata.FromIncomingContext(ctx)
			return errors.New(strings.Join(md.Get("authorization"), ","))
		}
	})
	c := client(t, nil)
	c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return s, c
}

// cookieOf returns the cookie that an answer sets, the last of a name.
func cookieOf(t *testing.T, a answer, name string) *http.Cookie {
	t.Helper()
	var found *http.Cookie
	for _, text := range a.header.Values("Set-Cookie") {
		cookie, err := http.ParseSetCookie(text)
		must(t, err)
		if cookie.Name == name {
			found = cookie
		}
	}
	if found == nil {
		t.Fatalf("no cookie %s in %q", name, a.header.Values("Set-Cookie"))
	}
	return found
}

// TestMethodsOfSigningOut: the answer to another method names the allowed ones.
func TestMethodsOfSigningOut(t *testing.T) {
	s, c := signInServer(t, &provider{"a.b.c"})
	for method, code := range map[string]int{"GET": 405, "DELETE": 405, "OPTIONS": 204} {
		if a := do(t, c, method, s.url+"/console/signout", ""); a.code != code || a.header.Get("Allow") != "OPTIONS, POST" {
			t.Errorf("%s: %d, allowed are %q", method, a.code, a.header.Get("Allow"))
		}
	}
}

// TestSignIn: the attributes of the cookies are as strict as the client's scheme allows, and only this server gets them
// back.
func TestSignIn(t *testing.T) {
	s, c := signInServer(t, &provider{"a.b.c"})
	for base, want := range map[string]struct {
		headers      []string
		prefix, path string
		secure       bool
	}{
		s.url:                       {nil, "", "/", false},
		"https://locks.example":     {[]string{"X-Forwarded-Proto: https", "X-Forwarded-Host: locks.example"}, "__Host-", "/", true},
		"https://locks.example/a/b": {[]string{"X-Forwarded-Proto: https", "X-Forwarded-Host: locks.example", "X-Forwarded-Prefix: /a/b"}, "__Secure-", "/a/b/", true},
	} {
		tight := func(cookie *http.Cookie, sameSite http.SameSite) {
			t.Helper()
			if !cookie.HttpOnly || cookie.Secure != want.secure || cookie.Path != want.path || cookie.Domain != "" || cookie.SameSite != sameSite {
				t.Errorf("%s: %v", base, cookie)
			}
		}
		started := do(t, c, "GET", s.url+"/console/signin", "", want.headers...)
		to, err := url.Parse(started.header.Get("Location"))
		must(t, err)
		pending := cookieOf(t, started, want.prefix+"locket-signin")
		tight(pending, http.SameSiteLaxMode)
		state, asked := to.Query().Get("state"), to.Query()
		if asked.Get("redirect_uri") != base+"/console/callback" || len(state) < 40 || pending.Value != state+"."+asked.Get("verifier") || pending.MaxAge != 600 {
			t.Errorf("%s: %s, %v", base, to, pending)
		}
		back := func(query, cookie string) answer {
			t.Helper()
			headers := append([]string{"Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: document"}, want.headers...)
			return do(t, c, "GET", s.url+"/console/callback?"+query, "", append(headers, "Cookie: "+cookie)...)
		}
		held := pending.Name + "=" + pending.Value
		for query, outcome := range map[string]string{
			"code=good&state=" + state: "done", "code=good&state=x": "stale", "code=good": "stale", "code=bad&state=" + state: "failed",
			"error=access_denied&state=" + state: "failed", "": "stale",
		} {
			a := back(query, held)
			if a.code != http.StatusFound || a.header.Get("Location") != base+"/console/?signin="+outcome || cookieOf(t, a, pending.Name).MaxAge >= 0 {
				t.Errorf("%s %q: %d %v", base, query, a.code, a.header)
			}
			if outcome != "done" {
				if strings.Contains(strings.Join(a.header.Values("Set-Cookie"), " "), "a.b.c") {
					t.Errorf("%s %q: %v", base, query, a.header)
				}
				continue
			}
			cookie := cookieOf(t, a, want.prefix+"locket")
			tight(cookie, http.SameSiteStrictMode)
			if cookie.Value != "a.b.c" || cookie.MaxAge < 3500 || cookie.MaxAge > 3600 {
				t.Errorf("%s: %v", base, cookie)
			}
		}
		for _, cookie := range []string{"other=x", pending.Name + "=", pending.Name + "=" + state, pending.Name + "=."} {
			if a := back("code=good&state="+state, cookie); a.header.Get("Location") != base+"/console/?signin=stale" {
				t.Errorf("%s with the cookie %q: %v", base, cookie, a.header)
			}
		}
		out := do(t, c, "POST", s.url+"/console/signout", "", want.headers...)
		if gone := cookieOf(t, out, want.prefix+"locket"); out.code != http.StatusNoContent || gone.MaxAge >= 0 || gone.Value != "" {
			t.Errorf("%s: signed out: %d %v", base, out.code, gone)
		}
	}
}

// TestSignInFails: an unavailable provider and a credential that is too large are reported.
func TestSignInFails(t *testing.T) {
	down, c := signInServer(t, &provider{})
	if a := do(t, c, "GET", down.url+"/console/signin", ""); a.header.Get("Location") != down.url+"/console/?signin=unavailable" || len(a.header.Values("Set-Cookie")) != 0 {
		t.Errorf("down: %v", a.header)
	}
	for size, outcome := range map[int]string{4096 - len("locket"): "done", 4097 - len("locket"): "large"} {
		s, c := signInServer(t, &provider{strings.Repeat("x", size)})
		if a := do(t, c, "GET", s.url+"/console/callback?code=good&state=s", "", "Cookie: locket-signin=s.v"); a.header.Get("Location") != s.url+"/console/?signin="+outcome {
			t.Errorf("%d bytes: %s", size, a.header.Get("Location"))
		}
	}
	without := start(t, nil)
	do(t, c, "GET", without.url+"/console/signin", "").says(t, http.StatusNotFound, "")
}

// TestCredentialInACookie: a cookie is used only for requests of pages of this origin, and only without the header
// Authorization. Other sites cannot sign anybody out.
func TestCredentialInACookie(t *testing.T) {
	s, c := signInServer(t, &provider{"a.b.c"})
	for _, test := range []struct {
		headers []string
		shown   string
	}{
		{[]string{"Cookie: locket=a.b.c", "Sec-Fetch-Site: same-origin"}, "Bearer a.b.c"},
		{[]string{"Cookie: locket=a.b.c", "Sec-Fetch-Site: same-origin", "Authorization: Bearer x"}, `"Bearer x"`},
		{[]string{"Cookie: locket=a.b.c"}, ""},
		{[]string{"Cookie: locket=a.b.c", "Sec-Fetch-Site: none"}, ""},
		{[]string{"Cookie: locket=a.b.c", "Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: document"}, ""},
		{[]string{"Cookie: locket=a.b.c", "Sec-Fetch-Site: same-site", "Origin: https://console.example"}, ""},
		{[]string{"Cookie: other=a.b.c", "Sec-Fetch-Site: same-origin"}, ""},
	} {
		a := do(t, c, "GET", s.url+"/metrics", "", test.headers...)
		shown := strings.Contains(a.body, "a.b.c")
		if shown != (test.shown == "Bearer a.b.c") || !strings.Contains(a.body, strings.Trim(test.shown, `"`)) {
			t.Errorf("%q: %d %s", test.headers, a.code, a.body)
		}
	}
	for _, headers := range [][]string{{"Sec-Fetch-Site: cross-site"}, {"Sec-Fetch-Site: same-site"}, {"Origin: https://evil.example"}} {
		if a := do(t, c, "POST", s.url+"/console/signout", "", headers...); a.code != http.StatusForbidden || len(a.header.Values("Set-Cookie")) != 0 {
			t.Errorf("signed out by %q: %d %v", headers, a.code, a.header)
		}
	}
	do(t, c, "GET", s.url+"/console/signout", "").says(t, http.StatusMethodNotAllowed, "")
}
