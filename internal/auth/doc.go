// Package auth reads the texts that say who a credential or a certificate names (access.Identity), and what that identity
// may do (Rules, which package access decides by).
// It reads no file and asks nobody; packages authn and guard do that for it. The same file and
// the same call always give the same decision.
//
// The name of an identity begins with the way in which it was found, so that no way can make names
// of another one:
//
//	spiffe://TRUST-DOMAIN/PATH   a client certificate with a SPIFFE id
//	cert:COMMON-NAME             another client certificate
//	oidc:USER                    a credential of the OIDC issuer; an issuer that was given a name has that before the colon
//	credential:NAME                   a credential of the credentials file
//	proxy:USER                   a header of a trusted proxy
//
// Groups have the same prefixes; those of a certificate are its organisations, cert:ORGANISATION.
package auth
