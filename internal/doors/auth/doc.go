// Package auth has the identities of credentials and certificates (access.Identity), and parses the files of credentials
// and of rules (Rules, which package access decides by). It does no I/O; packages authn and guard do that. The same file
// and the same call always give the same decision.
//
// The name of an identity begins with the way of authentication, so that no way can produce names of another one:
//
//	spiffe://TRUST-DOMAIN/PATH   a client certificate with a SPIFFE id
//	cert:COMMON-NAME             another client certificate
//	oidc:USER                    a credential of the OIDC issuer; an issuer that was given a name has that before the colon
//	credential:NAME              a credential of the credentials file
//	proxy:USER                   a header of a trusted proxy
//
// Groups have the same prefixes. A certificate's groups are its organisations: cert:ORGANISATION, and with a SPIFFE id
// spiffe://TRUST-DOMAIN/ORGANISATION, so that the authority of one trust domain names no groups of another.
package auth
