package certs

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
)

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
