package authn

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"
	"golang.org/x/time/rate"

	"github.com/locket-service/locket/internal/base/follow"
)

const (
	// maxSigningIn limits the sign-ins in progress, because anybody can begin one.
	maxSigningIn = 32
	// signInTimeout bounds the requests to the issuer for one sign-in.
	signInTimeout = 2 * fetchTimeout
)

// SignInConfig says how people sign in with a browser at an OIDC provider.
type SignInConfig struct {
	// ClientID is the name of the console at the issuer; "": nobody signs in.
	ClientID string
	// SecretFile has its secret; "": it is a public client, and has none.
	SecretFile string
	// Scopes are asked for besides openid.
	Scopes []string
}

// SignIn gets the JWTs of people who sign in with a browser: by the authorization code flow of OpenID Connect, with
// PKCE (RFC 7636). It keeps no state.
type SignIn struct {
	config  SignInConfig
	issuers *issuers
	secret  *follow.File[string] // nil without one
	places  chan struct{}
	log     *slog.Logger
	// warnings limits the warnings about failed sign-ins, because anybody can cause them.
	warnings rate.Sometimes

	mu       sync.Mutex
	endpoint oauth2.Endpoint
	found    time.Time // when endpoint was
}

// NewSignIn returns the sign-in for people, nil if there is none. There must be one issuer.
func (a *Authenticator) NewSignIn(c SignInConfig, files *follow.Set, log *slog.Logger) (*SignIn, error) {
	if c.ClientID == "" {
		return nil, nil
	}
	if a.issuers == nil || len(a.issuers.config.Issuers) != 1 {
		return nil, errors.New("people sign in at one issuer")
	}
	s := &SignIn{config: c, issuers: a.issuers, places: make(chan struct{}, maxSigningIn), log: log, warnings: rate.Sometimes{First: 20, Interval: time.Second}}
	if c.SecretFile == "" {
		return s, nil
	}
	var err error
	s.secret, err = follow.OpenPrivate("--oidc-console-secret-file", follow.One(func(text []byte) (string, error) {
		secret := strings.TrimSpace(string(text))
		if secret == "" {
			return "", errors.New("there is no secret in it")
		}
		return secret, nil
	}), c.SecretFile)
	if err != nil {
		return nil, err
	}
	files.Add(s.secret)
	return s, nil
}

// Issuer returns where people sign in.
func (s *SignIn) Issuer() Issuer { return s.issuers.config.Issuers[0] }

// Begin returns the address where a person signs in; the issuer sends the person back to the address redirect. state and verifier are
// secrets of the browser. Its error is ErrUnavailable if the issuer cannot be asked.
func (s *SignIn) Begin(ctx context.Context, redirect, state, verifier string) (string, error) {
	ctx, end, err := s.enter(ctx)
	if err != nil {
		return "", err
	}
	defer end()
	config, err := s.oauth(ctx, redirect)
	if err != nil {
		return "", s.failed("cannot ask an OIDC issuer where people sign in", fmt.Errorf("%w: %w", ErrUnavailable, err))
	}
	return config.AuthCodeURL(state, append(s.audience(), oauth2.S256ChallengeOption(verifier), oidc.Nonce(nonceOf(verifier)))...), nil
}

// Finish exchanges the code of a returning person for a JWT, and checks it like the JWT of any call. It returns when
// the JWT ends. Its error is ErrUnavailable or ErrRefused.
func (s *SignIn) Finish(ctx context.Context, redirect, code, verifier string) (jwt string, ends time.Time, err error) {
	ctx, end, err := s.enter(ctx)
	if err != nil {
		return "", ends, err
	}
	defer end()
	if jwt, ends, err = s.exchange(ctx, redirect, code, verifier); err != nil {
		return "", ends, s.failed("somebody could not sign in", err)
	}
	return jwt, ends, nil
}

