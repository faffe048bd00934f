package server

import (
	"context"
	"fmt"
	"log/slog"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/locket-service/locket/console"
	"github.com/locket-service/locket/gateway"
	"github.com/locket-service/locket/grpcserver"
	"github.com/locket-service/locket/internal/base/certs"
	"github.com/locket-service/locket/internal/base/follow"
	"github.com/locket-service/locket/internal/doors/auth"
	"github.com/locket-service/locket/internal/doors/authn"
	"github.com/locket-service/locket/internal/doors/guard"
)

// loopbackProxy is the value of --auth-proxies that trusts all connections from this machine.
const loopbackProxy = "loopback"

// authentication returns the configured ways of authentication. It reads no files.
func (c Config) authentication() (authn.Config, error) {
	config := authn.Config{
		Certificates: c.TLSClientCA != "", CredentialFile: c.AuthCredentials, Anonymous: c.HTTPAnonymous,
		OIDC:  authn.OIDC{Audience: c.OIDCAudience, UserClaim: c.OIDCUserClaim, GroupsClaim: c.OIDCGroupsClaim, KeyFile: c.OIDCKeys, CA: c.OIDCCA},
		Proxy: authn.Proxy{UserHeader: c.AuthProxyUserHeader, GroupsHeader: c.AuthProxyGroupsHeader},
	}
	for _, proxy := range c.AuthProxies {
		if proxy == loopbackProxy {
			config.Proxy.Loopback = true
		} else {
			config.Proxy.Identities = append(config.Proxy.Identities, proxy)
		}
	}
	var err error
	config.OIDC.Issuers, err = authn.ParseIssuers(c.OIDCIssuers)
	if err != nil {
		err = fmt.Errorf("--oidc-issuers: %w", err)
	}
	return config, err
}

func (c Config) checkAuthentication(k *check) {
	config, err := c.authentication()
	_, wrongBundles := c.spiffeBundles()
	*k = append(*k, err, wrongBundles)
	issuers := len(c.OIDCIssuers) > 0
	k.that(issuers == (c.OIDCAudience != ""), "--oidc-issuers and --oidc-audience go together")
	k.that(issuers || c.OIDCKeys+c.OIDCCA+c.OIDCGroupsClaim == "", "--oidc-keys, --oidc-ca and --oidc-groups-claim: without --oidc-issuers they mean nothing")
	k.that(len(c.OIDCIssuers) < 2 || c.OIDCKeys == "", "--oidc-keys: it is for one issuer, and --oidc-issuers has several")
	k.that(c.OIDCConsoleClientID == "" || len(c.OIDCIssuers) == 1, "--oidc-console-client-id: people sign in at one issuer; --oidc-issuers must have one")
	k.that(c.OIDCConsoleClientID != "" || c.OIDCConsoleSecretFile == "" && len(c.OIDCConsoleScopes) == 0, "--oidc-console-secret-file and --oidc-console-scopes: without --oidc-console-client-id they mean nothing")
	k.that(c.AuthRules == "" || config.Enabled(), "--auth-rules: nobody is authenticated; give --tls-client-ca, --auth-credentials, --oidc-issuers or --auth-proxies")
	k.that(!c.HTTPAnonymous || !config.OtherThanCertificates(), "--http-anonymous: callers without a certificate are to show something else; leave it out, or the other way of authentication")
	k.that(c.TLSCRL == "" || c.TLSClientCA != "", "--tls-crl: it is of the authorities of --tls-client-ca, which is not given")
	k.that(len(c.SPIFFEBundles) == 0 || c.TLSClientCA != "", "--spiffe-bundles: it goes together with --tls-client-ca, which is for certificates without a SPIFFE id")
	k.valid("--auth-proxy-user-header, --auth-proxy-groups-header", config.Proxy.Validate())
	k.that(len(config.Proxy.Identities) == 0 || c.TLSClientCA != "", "--auth-proxies: the certificates of the proxies need --tls-client-ca")
}

// spiffeBundles returns the files of SPIFFEBundles by their trust domains.
func (c Config) spiffeBundles() (map[string]string, error) {
	bundles := make(map[string]string)
	for _, text := range c.SPIFFEBundles {
		name, file, _ := strings.Cut(text, "=")
		domain, err := spiffeid.TrustDomainFromString(name)
		switch {
		case err != nil || domain.Name() != name || file == "":
			return nil, fmt.Errorf("--spiffe-bundles: %q must be a trust domain and a file, as in example.org=bundle.pem", text)
		case bundles[name] != "":
			return nil, fmt.Errorf("--spiffe-bundles: the trust domain %s is there twice; one file may have several authorities", name)
		}
		bundles[name] = file
	}
	return bundles, nil
}

// security is how calls are authenticated and authorized.
type security struct {
	guards Guards
	// arrivals bounds the calls that are not authenticated yet; nil without authentication.
	arrivals *guard.Arrivals
	// headers are the headers that the gateway passes on.
	headers []string
	// signIn is nil if people do not sign in with a browser.
	signIn *authn.SignIn
}

// people returns the gateway's sign-in for people, nil if there is none.
func (s *security) people() gateway.SignIn {
	if s.signIn == nil {
		return nil // and no interface with a nil in it
	}
	return s.signIn
}

// provider returns where people sign in, for the console.
func (s *security) provider() console.Provider {
	if s.signIn == nil {
		return console.Provider{}
	}
	issuer := s.signIn.Issuer()
	return console.Provider{URL: issuer.URL, Identities: issuer.Name + ":"}
}

// arrive returns the function that the listeners call with the header of each call, nil without authentication.
func (s *security) arrive() func(context.Context, func()) func() {
	if s.arrivals == nil {
		return nil
	}
	return s.arrivals.Begin
}

// newSecurity reads the files for the first time. Without any way of authentication there are no guards: everybody who
// can connect may do everything.
func newSecurity(c Config, certificates *certs.Server, files *follow.Set, log *slog.Logger, registry prometheus.Registerer) (*security, error) {
	config, err := c.authentication()
	if err != nil || !config.Enabled() {
		return &security{}, err
	}
	if certificates != nil {
		config.Verify = certificates.Verify
	}
	authenticator, err := authn.New(config, files, log)
	if err != nil {
		return nil, err
	}
	people := authn.SignInConfig{ClientID: c.OIDCConsoleClientID, SecretFile: c.OIDCConsoleSecretFile, Scopes: c.OIDCConsoleScopes}
	signIn, err := authenticator.NewSignIn(people, files, log)
	if err != nil {
		return nil, err
	}
	standard := auth.DefaultRules()
	rules := func() *auth.Rules { return standard }
	if c.AuthRules != "" {
		file, err := follow.Open("--auth-rules", follow.One(auth.LoadRules), c.AuthRules)
		if err != nil {
			return nil, err
		}
		files.Add(file)
		rules = file.Current
	}
	return &security{
		guards: Guards{
			Who: []grpcserver.Guard{guard.Authenticate(authenticator, rules, log)},
			May: []grpcserver.Guard{guard.Authorize(), guard.Limit()},
		},
		arrivals: guard.NewArrivals(authenticator.Known, registry),
		headers:  authenticator.Headers(),
		signIn:   signIn,
	}, nil
}
