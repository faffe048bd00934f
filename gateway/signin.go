package gateway

import (
	"context"
	"crypto/subtle"
	"net/http"
	"net/url"
	"strings"
	"time"

	"golang.org/x/oauth2"
)

// People sign in with a browser at an OIDC provider: /console/signin redirects to it, and it redirects back to
// /console/callback. The JWT of the provider is then in a cookie that scripts cannot read, and is used as the bearer
// credential of requests from pages of this server. The server keeps no state, so another server may handle the
// callback.

// SignIn talks to the provider. It logs the reasons of its errors itself.
type SignIn interface {
	// Begin returns the URL where a person signs in. The provider then redirects to redirect.
	Begin(ctx context.Context, redirect, state, verifier string) (address string, err error)
	// Finish exchanges the code of the callback for a bearer credential.
	Finish(ctx context.Context, redirect, code, verifier string) (credential string, ends time.Time, err error)
}

const (
	consolePath = "/console"
	signInPath  = consolePath + "/signin"
	signOutPath = consolePath + "/signout"
	// callbackPath is registered at the issuer.
	callbackPath = consolePath + "/callback"

	// signInTime limits the time for signing in.
	signInTime = 10 * time.Minute
	// maxCookie is the maximum length of a cookie's name and value together that browsers accept, in bytes.
	maxCookie = 4096
)

// The outcomes of signing in, for the console's query.
const (
	signedIn            = "done"
	signInStale         = "stale"       // it took too long, or another browser began it
	signInFailed        = "failed"      // the issuer refused it, or its JWT is not accepted, or the issuer became unavailable
	signInUnavailable   = "unavailable" // the issuer is unavailable
	signInTooLarge      = "large"       // the JWT is too large for a cookie
	credentialCookie    = "locket"
	pendingSignInCookie = "locket-signin"
)

// cookie returns a cookie that scripts cannot read. Over HTTPS no other host can set a cookie of its name and, without
// a proxy's prefix, no other path.
func (r *request) cookie(name, value string, lives time.Duration, sameSite http.SameSite) *http.Cookie {
	path := "/"
	if base, err := url.Parse(r.base); err == nil {
		path = base.Path + "/"
	}
	cookie := &http.Cookie{
		Name: r.cookieName(name), Value: value, Path: path, MaxAge: int(lives.Seconds()), HttpOnly: true,
		Secure: strings.HasPrefix(r.base, "https:"), SameSite: sameSite,
	}
	if lives <= 0 {
		cookie.MaxAge = -1 // the browser deletes it
	}
	return cookie
}

func (r *request) cookieName(name string) string {
	scheme, rest, _ := strings.Cut(r.base, "://")
	switch {
	case scheme != "https":
		return name
	case strings.Contains(rest, "/"):
		return "__Secure-" + name
	default:
		return "__Host-" + name
	}
}

// credentialOfCookie returns the credential of a person who has signed in, "" for none. It is used only for requests of
// pages of this origin, by a header of the browser that no page can set.
func credentialOfCookie(r *http.Request) string {
	if r.Header.Get("Sec-Fetch-Site") != "same-origin" {
		return ""
	}
	cookie, err := r.Cookie(requestOf(r.Context()).cookieName(credentialCookie))
	if err != nil {
		return ""
	}
	return cookie.Value
}

// signInPages returns the pages for signing in and out, by path.
func signInPages(s SignIn) map[string]page {
	return map[string]page{
		signInPath:   {http.MethodGet, func(w http.ResponseWriter, r *http.Request) { beginSignIn(s, w, r) }},
		callbackPath: {http.MethodGet, func(w http.ResponseWriter, r *http.Request) { finishSignIn(s, w, r) }},
		signOutPath:  {http.MethodPost, signOut},
	}
}

// beginSignIn redirects to the issuer. A cookie keeps the values that the callback must match; its SameSite mode lets
// the browser send it with the redirect from the issuer.
func beginSignIn(s SignIn, w http.ResponseWriter, r *http.Request) {
	known := requestOf(r.Context())
	state, verifier := oauth2.GenerateVerifier(), oauth2.GenerateVerifier()
	address, err := s.Begin(r.Context(), known.base+callbackPath, state, verifier)
	if err != nil {
		known.toConsole(w, signInUnavailable)
		return
	}
	http.SetCookie(w, known.cookie(pendingSignInCookie, state+"."+verifier, signInTime, http.SameSiteLaxMode))
	lead(w, address)
}

// finishSignIn handles the redirect back from the issuer.
func finishSignIn(s SignIn, w http.ResponseWriter, r *http.Request) {
	known := requestOf(r.Context())
	http.SetCookie(w, known.cookie(pendingSignInCookie, "", 0, http.SameSiteLaxMode))
	pending, err := r.Cookie(known.cookieName(pendingSignInCookie))
	if err != nil {
		known.toConsole(w, signInStale)
		return
	}
	state, verifier, _ := strings.Cut(pending.Value, ".")
	switch {
	case verifier == "" || subtle.ConstantTimeCompare([]byte(state), []byte(known.query.Get("state"))) != 1:
		known.toConsole(w, signInStale)
		return
	case known.query.Get("code") == "": // the issuer's "error" says why
		known.toConsole(w, signInFailed)
		return
	}
	credential, ends, err := s.Finish(r.Context(), known.base+callbackPath, known.query.Get("code"), verifier)
	if err != nil {
		known.toConsole(w, signInFailed)
		return
	}
	cookie := known.cookie(credentialCookie, credential, time.Until(ends), http.SameSiteStrictMode)
	if len(cookie.Name)+len(cookie.Value) > maxCookie {
		known.toConsole(w, signInTooLarge)
		return
	}
	http.SetCookie(w, cookie)
	known.toConsole(w, signedIn)
}

// signOut deletes the credential in the browser. Requests of pages of other origins are refused.
func signOut(w http.ResponseWriter, r *http.Request) {
	http.SetCookie(w, requestOf(r.Context()).cookie(credentialCookie, "", 0, http.SameSiteStrictMode))
	w.WriteHeader(http.StatusNoContent)
}

// toConsole redirects to the console with the outcome of signing in.
func (r *request) toConsole(w http.ResponseWriter, outcome string) {
	lead(w, r.base+consolePath+"/?signin="+outcome)
}

func lead(w http.ResponseWriter, address string) {
	w.Header().Set("Location", address)
	w.Header().Set("Referrer-Policy", "no-referrer")
	w.WriteHeader(http.StatusFound)
}
