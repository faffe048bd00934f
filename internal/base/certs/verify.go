package certs

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"
	"weak"
)

// verified caches valid certificates, so that a call, or a look at a stream, costs less than the check of a
// signature. It has the certificates of all open connections. A certificate without a connection is dropped.
type verified struct {
	mu    sync.Mutex
	known map[weak.Pointer[x509.Certificate]]verification
}

// verification has the files that make a certificate valid, and the time until it is.
type verification struct {
	by    *material
	until time.Time
}

func (v *verified) remembers(cert *x509.Certificate, by *material) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	known, found := v.known[weak.Make(cert)]
	return found && known.by == by && !time.Now().After(known.until)
}

func (v *verified) remember(cert *x509.Certificate, found verification) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.known == nil {
		v.known = make(map[weak.Pointer[x509.Certificate]]verification)
	}
	key := weak.Make(cert)
	if _, again := v.known[key]; !again {
		runtime.AddCleanup(cert, v.forget, key)
	}
	v.known[key] = found
}

func (v *verified) forget(key weak.Pointer[x509.Certificate]) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.known, key)
}

// Verify checks the client certificate of an open connection against the current time and files, which may have changed
// since the handshake. It returns nil for a connection without one.
func (s *Server) Verify(state tls.ConnectionState) error {
	if len(state.PeerCertificates) == 0 {
		return nil
	}
	leaf, now := state.PeerCertificates[0], s.file.Current()
	if s.verified.remembers(leaf, now) {
		return nil
	}
	until, err := now.verify(leaf, state.PeerCertificates[1:])
	if err != nil {
		return fmt.Errorf("the client's certificate: %w", err)
	}
	s.verified.remember(leaf, verification{now, until})
	return nil
}

// verify returns until when a certificate is valid.
func (m *material) verify(leaf *x509.Certificate, more []*x509.Certificate) (until time.Time, err error) {
	if leaf.IsCA || leaf.KeyUsage&(x509.KeyUsageCertSign|x509.KeyUsageCRLSign) != 0 {
		return until, errors.New("it belongs to an authority")
	}
	roots, err := m.rootsOf(leaf)
	if err != nil {
		return until, err
	}
	intermediates := x509.NewCertPool()
	for _, cert := range more {
		intermediates.AddCert(cert)
	}
	chains, err := leaf.Verify(x509.VerifyOptions{
		Roots: roots, Intermediates: intermediates, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, CurrentTime: time.Now(),
	})
	if err != nil {
		return until, err
	}
	for _, chain := range chains {
		if slices.ContainsFunc(chain, m.isRevoked) {
			continue
		}
		end := chain[0].NotAfter
		for _, cert := range chain {
			if cert.NotAfter.Before(end) {
				end = cert.NotAfter
			}
		}
		if end.After(until) {
			until = end
		}
	}
	if until.IsZero() {
		return until, errors.New("it was revoked")
	}
	return until, nil
}

// rootsOf returns the authorities that may have signed a certificate: with bundles, the authorities of its SPIFFE
// id's trust domain.
func (m *material) rootsOf(leaf *x509.Certificate) (*x509.CertPool, error) {
	for _, uri := range leaf.URIs {
		if len(m.bundles) == 0 || uri.Scheme != "spiffe" {
			continue
		}
		if roots := m.bundles[uri.Host]; roots != nil {
			return roots, nil
		}
		return nil, fmt.Errorf("there is no bundle of the trust domain %q", uri.Host)
	}
	return m.cas, nil
}

func (m *material) isRevoked(cert *x509.Certificate) bool { return m.revoked[serialOf(cert)] }
