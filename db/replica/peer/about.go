package peer

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"net"
	"time"
)

// version is the version of About and of the calls.
const version = 1

// about is an About.
type about struct {
	Version int `json:"version"`
	// Address is HOST:PORT. A name is resolved at each dial.
	Address string `json:"address"`
	// Fingerprint is the SHA-256 of the server's certificate.
	Fingerprint []byte `json:"fingerprint"`
	// Secret is presented with each call.
	Secret []byte `json:"secret"`
}

func (a about) bytes() []byte {
	text, _ := json.Marshal(a) // it does not fail
	return text
}

// ErrAbout is returned, wrapped, for bytes that are not an About of this version.
var ErrAbout = errors.New("it does not say how to reach a server")

// maxAbout is more than the length of any About.
const maxAbout = 4096

func readAbout(text []byte) (a about, err error) {
	if len(text) > maxAbout {
		return a, fmt.Errorf("%w: it has %d bytes, and %d are the limit", ErrAbout, len(text), maxAbout)
	}
	var begin struct {
		Version int `json:"version"`
	}
	if err := json.Unmarshal(text, &begin); err != nil {
		return a, fmt.Errorf("%w: %w", ErrAbout, err)
	}
	if begin.Version != version {
		return a, fmt.Errorf("%w: it is of version %d, and this locket reads %d", ErrAbout, begin.Version, version)
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err = d.Decode(&a); err == nil {
		_, _, err = net.SplitHostPort(a.Address)
	}
	if err == nil && (len(a.Fingerprint) != sha256.Size || len(a.Secret) != secretBytes) {
		err = errors.New("the fingerprint or the secret is missing, or is not whole")
	}
	if err == nil && d.More() {
		err = errors.New("there is more behind it")
	}
	if err != nil {
		return a, fmt.Errorf("%w: %w", ErrAbout, err)
	}
	return a, nil
}

// secretBytes is how long a secret is.
const secretBytes = 32

func newSecret() []byte {
	secret := make([]byte, secretBytes)
	_, _ = rand.Read(secret) // it does not fail
	return secret
}

// newCertificate makes a key and a certificate that it has signed. Others know the certificate by its fingerprint, so
// nothing in it is checked.
func newCertificate() (c tls.Certificate, fingerprint []byte, err error) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return c, fingerprint, err
	}
	now := time.Now()
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: now, NotAfter: now.AddDate(100, 0, 0)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, public, private)
	if err != nil {
		return c, fingerprint, err
	}
	sum := sha256.Sum256(der)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: private}, sum[:], nil
}
