package certs_test

import (
	"bytes"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
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

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// issue returns the files of a server with a certificate by ca that trusts the clients of clients.
func issue(t testing.TB, ca, clients *fixtures.CA) certs.ServerFiles {
	t.Helper()
	cert, key := ca.Issue(t, "server")
	return certs.ServerFiles{Cert: cert, Key: key, ClientCA: clients.File}
}

// handshakes is a TLS server that only makes handshakes, to inspect the certificates of one connection. Its files may
// be replaced. It is for bubbles.
type handshakes struct {
	certificates *certs.Server
	files        certs.ServerFiles
	set          *follow.Set
	logs         fixtures.Buffer
}

func newHandshakes(t *testing.T, ca *fixtures.CA) *handshakes {
	t.Helper()
	folder := t.TempDir()
	h := &handshakes{files: certs.ServerFiles{
		Cert: filepath.Join(folder, "crt"), Key: filepath.Join(folder, "key"), ClientCA: filepath.Join(folder, "ca"),
	}}
	h.replace(t, issue(t, ca, ca))
	h.set = follow.NewSet(slog.New(slog.NewTextHandler(&h.logs, nil)))
	var err error
	h.certificates, err = certs.LoadServer(h.files, h.set)
	must(t, err)
	return h
}

// pass makes the set check the files for 2 s.
func (h *handshakes) pass(t *testing.T) {
	for range 2 {
		h.set.Look(t.Context())
		time.Sleep(follow.Interval)
	}
}

// replace replaces the files of the server.
func (h *handshakes) replace(t *testing.T, by certs.ServerFiles) {
	t.Helper()
	for to, from := range map[string]string{h.files.Cert: by.Cert, h.files.Key: by.Key, h.files.ClientCA: by.ClientCA} {
		content, err := os.ReadFile(from)
		must(t, errors.Join(err, os.WriteFile(to, content, 0o600)))
	}
}

// shake returns the certificate that the server shows to a client, and the errors of both.
func (h *handshakes) shake(t *testing.T, client *tls.Config) (shown []byte, err error) {
	t.Helper()
	client = client.Clone()
	client.ServerName, client.InsecureSkipVerify = "localhost", true // the test inspects the certificate
	client.VerifyConnection = func(state tls.ConnectionState) error {
		shown = state.PeerCertificates[0].Raw
		return nil
	}
	near, far := net.Pipe()
	served := make(chan error, 1)
	go func() {
		served <- tls.Server(far, h.certificates.Config(tls.RequireAndVerifyClientCert)).Handshake()
		_ = far.Close()
	}()
	conn := tls.Client(near, client)
	err = conn.Handshake()
	_, _ = conn.Read(make([]byte, 1)) // reads the server's bytes
	_ = near.Close()
	return shown, errors.Join(err, <-served)
}

func certOf(t *testing.T, file string) []byte {
	t.Helper()
	content, err := os.ReadFile(file)
	must(t, err)
	cert, err := tls.LoadX509KeyPair(file, strings.TrimSuffix(file, "crt")+"key")
	if err != nil {
		t.Fatalf("%s: %v\n%s", file, err, content)
	}
	return cert.Certificate[0]
}

// TestReplacedCertificates: new connections use the new files within 2 s.
func TestReplacedCertificates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		before, after := fixtures.NewCA(t), fixtures.NewCA(t)
		h := newHandshakes(t, before)
		old := certOf(t, h.files.Cert)
		shown, err := h.shake(t, before.ClientTLS(t))
		if err != nil || !bytes.Equal(shown, old) {
			t.Fatalf("at first: %v", err)
		}
		h.replace(t, issue(t, after, after))
		h.pass(t)
		shown, err = h.shake(t, after.ClientTLS(t))
		if err != nil || bytes.Equal(shown, old) {
			t.Errorf("a client by the new authority: %v", err)
		}
		if _, err := h.shake(t, before.ClientTLS(t)); err == nil {
			t.Error("a client by the old authority is served still")
		}
		if n := strings.Count(h.logs.String(), "read again"); n != 1 {
			t.Errorf("that they were read again was logged %d times:\n%s", n, &h.logs)
		}
	})
}

