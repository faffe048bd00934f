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

// People sign in with a browser at an OIDC provider: /console/signin leads there, and /console/callback is where they come
// back to. The JWT that they get is in a cookie from then on, which scripts cannot read, and counts as a bearer credential of the requests
// that pages of this server send. The server keeps nothing of them, so they may come back to another one.

// SignIn asks the provider. Its errors are for its own log.
type SignIn interface {
	// Begin returns the address at which somebody signs in, who comes back to the address redirect.
	Begin(ctx context.Context, redirect, state, verifier string) (address string, err error)
	// Finish exchanges the code with which somebody came back for a bearer credential.
	Finish(ctx context.Context, redirect, code, verifier string) (credential string, ends time.Time, err error)
}

const (
	consolePath = "/console"
	signInPath  = consolePath + "/signin"
	signOutPath = consolePath + "/signout"
	// callbackPath is known to the issuer.
	callbackPath = consolePath + "/callback"

	// signInTime is how long signing in may take.
	signInTime = 10 * time.Minute
	// maxCookie is how long the name and the value of a cookie may be in browsers, in bytes.
	maxCookie = 4096
)

// What has come of signing in, as the page is told in its address.
const (
	signedIn            = "done"
	signInStale         = "stale"       // it took too long, or was begun elsewhere
	signInFailed        = "failed"      // the issuer refused it, or its JWT is not accepted, or it cannot be asked any more
	signInUnavailable   = "unavailable" // the issuer cannot be asked
	signInTooLarge      = "large"       // for a cookie
	credentialCookie    = "locket"
	pendingSignInCookie = "locket-signin"
)

// cookie returns a cookie of the request's site that scripts cannot read. Over HTTPS no other host can set one of its name; without a
// proxy's prefix, no other path.
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
		cookie.MaxAge = -1 // it is gone
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

// credentialOfCookie returns the credential of who has signed in, "" for none. It counts for what a page of this very origin
// sends, as the browser says, which no page can make it say.
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

// signInHandlers returns the handlers of signing in, by method and path.
func signInHandlers(s SignIn) map[[2]string]http.HandlerFunc {
	return map[[2]string]http.HandlerFunc{
		{http.MethodGet, signInPath}:   func(w http.ResponseWriter, r *http.Request) { beginSignIn(s, w, r) },
		{http.MethodGet, callbackPath}: func(w http.ResponseWriter, r *http.Request) { finishSignIn(s, w, r) },
		{http.MethodPost, signOutPath}: signOut,
	}
}

// beginSignIn leads to the issuer. What the browser must show when it comes back is in a cookie, which comes along with a link
// from the issuer.
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

// finishSignIn takes who comes back from the issuer.
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
	case known.query.Get("code") == "": // the issuer says in "error" why
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

// signOut has the browser forget the credential. Pages of other origins cannot ask for it.
func signOut(w http.ResponseWriter, r *http.Request) {
	http.SetCookie(w, requestOf(r.Context()).cookie(credentialCookie, "", 0, http.SameSiteStrictMode))
	w.WriteHeader(http.StatusNoContent)
}

// toConsole leads to the console, and tells it what has come of signing in.
func (r *request) toConsole(w http.ResponseWriter, outcome string) {
	lead(w, r.base+consolePath+"/?signin="+outcome)
}

func lead(w http.ResponseWriter, address string) {
	w.Header().Set("Location", address)
	w.Header().Set("Referrer-Policy", "no-referrer")
	w.WriteHeader(http.StatusFound)
}
