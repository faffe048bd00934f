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
)

// MaxFile is the size of the largest file of tokens or rules, in bytes.
const MaxFile = 4 << 20

// tokenBytes is how many random bytes a token has: nobody guesses one, so a plain hash protects it.
const tokenBytes = 32

// TokenStart begins every token of NewToken, so that tools that look for leaked secrets find it.
const TokenStart = "locket_"

// NewToken returns a new token, and what the token file has of it.
func NewToken() (token, hash string) {
	random := make([]byte, tokenBytes)
	_, _ = rand.Read(random) // never fails
	token = TokenStart + base64.RawURLEncoding.EncodeToString(random)
	return token, hashOf(token)
}

const hashPrefix = "sha256:"

func hashOf(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hashPrefix + hex.EncodeToString(sum[:])
}

// TokenEntry is an entry of a token file.
type TokenEntry struct {
	// Name is that of the identity, without the prefix.
	Name string `yaml:"name"`
	// Hash is "sha256:" and the SHA-256 of the token, in hexadecimal digits.
	Hash string `yaml:"hash"`
	// Groups are without the prefix too.
	Groups []string `yaml:"groups,omitempty,flow"`
	// Expires is when the credential ends; the zero time for never.
	Expires time.Time `yaml:"expires,omitempty"`
}

// idDigits is the length of an id.
const idDigits = 12

// ID names the credential in lists and in the audit log: the first digits of its hash. It tells nothing of the
// credential itself.
func (e TokenEntry) ID() string {
	digits := strings.TrimPrefix(e.Hash, hashPrefix)
	return strings.ToLower(digits[:min(len(digits), idDigits)])
}

// Identity returns who shows the credential.
func (e TokenEntry) Identity() (Identity, error) {
	identity, err := NewIdentity(TokenPrefix, e.Name, e.Groups)
	identity.Credential = e.ID()
	return identity, err
}

// tokenFile is the form of a token file.
type tokenFile struct {
	Tokens []TokenEntry `yaml:"tokens"`
}

// Tokens are those of a token file.
type Tokens struct {
	entries []TokenEntry
	byHash  map[[sha256.Size]byte]tokenOf
}

type tokenOf struct {
	hash     [sha256.Size]byte
	identity Identity
	expires  time.Time
}

// ParseTokens reads a token file. Several tokens may have one name, so that they can be replaced
// one after the other. Its errors name the entry.
func ParseTokens(text []byte) (*Tokens, error) {
	var file tokenFile
	if err := decodeFile(text, &file); err != nil {
		return nil, err
	}
	tokens := &Tokens{byHash: make(map[[sha256.Size]byte]tokenOf, len(file.Tokens))}
	for i, entry := range file.Tokens {
		if err := tokens.add(entry); err != nil {
			return nil, fmt.Errorf("token %d (%q): %w", i+1, entry.Name, err)
		}
	}
	return tokens, nil
}

func (t *Tokens) add(entry TokenEntry) error {
	identity, err := entry.Identity()
	if err != nil {
		return err
	}
	digits, found := strings.CutPrefix(entry.Hash, hashPrefix)
	sum, err := hex.DecodeString(digits)
	if !found || err != nil || len(sum) != sha256.Size {
		return errors.New("the hash must be sha256: and 64 hexadecimal digits, as `locket token new` prints it")
	}
	hash := [sha256.Size]byte(sum)
	if _, known := t.byHash[hash]; known {
		return errors.New("another entry has the same hash")
	}
	t.byHash[hash] = tokenOf{hash, identity, entry.Expires}
	t.entries = append(t.entries, entry)
	return nil
}

// ErrUnknownToken is returned for a credential that is not in the file.
var ErrUnknownToken = errors.New("no such token")

// Find returns the identity of a token. It returns ErrUnknownToken, or another error for one that has
// expired. How long it takes tells nothing of the tokens: what is
// looked up is a hash, of which the caller cannot choose a part, and the comparison that decides
// takes the same time wherever the two differ.
func (t *Tokens) Find(token string, now time.Time) (Identity, error) {
	sum := sha256.Sum256([]byte(token))
	known := t.byHash[sum]
	if subtle.ConstantTimeCompare(known.hash[:], sum[:]) != 1 {
		return Identity{}, ErrUnknownToken
	}
	if !known.expires.IsZero() && !now.Before(known.expires) {
		return Identity{}, fmt.Errorf("the credential %s of %s expired at %s", known.identity.Credential, known.identity.Name, known.expires.UTC().Format(time.RFC3339))
	}
	return known.identity, nil
}

// Entries returns what the file has, in its order.
func (t *Tokens) Entries() []TokenEntry { return t.entries }

// decodeFile reads a file in YAML whose members are all known.
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
