package grpcserver_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/grpcserver"
)

// issue returns the files of a server with a certificate by ca that trusts the clients of
// clients.
func issue(t testing.TB, ca, clients *fixtures.CA) grpcserver.Files {
	t.Helper()
	cert, key := ca.Issue(t, "server")
	return grpcserver.Files{Cert: cert, Key: key, ClientCA: clients.File}
}

func load(t testing.TB, files grpcserver.Files, log *slog.Logger) *grpcserver.Certificates {
	t.Helper()
	certificates, err := grpcserver.LoadCertificates(files, log)
	must(t, err)
	return certificates
}

func TestMutualTLS(t *testing.T) {
	ca, other := fixtures.NewCA(t), fixtures.NewCA(t)
	address := startTLS(t, load(t, issue(t, ca, ca), slog.New(slog.DiscardHandler)))
	shows := func(certFile, keyFile string) func(*tls.Config) {
		pair, err := tls.LoadX509KeyPair(certFile, keyFile)
		must(t, err)
		return func(c *tls.Config) {
			// Shown even if the server names other authorities.
			c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
		}
	}
	for _, c := range []struct {
		name   string
		change func(*tls.Config)
		says   string // "" when the client is served
	}{
		{"right", func(*tls.Config) {}, ""},
		{"TLS 1.2", func(c *tls.Config) { c.MaxVersion = tls.VersionTLS12 }, ""},
		{"TLS 1.1", func(c *tls.Config) { c.MinVersion, c.MaxVersion = tls.VersionTLS10, tls.VersionTLS11 }, "protocol version"},
		{"no certificate", func(c *tls.Config) { c.Certificates = nil }, "certificate required"},
		{"no certificate, TLS 1.2", func(c *tls.Config) { c.Certificates, c.MaxVersion = nil, tls.VersionTLS12 }, "handshake failure"},
		{"another authority's", shows(other.Issue(t, "client")), "unknown certificate authority"},
		{"expired", shows(ca.Issue(t, "client", fixtures.Expired())), "expired certificate"},
		{"for servers only", shows(ca.Issue(t, "client", func(c *x509.Certificate) {
			c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
		})), "bad certificate"},
	} {
		t.Run(c.name, func(t *testing.T) {
			config := ca.ClientTLS(t)
			config.NextProtos = []string{"h2"}
			c.change(config)
			err := greet(address, config)
			if c.says == "" {
				must(t, err)
			} else if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v, want %q", err, c.says)
			}
		})
	}
	t.Run("no TLS", func(t *testing.T) { wantCode(t, check(t, address, insecure.NewCredentials()), codes.Unavailable) })
	t.Run("the client does not trust the server", func(t *testing.T) {
		wantCode(t, check(t, address, credentials.NewTLS(other.ClientTLS(t))), codes.Unavailable)
	})
	t.Run("gRPC", func(t *testing.T) { must(t, check(t, address, credentials.NewTLS(ca.ClientTLS(t)))) })
}

// greet connects and waits for the server's first word. In TLS 1.3 a client hears only
// then that its certificate was refused.
func greet(address string, config *tls.Config) error {
	conn, err := tls.Dial("tcp", address, config)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		return err
	}
	_, err = conn.Read(make([]byte, 9))
	return err
}

// check asks for the server's health on a new connection.
func check(t *testing.T, address string, creds credentials.TransportCredentials, options ...grpc.DialOption) error {
	t.Helper()
	conn, err := grpc.NewClient(address, append(options, grpc.WithTransportCredentials(creds))...)
	must(t, err)
	defer func() { _ = conn.Close() }()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	_, err = grpc_health_v1.NewHealthClient(conn).Check(ctx, &grpc_health_v1.HealthCheckRequest{})
	return err
}

// handshakes is a TLS server that does nothing but shake hands, so that the certificates
// of one connection can be looked at; its files may be replaced. It is for bubbles.
type handshakes struct {
	certificates *grpcserver.Certificates
	files        grpcserver.Files
	logs         logs
}

