// Package certs makes TLS configurations (TLS 1.2 and up) from PEM files, for clients and for servers. Package follow
// follows the files: after a certificate is renewed, nothing needs to be restarted. Files that cannot be read, or do
// not belong together (for example because they are being replaced one after the other), leave the last valid ones in
// use. Open connections are not affected.
package certs

import (
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/locket-service/locket/internal/base/follow"
)

// ServerFiles are the PEM files of a server's TLS.
type ServerFiles struct {
	Cert, Key string
	// ClientCA has the authorities of the clients' certificates, "" for none.
	ClientCA string
	// CRL has their revocation lists, "" for none. It may also be in DER.
	CRL string
	// Bundles maps each SPIFFE trust domain to its authorities. If there are any, only SPIFFE ids of these trust
	// domains are accepted, each by its own bundle; otherwise ClientCA is used for all of them.
	Bundles map[string]string
	// MinVersion is the minimum version of TLS; TLS 1.2 if it is 0.
	MinVersion uint16
}

// Server has the certificates of a server. It is safe for concurrent use.
type Server struct {
	file       *follow.File[*material]
	verified   verified
	minVersion uint16
}

type material struct {
	cert    tls.Certificate
	cas     *x509.CertPool
	bundles map[string]*x509.CertPool // by trust domain
	all     *x509.CertPool            // cas and bundles
	revoked revocations
	// parts describe the certificates, for the audit log.
	parts []string
}

// Parts implements follow.Parts.
func (m *material) Parts() []string { return m.parts }

// Certificate implements follow.Certified.
func (m *material) Certificate() *x509.Certificate {
	if m == nil {
		return nil
	}
	return m.cert.Leaf
}

// LoadServer reads the files for the first time, and adds them to the set that follows them. Its errors name the file.
func LoadServer(files ServerFiles, set *follow.Set) (*Server, error) {
	what := "--tls-cert, --tls-key"
	if files.ClientCA != "" {
		what += ", --tls-client-ca"
	}
	if files.CRL != "" {
		what += ", --tls-crl"
	}
	paths := []string{files.Cert, files.Key, files.ClientCA, files.CRL}
	for _, domain := range files.domains() {
		paths = append(paths, files.Bundles[domain])
	}
	if len(files.Bundles) > 0 {
		what += ", --spiffe-bundles"
	}
	file, err := follow.Open(what, files.parse, paths...)
	if err != nil {
		return nil, err
	}
	set.Add(file)
	return &Server{file: file, minVersion: max(files.MinVersion, tls.VersionTLS12)}, nil
}

// domains returns the trust domains that have bundles, sorted.
func (f ServerFiles) domains() []string { return slices.Sorted(maps.Keys(f.Bundles)) }

func (f ServerFiles) parse(contents [][]byte) (m *material, err error) {
	m = &material{}
	if m.cert, err = tls.X509KeyPair(contents[0], contents[1]); err != nil {
		return nil, fmt.Errorf("the server's certificate and key: %w", err)
	}
	m.parts = append(m.parts, describe("certificate", m.cert.Leaf))
	if f.ClientCA == "" {
		return m, nil
	}
	var authorities []*x509.Certificate
	if m.cas, authorities, err = parseAuthorities(contents[2]); err != nil {
		return nil, fmt.Errorf("the clients' authorities: %w", err)
	}
	for _, authority := range authorities {
		m.parts = append(m.parts, describe("client authority", authority))
	}
	m.all, m.bundles = m.cas.Clone(), make(map[string]*x509.CertPool)
	for i, domain := range f.domains() {
		pool, more, err := parseAuthorities(contents[4+i])
		if err != nil {
			return nil, fmt.Errorf("--spiffe-bundles: the authorities of %s: %w", domain, err)
		}
		m.bundles[domain], authorities = pool, append(authorities, more...)
		for _, authority := range more {
			m.all.AddCert(authority)
			m.parts = append(m.parts, describe("authority of "+domain, authority))
		}
	}
	if f.CRL != "" {
		revoked, parts, err := parseRevocations(contents[3], authorities)
		if err != nil {
			return nil, fmt.Errorf("--tls-crl: %w", err)
		}
		m.revoked, m.parts = revoked, append(m.parts, parts...)
	}
	return m, nil
}

// describe names a certificate, for the audit log.
func describe(what string, cert *x509.Certificate) string {
	sum := sha256.Sum256(cert.Raw)
	return fmt.Sprintf("%s %q until %s, SHA-256 %s", what, cert.Subject, cert.NotAfter.UTC().Format(time.RFC3339), hex.EncodeToString(sum[:]))
}

// suites are the TLS 1.2 suites with authenticated encryption and forward secrecy: none with CBC. All suites of TLS 1.3
// have both.
var suites = []uint16{
	tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
	tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
	tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256, tls.TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
}

// Config returns a TLS configuration whose connections use the certificates that are valid when they are opened. No
// handshake reads a file.
func (s *Server) Config(auth tls.ClientAuthType) *tls.Config {
	return &tls.Config{
		MinVersion: s.minVersion,
		NextProtos: []string{"h2", "http/1.1"},
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			now := s.file.Current()
			return &tls.Config{
				MinVersion:   s.minVersion,
				CipherSuites: suites,
				NextProtos:   []string{"h2", "http/1.1"},
				Certificates: []tls.Certificate{now.cert},
				ClientCAs:    now.all,
				ClientAuth:   auth,
				// crypto/tls checks no revocation lists and no trust domains.
				VerifyConnection: s.Verify,
			}, nil
		},
	}
}

// ParseAuthorities parses one or more certificates in PEM. It returns an error for an incomplete block, because the
// file may be about to be written.
func ParseAuthorities(text []byte) (*x509.CertPool, error) {
	pool, _, err := parseAuthorities(text)
	return pool, err
}

func parseAuthorities(text []byte) (pool *x509.CertPool, all []*x509.Certificate, err error) {
	pool = x509.NewCertPool()
	begun := bytes.Count(text, []byte("-----BEGIN "))
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			break
		}
		begun--
		if block.Type != "CERTIFICATE" {
			continue
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			continue // bundles may have certificates that Go rejects
		}
		pool.AddCert(cert)
		all = append(all, cert)
	}
	switch {
	case begun > 0:
		return nil, nil, errors.New("a block of PEM is not complete")
	case len(all) == 0:
		return nil, nil, errors.New("no certificate")
	}
	return pool, all, nil
}
