// Package authn authenticates callers. It checks the credentials of a call (a client certificate, a bearer credential,
// the headers of a proxy), follows the files and keys that it needs for that, and uses package auth to get the
// identity. It works the same for gRPC and REST: both have a peer and metadata.
//
// The ways are tried in this order. The first that applies decides, and an invalid credential ends the call, whatever
// other credentials it has:
//
//  1. the identity header, on a connection of a trusted proxy. On other connections the header is
//     ignored.
//  2. a bearer credential: "Authorization: Bearer CREDENTIAL", or CREDENTIAL as the password of basic authentication.
//     It is in the credentials file, or an OIDC issuer has signed it.
//  3. the client certificate, unless it belongs to a trusted proxy.
package authn
