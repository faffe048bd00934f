package auth

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/locket-service/locket/internal/rules/access"
)

// MaxFile is the size of the largest file of credentials or rules, in bytes.
const MaxFile = 4 << 20

// credentialBytes is how many random bytes a credential has: it cannot be guessed, so that a plain hash protects it.
const credentialBytes = 32

// CredentialStart begins every credential of NewCredential, so that tools that look for leaked secrets find it.
const CredentialStart = "locket_"

// NewCredential returns a new credential, and its hash for the credentials file.
func NewCredential() (credential, hash string) {
	random := make([]byte, credentialBytes)
	_, _ = rand.Read(random) // never fails
	credential = CredentialStart + base64.RawURLEncoding.EncodeToString(random)
	return credential, hashOf(credential)
}

const hashPrefix = "sha256:"

func hashOf(credential string) string {
	sum := sha256.Sum256([]byte(credential))
	return hashPrefix + hex.EncodeToString(sum[:])
}

// CredentialEntry is an entry of a credentials file.
type CredentialEntry struct {
	// Name is the name of the identity, without the prefix.
	Name string `yaml:"name"`
	// Hash is "sha256:" and the SHA-256 of the credential, in hexadecimal digits.
	Hash string `yaml:"hash"`
	// Groups are the groups of the identity, without the prefix.
	Groups []string `yaml:"groups,omitempty,flow"`
	// Expires is when the credential expires; the zero time for never.
	Expires time.Time `yaml:"expires,omitempty"`
}

// idDigits is the length of an id.
const idDigits = 12

// ID names the credential in lists and in the audit log: the first digits of its hash. It reveals nothing of the
// credential itself.
func (e CredentialEntry) ID() string {
	digits := strings.TrimPrefix(e.Hash, hashPrefix)
	return strings.ToLower(digits[:min(len(digits), idDigits)])
}

// Identity returns the identity of a caller that shows the credential.
func (e CredentialEntry) Identity() (access.Identity, error) {
	identity, err := NewIdentity(CredentialPrefix, e.Name, e.Groups)
	identity.Credential = e.ID()
	return identity, err
}

// credentialsFile is the format of a credentials file.
type credentialsFile struct {
	Credentials []CredentialEntry `yaml:"credentials"`
}

// Credentials are the entries of a credentials file.
type Credentials struct {
	entries []CredentialEntry
	byHash  map[[sha256.Size]byte]credentialOf
}

type credentialOf struct {
	hash     [sha256.Size]byte
	identity access.Identity
	expires  time.Time
}

// ParseCredentials parses a credentials file. Several credentials may have the same name, so that they can be rotated.
// Its errors name the entry.
func ParseCredentials(text []byte) (*Credentials, error) {
	var file credentialsFile
	if err := decodeFile(text, &file); err != nil {
		return nil, err
	}
	credentials := &Credentials{byHash: make(map[[sha256.Size]byte]credentialOf, len(file.Credentials))}
	for i, entry := range file.Credentials {
		if err := credentials.add(entry); err != nil {
			return nil, fmt.Errorf("credential %d (%q): %w", i+1, entry.Name, err)
		}
	}
	return credentials, nil
}

func (c *Credentials) add(entry CredentialEntry) error {
	identity, err := entry.Identity()
	if err != nil {
		return err
	}
	digits, found := strings.CutPrefix(entry.Hash, hashPrefix)
	sum, err := hex.DecodeString(digits)
	if !found || err != nil || len(sum) != sha256.Size {
		return errors.New("the hash must be sha256: and 64 hexadecimal digits, as `locket credential new` prints it")
	}
	hash := [sha256.Size]byte(sum)
	if _, known := c.byHash[hash]; known {
		return errors.New("another entry has the same hash")
	}
	c.byHash[hash] = credentialOf{hash, identity, entry.Expires}
	c.entries = append(c.entries, entry)
	return nil
}

// ErrUnknownCredential is returned for a credential that is not in the file.
var ErrUnknownCredential = errors.New("no such credential")

// Find returns the identity of a credential. It returns ErrUnknownCredential, or another error for one that has
// expired. Its duration reveals nothing about the credentials: the lookup uses a hash that the caller cannot choose,
// and the final comparison takes constant time.
func (c *Credentials) Find(credential string, now time.Time) (access.Identity, error) {
	sum := sha256.Sum256([]byte(credential))
	known := c.byHash[sum]
	if subtle.ConstantTimeCompare(known.hash[:], sum[:]) != 1 {
		return access.Identity{}, ErrUnknownCredential
	}
	if !known.expires.IsZero() && !now.Before(known.expires) {
		return access.Identity{}, fmt.Errorf("the credential %s of %s expired at %s", known.identity.Credential, known.identity.Name, known.expires.UTC().Format(time.RFC3339))
	}
	return known.identity, nil
}

// Entries returns the entries of the file, in their order.
func (c *Credentials) Entries() []CredentialEntry { return c.entries }

// decodeFile decodes a YAML file and refuses unknown members.
func decodeFile(text []byte, into any) error {
	if len(text) > MaxFile {
		return fmt.Errorf("it has %d bytes, and at most %d are allowed", len(text), MaxFile)
	}
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	decoder.KnownFields(true)
	if err := decoder.Decode(into); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if err := decoder.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return errors.New("it has more than one document")
	}
	return nil
}