func (s *SignIn) exchange(ctx context.Context, redirect, code, verifier string) (jwt string, ends time.Time, err error) {
	config, err := s.oauth(ctx, redirect)
	if err != nil {
		return "", ends, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	answer, err := config.Exchange(ctx, code, append(s.audience(), oauth2.VerifierOption(verifier))...)
	if refusal := (*oauth2.RetrieveError)(nil); errors.As(err, &refusal) { // its text may have the whole answer
		return "", ends, refused(fmt.Errorf("the issuer answers %d %s: %q", refusal.Response.StatusCode, refusal.ErrorCode, refusal.ErrorDescription))
	}
	if err != nil {
		return "", ends, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	idToken, _ := answer.Extra("id_token").(string)
	if err := s.started(ctx, idToken, verifier); err != nil {
		return "", ends, err
	}
	jwt = answer.AccessToken
	if s.idToken() {
		jwt = idToken
	}
	id, verified, err := s.issuers.verify(ctx, jwt)
	if err != nil {
		return "", ends, err
	}
	if time.Until(verified.Expiry) < time.Second { // a call may still show it, because clocks differ
		return "", ends, refused(fmt.Errorf("the JWT ends at %s", verified.Expiry))
	}
	s.log.Info("somebody signed in", "identity", id.Name)
	return jwt, verified.Expiry, nil
}

// started checks that the ID token answers the request that Begin made with the verifier.
func (s *SignIn) started(ctx context.Context, idToken, verifier string) error {
	verified, err := s.issuers.byURL[s.Issuer().URL].verify(ctx, s.config.ClientID, idToken)
	if err != nil {
		return fmt.Errorf("the ID token: %w", err)
	}
	if subtle.ConstantTimeCompare([]byte(verified.Nonce), []byte(nonceOf(verifier))) != 1 {
		return refused(errors.New("the ID token has another nonce than the request"))
	}
	return nil
}

// nonceOf returns the nonce of a sign-in. It depends on the verifier, so the browser keeps only one secret, and reveals
// nothing of it.
func nonceOf(verifier string) string { return oauth2.S256ChallengeFromVerifier("nonce " + verifier) }

// idToken reports whether the ID token is the credential: its audience is the client. Otherwise it is the access token.
func (s *SignIn) idToken() bool { return s.config.ClientID == s.issuers.config.Audience }

// audience asks for an access token with the audience of this service: providers differ in the parameter that they use.
func (s *SignIn) audience() []oauth2.AuthCodeOption {
	if s.idToken() {
		return nil
	}
	audience := s.issuers.config.Audience
	return []oauth2.AuthCodeOption{oauth2.SetAuthURLParam("audience", audience), oauth2.SetAuthURLParam("resource", audience)}
}

// enter counts a sign-in in progress, if there is room.
func (s *SignIn) enter(ctx context.Context) (context.Context, func(), error) {
	select {
	case s.places <- struct{}{}:
	default:
		return nil, nil, fmt.Errorf("%w: too many sign in at once", ErrUnavailable)
	}
	ctx, cancel := context.WithTimeout(oidc.ClientContext(ctx, s.issuers.client), signInTimeout)
	return ctx, func() { cancel(); <-s.places }, nil
}

func (s *SignIn) failed(message string, err error) error {
	s.warnings.Do(func() { s.log.Warn(message, "issuer", s.Issuer().URL, "error", err) })
	return err
}

// oauth returns the configuration of the console as a client of the issuer. The issuer's addresses are looked up every keyRefresh.
func (s *SignIn) oauth(ctx context.Context, redirect string) (*oauth2.Config, error) {
	s.mu.Lock()
	endpoint, found := s.endpoint, s.found
	s.mu.Unlock()
	if time.Since(found) > keyRefresh {
		provider, err := oidc.NewProvider(ctx, s.Issuer().URL)
		if err != nil {
			return nil, err
		}
		endpoint = provider.Endpoint()
		for _, address := range []string{endpoint.AuthURL, endpoint.TokenURL} {
			if err := s.allowed(address); err != nil {
				return nil, err
			}
		}
		s.mu.Lock()
		s.endpoint, s.found = endpoint, time.Now()
		s.mu.Unlock()
	}
	config := &oauth2.Config{ClientID: s.config.ClientID, Endpoint: endpoint, RedirectURL: redirect, Scopes: append([]string{oidc.ScopeOpenID}, s.config.Scopes...)}
	config.Endpoint.AuthStyle = oauth2.AuthStyleInParams
	if s.secret != nil {
		config.ClientSecret, config.Endpoint.AuthStyle = s.secret.Current(), oauth2.AuthStyleAutoDetect
	}
	return config, nil
}

// allowed returns an error if an address of the issuer may not be used.
func (s *SignIn) allowed(address string) error {
	u, err := url.Parse(address)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http":
		return fmt.Errorf("the issuer has the invalid address %q", address)
	case u.Scheme == "http" && strings.HasPrefix(s.Issuer().URL, "https:"):
		return fmt.Errorf("the issuer is asked over HTTPS, and its address %s is without TLS", address)
	}
	return nil
}
