package certs_test

import (
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/internal/base/certs"
	"github.com/locket-service/locket/internal/base/follow"
)

// connectionOf returns the state of a connection with a client certificate.
func connectionOf(t *testing.T, certFile string) tls.ConnectionState {
	t.Helper()
	cert, err := x509.ParseCertificate(certOf(t, certFile))
	must(t, err)
	return tls.ConnectionState{PeerCertificates: []*x509.Certificate{cert}}
}

// TestVerify: the certificate of an open connection is checked against the current time and files.
func TestVerify(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca, other := fixtures.NewCA(t), fixtures.NewCA(t)
		h := newHandshakes(t, ca)
		h.files.CRL = filepath.Join(t.TempDir(), "crl")
		ca.Revoke(t, h.files.CRL)
		var err error
		h.certificates, err = certs.LoadServer(h.files, h.set)
		must(t, err)
		lasting, _ := ca.Issue(t, "lasting")
		short, _ := ca.Issue(t, "short", fixtures.ValidFor(time.Hour))
		revoked, key := ca.Issue(t, "revoked")
		authority, _ := ca.Issue(t, "authority", func(c *x509.Certificate) { c.IsCA, c.BasicConstraintsValid = true, true })
		signs, _ := ca.Issue(t, "signs", func(c *x509.Certificate) { c.KeyUsage |= x509.KeyUsageCertSign })
		foreign, _ := other.Issue(t, "foreign")
		connections := make(map[string]tls.ConnectionState)
		for name, file := range map[string]string{"lasting": lasting, "short": short, "revoked": revoked, "authority": authority, "signs": signs, "foreign": foreign} {
			connections[name] = connectionOf(t, file)
		}
		good := func(when string, want ...string) {
			t.Helper()
			for name, state := range connections {
				for range 2 { // the second time from the cache
					err := h.certificates.Verify(state)
					if wanted := strings.Contains(" "+strings.Join(want, " ")+" ", " "+name+" "); (err == nil) != wanted {
						t.Errorf("%s, %s: %v", when, name, err)
					}
				}
			}
		}
		good("at first", "lasting", "short", "revoked")
		pair, err := tls.LoadX509KeyPair(revoked, key)
		must(t, err)
		client := &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
		if _, err := h.shake(t, client); err != nil {
			t.Errorf("a handshake: %v", err)
		}
		ca.Revoke(t, h.files.CRL, revoked)
		h.pass(t)
		good("one is revoked", "lasting", "short")
		if _, err := h.shake(t, client); err == nil {
			t.Error("a handshake with a certificate that was revoked")
		}
		time.Sleep(time.Hour)
		good("an hour later", "lasting")
		other.Revoke(t, h.files.CRL)
		h.pass(t)
		good("with a list of somebody else, which does not count", "lasting")
		if h.set.Problems() == nil || !strings.Contains(h.logs.String(), "none of the clients' authorities has signed it") {
			t.Errorf("the log has\n%s", &h.logs)
		}
		both := h.files.ClientCA
		text, err := os.ReadFile(other.File)
		must(t, err)
		must(t, os.WriteFile(both, text, 0o600))
		h.pass(t)
		good("the authority was replaced", "foreign")
		if err := h.certificates.Verify(tls.ConnectionState{}); err != nil {
			t.Errorf("no certificate: %v", err)
		}
	})
}

// TestTrustDomains: a SPIFFE id is valid only by the authorities of its own trust domain.
func TestTrustDomains(t *testing.T) {
	ca, one, two := fixtures.NewCA(t), fixtures.NewCA(t), fixtures.NewCA(t)
	files := issue(t, ca, ca)
	files.Bundles = map[string]string{"one.example": one.File, "two.example": two.File}
	set := follow.NewSet(slog.New(slog.DiscardHandler))
	bundled, err := certs.LoadServer(files, set)
	must(t, err)
	plain, err := certs.LoadServer(issue(t, ca, ca), set)
	must(t, err)
	for _, c := range []struct {
		by             *fixtures.CA
		id             string
		bundled, plain bool
	}{
		{one, "spiffe://one.example/a", true, false},
		{two, "spiffe://two.example/a", true, false},
		{one, "spiffe://two.example/a", false, false},
		{two, "spiffe://one.example/a", false, false},
		{ca, "spiffe://one.example/a", false, true},
		{ca, "spiffe://three.example/a", false, true},
		{one, "spiffe://ONE.example/a", false, false},
		{ca, "", true, true},
		{one, "", false, false},
		{ca, "https://one.example/a", true, true},
	} {
		id, err := url.Parse(c.id)
		must(t, err)
		file, _ := c.by.Issue(t, "client", func(cert *x509.Certificate) {
			if c.id != "" {
				cert.URIs = []*url.URL{id}
			}
		})
		state := connectionOf(t, file)
		if err := bundled.Verify(state); (err == nil) != c.bundled {
			t.Errorf("%q with bundles: %v", c.id, err)
		}
		if err := plain.Verify(state); (err == nil) != c.plain {
			t.Errorf("%q without bundles: %v", c.id, err)
		}
	}
}
