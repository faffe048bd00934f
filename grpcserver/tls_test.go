package grpcserver_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/internal/base/certs"
	"github.com/locket-service/locket/internal/base/follow"
	"github.com/locket-service/locket/tests/harness"
)

// issue returns the files of a server with a certificate by ca that trusts the clients of
// clients.
func issue(t testing.TB, ca, clients *fixtures.CA) certs.ServerFiles {
	t.Helper()
	cert, key := ca.Issue(t, "server")
	return certs.ServerFiles{Cert: cert, Key: key, ClientCA: clients.File}
}

func load(t testing.TB, files certs.ServerFiles, log *slog.Logger) *certs.Server {
	t.Helper()
	certificates, err := certs.LoadServer(files, follow.NewSet(log))
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
			// shown even if the server names other authorities.
			c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
		}
	}
	for _, c := range []struct {
		name   string
		change func(*tls.Config)
		says   string // "" if the client is served
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

// greet connects and waits for the server's first byte. In TLS 1.3 a client learns only then that its certificate was
// refused.
func greet(address string, config *tls.Config) error {
	conn, err := tls.Dial("tcp", address, config)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(time.Now().Add(harness.HangTimeout)); err != nil {
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
	ctx, cancel := context.WithTimeout(t.Context(), harness.HangTimeout)
	defer cancel()
	_, err = grpc_health_v1.NewHealthClient(conn).Check(ctx, &grpc_health_v1.HealthCheckRequest{})
	return err
}

// TestReplacedWhileServing: new connections use replaced files, with gRPC and real sockets. The tests of package certs
// check the details.
func TestReplacedWhileServing(t *testing.T) {
	before, after := fixtures.NewCA(t), fixtures.NewCA(t)
	folder := t.TempDir()
	files := certs.ServerFiles{
		Cert: filepath.Join(folder, "crt"), Key: filepath.Join(folder, "key"), ClientCA: filepath.Join(folder, "ca"),
	}
	replace := func(by certs.ServerFiles) {
		for to, from := range map[string]string{files.Cert: by.Cert, files.Key: by.Key, files.ClientCA: by.ClientCA} {
			content, err := os.ReadFile(from)
			must(t, errors.Join(err, os.WriteFile(to, content, 0o600)))
		}
	}
	replace(issue(t, before, before))
	set := follow.NewSet(slog.New(slog.DiscardHandler))
	certificates, err := certs.LoadServer(files, set)
	must(t, err)
	address := startTLS(t, certificates)
	old, err := grpc.NewClient(address, grpc.WithTransportCredentials(credentials.NewTLS(before.ClientTLS(t))))
	must(t, err)
	defer func() { _ = old.Close() }()
	ask := func() error {
		_, err := grpc_health_v1.NewHealthClient(old).Check(t.Context(), &grpc_health_v1.HealthCheckRequest{})
		return err
	}
	must(t, ask())
	replace(issue(t, after, after))
	harness.Eventually(t, func() error {
		set.Look(t.Context())
		return check(t, address, credentials.NewTLS(after.ClientTLS(t)))
	})
	must(t, ask()) // on the existing connection
}
