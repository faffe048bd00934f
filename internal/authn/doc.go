// Package authn finds out who calls. It looks at what a call shows (a client certificate, a bearer credential,
// the headers of a proxy), keeps the files and keys that are needed to believe it, and lets package
// auth name the identity. It is the same for gRPC and REST: both show a peer and metadata.
//
// The ways, in this order; the first that applies decides, and a credential that is wrong ends the
// call, whatever else it shows:
//
//  1. the identity header, on a connection of a trusted proxy. From anybody else the header is
//     ignored.
//  2. a bearer credential: "Authorization: Bearer CREDENTIAL", or CREDENTIAL as the password of basic authentication.
//     It is one of the credentials file, or one that an OIDC issuer has signed.
//  3. the certificate of the client. That of a trusted proxy names nobody.
package authn
