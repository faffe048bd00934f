package certs_test

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"os"
	"os/exec"
	"testing"

	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/internal/base/certs"
)

// TestSystemAuthorities: a client reads the system's authorities when it reads its files, not in its first handshake, which has
// little time. Go reads them once for each process, so this runs in one of its own.
func TestSystemAuthorities(t *testing.T) {
	const child = "CERTS_TEST_CHILD"
	if os.Getenv(child) == "" {
		ca := fixtures.NewCA(t)
		cmd := exec.Command(os.Args[0], "-test.run=^TestSystemAuthorities$")
		cert, _ := ca.Issue(t, "server")
		cmd.Env = append(os.Environ(), child+"="+cert, "SSL_CERT_FILE="+ca.File, "SSL_CERT_DIR="+t.TempDir())
		if output, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, output)
		}
		return
	}
	client, err := certs.LoadClient(certs.ClientFiles{})
	must(t, err)
	must(t, os.Remove(os.Getenv("SSL_CERT_FILE")))
	must(t, client.Connect(t.Context(), func(config *tls.Config) error {
		_, err := leafOf(t, os.Getenv(child)).Verify(x509.VerifyOptions{Roots: config.RootCAs})
		return err
	}))
}

// leafOf returns the certificate in a file.
func leafOf(t *testing.T, file string) *x509.Certificate {
	t.Helper()
	text, err := os.ReadFile(file)
	must(t, err)
	block, _ := pem.Decode(text)
	leaf, err := x509.ParseCertificate(block.Bytes)
	must(t, err)
	return leaf
}