// TestBrokenCertificates: invalid files leave the last valid ones in use, until they are fixed.
func TestBrokenCertificates(t *testing.T) {
	for name, spoil := range map[string]func(t *testing.T, h *handshakes, other *fixtures.CA){
		"half a pair": func(t *testing.T, h *handshakes, other *fixtures.CA) {
			cert, _ := other.Issue(t, "server")
			h.replace(t, certs.ServerFiles{Cert: cert, Key: h.files.Key, ClientCA: h.files.ClientCA})
		},
		"half a file": func(t *testing.T, h *handshakes, _ *fixtures.CA) { must(t, os.Truncate(h.files.Cert, 100)) },
		"no key":      func(t *testing.T, h *handshakes, _ *fixtures.CA) { must(t, os.Remove(h.files.Key)) },
		"no authority": func(t *testing.T, h *handshakes, _ *fixtures.CA) {
			must(t, os.WriteFile(h.files.ClientCA, []byte("none"), 0o600))
		},
		"nothing": func(t *testing.T, h *handshakes, _ *fixtures.CA) {
			must(t, errors.Join(os.Remove(h.files.Cert), os.Remove(h.files.Key), os.Remove(h.files.ClientCA)))
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ca, other := fixtures.NewCA(t), fixtures.NewCA(t)
				h := newHandshakes(t, ca)
				old := certOf(t, h.files.Cert)
				spoil(t, h, other)
				for range 3 {
					h.pass(t)
					if shown, err := h.shake(t, ca.ClientTLS(t)); err != nil || !bytes.Equal(shown, old) {
						t.Fatalf("with broken files: %v", err)
					}
				}
				if !strings.Contains(h.logs.String(), "level=ERROR") {
					t.Error("the broken files were not logged")
				}
				h.replace(t, issue(t, other, other))
				h.pass(t)
				if shown, err := h.shake(t, other.ClientTLS(t)); err != nil || bytes.Equal(shown, old) {
					t.Errorf("put right: %v", err)
				}
			})
		})
	}
}

// TestNoCertificates: LoadServer refuses invalid files, and names the file.
func TestNoCertificates(t *testing.T) {
	ca := fixtures.NewCA(t)
	good := issue(t, ca, ca)
	_, otherKey := ca.Issue(t, "other")
	for name, c := range map[string]struct {
		files certs.ServerFiles
		says  string
	}{
		"no certificate": {certs.ServerFiles{Cert: "none", Key: good.Key, ClientCA: good.ClientCA}, "none"},
		"another's key":  {certs.ServerFiles{Cert: good.Cert, Key: otherKey, ClientCA: good.ClientCA}, otherKey},
		"no authority":   {certs.ServerFiles{Cert: good.Cert, Key: good.Key, ClientCA: "none"}, "none"},
		"a key for one":  {certs.ServerFiles{Cert: good.Cert, Key: good.Key, ClientCA: good.Key}, good.Key},
	} {
		if _, err := certs.LoadServer(c.files, follow.NewSet(slog.New(slog.DiscardHandler))); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: the error is to name %s: %v", name, c.says, err)
		}
	}
}

// TestSuites: over TLS 1.2 suites with CBC are refused, and so are versions below the minimum.
func TestSuites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca := fixtures.NewCA(t)
		h := newHandshakes(t, ca)
		client := ca.ClientTLS(t)
		client.MaxVersion = tls.VersionTLS12
		shakes := func(what string, good bool, suites ...uint16) {
			t.Helper()
			client.CipherSuites = suites
			if _, err := h.shake(t, client); (err == nil) != good {
				t.Errorf("%s: %v", what, err)
			}
		}
		shakes("all suites", true)
		shakes("CBC alone", false, tls.TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA, tls.TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA)
		shakes("GCM", true, tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256)
		h.files.MinVersion = tls.VersionTLS13
		var err error
		h.certificates, err = certs.LoadServer(h.files, h.set)
		must(t, err)
		shakes("TLS 1.2, where 1.3 is the lowest", false)
		client.MaxVersion = tls.VersionTLS13
		shakes("TLS 1.3", true)
	})
}