func newHandshakes(t *testing.T, ca *fixtures.CA) *handshakes {
	t.Helper()
	folder := t.TempDir()
	h := &handshakes{files: grpcserver.Files{
		Cert: filepath.Join(folder, "crt"), Key: filepath.Join(folder, "key"), ClientCA: filepath.Join(folder, "ca"),
	}}
	h.replace(t, issue(t, ca, ca))
	h.certificates = load(t, h.files, h.logs.logger())
	return h
}

// replace puts other files in the place of those of the server.
func (h *handshakes) replace(t *testing.T, by grpcserver.Files) {
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
	client.ServerName, client.InsecureSkipVerify = "localhost", true // what is shown is looked at by the test
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
	_, _ = conn.Read(make([]byte, 1)) // takes what the server has to say
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
		time.Sleep(2 * time.Second)
		shown, err = h.shake(t, after.ClientTLS(t))
		if err != nil || bytes.Equal(shown, old) {
			t.Errorf("a client by the new authority: %v", err)
		}
		if _, err := h.shake(t, before.ClientTLS(t)); err == nil {
			t.Error("a client by the old authority is served still")
		}
		h.logs.line(t, "read again")
	})
}

// TestBrokenCertificates: files that are not good leave the last good ones in use, until
// they are.
func TestBrokenCertificates(t *testing.T) {
	for name, spoil := range map[string]func(t *testing.T, h *handshakes, other *fixtures.CA){
		"half a pair": func(t *testing.T, h *handshakes, other *fixtures.CA) {
			cert, _ := other.Issue(t, "server")
			h.replace(t, grpcserver.Files{Cert: cert, Key: h.files.Key, ClientCA: h.files.ClientCA})
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
					time.Sleep(2 * time.Second)
					if shown, err := h.shake(t, ca.ClientTLS(t)); err != nil || !bytes.Equal(shown, old) {
						t.Fatalf("with broken files: %v", err)
					}
				}
				if !strings.Contains(h.logs.String(), "level=ERROR") {
					t.Error("the broken files were not logged")
				}
				h.replace(t, issue(t, other, other))
				time.Sleep(2 * time.Second)
				if shown, err := h.shake(t, other.ClientTLS(t)); err != nil || bytes.Equal(shown, old) {
					t.Errorf("put right: %v", err)
				}
			})
		})
	}
}

// TestNoCertificates: a server does not start on files that are not good.
func TestNoCertificates(t *testing.T) {
	ca := fixtures.NewCA(t)
	good := issue(t, ca, ca)
	_, otherKey := ca.Issue(t, "other")
	for name, files := range map[string]grpcserver.Files{
		"no certificate": {Cert: "none", Key: good.Key, ClientCA: good.ClientCA},
		"another's key":  {Cert: good.Cert, Key: otherKey, ClientCA: good.ClientCA},
		"no authority":   {Cert: good.Cert, Key: good.Key, ClientCA: "none"},
		"a key for one":  {Cert: good.Cert, Key: good.Key, ClientCA: good.Key},
	} {
		if _, err := grpcserver.LoadCertificates(files, slog.New(slog.DiscardHandler)); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// TestReplacedWhileServing is the same through gRPC, on real sockets.
func TestReplacedWhileServing(t *testing.T) {
	before, after := fixtures.NewCA(t), fixtures.NewCA(t)
	h := newHandshakes(t, before)
	address := startTLS(t, h.certificates)
	old, err := grpc.NewClient(address, grpc.WithTransportCredentials(credentials.NewTLS(before.ClientTLS(t))))
	must(t, err)
	defer func() { _ = old.Close() }()
	ask := func() error {
		_, err := grpc_health_v1.NewHealthClient(old).Check(t.Context(), &grpc_health_v1.HealthCheckRequest{})
		return err
	}
	must(t, ask())
	h.replace(t, issue(t, after, after))
	replaced := time.Now()
	for check(t, address, credentials.NewTLS(after.ClientTLS(t))) != nil {
		if time.Since(replaced) > 5*time.Second { // the machine may be busy; TestReplacedCertificates is exact
			t.Fatal("the new certificates are not in use")
		}
		time.Sleep(50 * time.Millisecond)
	}
	must(t, ask()) // on the connection that was there
}
