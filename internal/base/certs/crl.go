package certs

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
)

// revocations are the revoked certificates, by issuer and serial number.
type revocations map[serial]bool

type serial struct{ issuer, number string }

func serialOf(cert *x509.Certificate) serial {
	return serial{string(cert.RawIssuer), cert.SerialNumber.String()}
}

// parseRevocations parses revocation lists (RFC 5280, section 5) in PEM, or one in DER. One of the authorities must
// have signed each. A list past its next update still applies: what it revokes stays revoked.
func parseRevocations(text []byte, authorities []*x509.Certificate) (all revocations, parts []string, err error) {
	all = make(revocations)
	lists, err := splitLists(text)
	if err != nil {
		return nil, nil, err
	}
	for _, der := range lists {
		list, err := x509.ParseRevocationList(der)
		if err != nil {
			return nil, nil, fmt.Errorf("a revocation list: %w", err)
		}
		if !signedByOne(list, authorities) {
			return nil, nil, fmt.Errorf("the revocation list of %q: none of the clients' authorities has signed it", list.Issuer)
		}
		for _, entry := range list.RevokedCertificateEntries {
			all[serial{string(list.RawIssuer), entry.SerialNumber.String()}] = true
		}
		parts = append(parts, fmt.Sprintf("revocation list of %q, number %s, with %d certificates", list.Issuer, list.Number, len(list.RevokedCertificateEntries)))
	}
	return all, parts, nil
}

func splitLists(text []byte) (lists [][]byte, err error) {
	started := bytes.Count(text, []byte("-----BEGIN "))
	if started == 0 && len(bytes.TrimSpace(text)) > 0 {
		return [][]byte{text}, nil
	}
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			break
		}
		started--
		if block.Type == "X509 CRL" {
			lists = append(lists, block.Bytes)
		}
	}
	switch {
	case started > 0:
		return nil, errors.New("a block of PEM is not complete")
	case len(lists) == 0:
		return nil, errors.New("no revocation list")
	}
	return lists, nil
}

func signedByOne(list *x509.RevocationList, authorities []*x509.Certificate) bool {
	for _, authority := range authorities {
		if bytes.Equal(authority.RawSubject, list.RawIssuer) && list.CheckSignatureFrom(authority) == nil {
			return true
		}
	}
	return false
}
