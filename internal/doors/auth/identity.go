package auth

import (
	"crypto/x509"
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"golang.org/x/text/unicode/norm"

	"github.com/locket-service/locket/internal/rules/access"
)

const (
	// MaxName is the maximum length of the name of an identity or a group, in bytes.
	MaxName = 512
	// MaxGroups is how many groups an identity may have.
	MaxGroups = 256
)

// The prefixes of names, by way of authentication.
const (
	CertPrefix       = "cert:"
	OIDCPrefix       = "oidc:"
	CredentialPrefix = "credential:"
	ProxyPrefix      = "proxy:"
)

// NewIdentity returns an identity whose name and groups have the prefix, in Unicode normal form NFC. Its errors say
// whether the name or a group is invalid.
func NewIdentity(prefix, name string, groups []string) (access.Identity, error) {
	name = norm.NFC.String(name)
	if err := ValidName(name); err != nil {
		return access.Identity{}, fmt.Errorf("the name of the identity %w", err)
	}
	if len(groups) > MaxGroups {
		return access.Identity{}, fmt.Errorf("the identity has %d groups, and at most %d are allowed", len(groups), MaxGroups)
	}
	id := access.Identity{Name: prefix + name}
	for _, group := range groups {
		group = norm.NFC.String(group)
		if err := ValidName(group); err != nil {
			return access.Identity{}, fmt.Errorf("a group of the identity %w", err)
		}
		id.Groups = append(id.Groups, prefix+group)
	}
	return id, nil
}

// ValidName returns an error if a name of an identity or of a group is invalid. A valid name has 1 to MaxName bytes of
// UTF-8, only printable characters (no control characters, no marks of direction or of zero width), is in normal form
// NFC, and has no blank at either end. So two names that look the same are usually the same.
func ValidName(name string) error {
	switch {
	case name == "":
		return errors.New("is empty")
	case len(name) > MaxName:
		return fmt.Errorf("has %d bytes, and at most %d are allowed", len(name), MaxName)
	case strings.TrimSpace(name) != name:
		return errors.New("begins or ends with a blank")
	}
	return validText(name)
}

// validText is ValidName for a part of a name.
func validText(text string) error {
	switch {
	case !utf8.ValidString(text):
		return errors.New("is not valid UTF-8")
	case strings.ContainsFunc(text, func(c rune) bool { return !unicode.IsPrint(c) }):
		return errors.New("contains a character that cannot be printed")
	case !norm.NFC.IsNormalString(text):
		return errors.New("is not in Unicode's normal form NFC, and names are compared in that form")
	}
	return nil
}

// ErrNamesNobody is returned for a certificate without a name for OfCertificate.
var ErrNamesNobody = errors.New("the client certificate has no SPIFFE id, no common name and no DNS name")

// OfCertificate returns the identity of a verified client certificate: its SPIFFE id (which must be the only URI among
// its subject alternative names, X509-SVID standard, section 2), otherwise its common name, or without one its first
// DNS name. Its organisations are its groups; with a SPIFFE id they belong to its trust domain, whose authority wrote
// them.
func OfCertificate(cert *x509.Certificate) (access.Identity, error) {
	for _, uri := range cert.URIs {
		if !strings.EqualFold(uri.Scheme, "spiffe") {
			continue
		}
		if len(cert.URIs) > 1 {
			return access.Identity{}, errors.New("the client certificate has a SPIFFE id and other URIs; only one URI is allowed")
		}
		named, err := spiffeid.FromURI(uri)
		if err != nil {
			return access.Identity{}, fmt.Errorf("the SPIFFE id of the client certificate: %w", err)
		}
		id, err := NewIdentity("", named.String(), nil)
		if err != nil {
			return access.Identity{}, err
		}
		organisations, err := NewIdentity(named.TrustDomain().IDString()+"/", "x", cert.Subject.Organization)
		id.Groups = organisations.Groups
		return id, err
	}
	name := cert.Subject.CommonName
	if name == "" && len(cert.DNSNames) > 0 {
		name = cert.DNSNames[0]
	}
	if name == "" {
		return access.Identity{}, ErrNamesNobody
	}
	return NewIdentity(CertPrefix, name, cert.Subject.Organization)
}
