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
)

// Identity is who a caller was authenticated as.
type Identity struct {
	// Name is unique among all ways of authentication; Anonymous for a caller that showed nothing
	// where that is allowed.
	Name string
	// Groups are those that the credential names.
	Groups []string
	// Credential is the id of what the caller showed, for the audit log; "" where there is none.
	Credential string
}

// Anonymous is the name of all callers together that show nothing where that is allowed. No way of
// authentication gives it: theirs have a prefix.
const Anonymous = "anonymous"

const (
	// MaxName is the largest length of a name of an identity or a group, in bytes.
	MaxName = 512
	// MaxGroups is how many groups an identity may have.
	MaxGroups = 256
)

// The prefixes of names, by the way in which an identity was found.
const (
	CertPrefix       = "cert:"
	OIDCPrefix       = "oidc:"
	CredentialPrefix = "credential:"
	ProxyPrefix      = "proxy:"
)

// NewIdentity returns an identity whose name and groups have the prefix, in the normal form NFC. Its errors name what is
// wrong.
func NewIdentity(prefix, name string, groups []string) (Identity, error) {
	name = norm.NFC.String(name)
	if err := ValidName(name); err != nil {
		return Identity{}, fmt.Errorf("the name of the identity %w", err)
	}
	if len(groups) > MaxGroups {
		return Identity{}, fmt.Errorf("the identity has %d groups, and at most %d are allowed", len(groups), MaxGroups)
	}
	id := Identity{Name: prefix + name}
	for _, group := range groups {
		group = norm.NFC.String(group)
		if err := ValidName(group); err != nil {
			return Identity{}, fmt.Errorf("a group of the identity %w", err)
		}
		id.Groups = append(id.Groups, prefix+group)
	}
	return id, nil
}

// ValidName returns what is wrong with a name of an identity or of a group: it has 1 to MaxName
// bytes of UTF-8, which all can be seen (no control characters, no marks of direction or of width zero), in the
// normal form NFC, and no blank at either end. So two names that look the same are mostly one.
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
		return errors.New("is not in the normal form NFC of Unicode, in which names are compared")
	}
	return nil
}

// ErrNamesNobody is returned for a certificate without a name that OfCertificate uses.
var ErrNamesNobody = errors.New("the client certificate has no SPIFFE id, no common name and no DNS name")

// OfCertificate returns the identity of a client certificate that was verified: its SPIFFE id (the
// only URI among its subject alternative names, by the X509-SVID standard, section 2), else its
// common name, or where that is empty its first DNS name. Its organisations are its groups.
func OfCertificate(cert *x509.Certificate) (Identity, error) {
	for _, uri := range cert.URIs {
		if !strings.EqualFold(uri.Scheme, "spiffe") {
			continue
		}
		if len(cert.URIs) > 1 {
			return Identity{}, errors.New("the client certificate has a SPIFFE id and other URIs; only one URI is allowed")
		}
		named, err := spiffeid.FromURI(uri)
		if err != nil {
			return Identity{}, fmt.Errorf("the SPIFFE id of the client certificate: %w", err)
		}
		id, err := NewIdentity("", named.String(), nil)
		if err != nil {
			return Identity{}, err
		}
		organisations, err := NewIdentity(CertPrefix, "x", cert.Subject.Organization)
		id.Groups = organisations.Groups
		return id, err
	}
	name := cert.Subject.CommonName
	if name == "" && len(cert.DNSNames) > 0 {
		name = cert.DNSNames[0]
	}
	if name == "" {
		return Identity{}, ErrNamesNobody
	}
	return NewIdentity(CertPrefix, name, cert.Subject.Organization)
}
