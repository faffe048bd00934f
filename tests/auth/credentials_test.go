package auth_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"os"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/internal/doors/auth"
	"github.com/locket-service/locket/lock"
	"github.com/locket-service/locket/lock/conn"
	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/tests/harness"
)

// watchOf opens a watch, and returns how it ends.
func watchOf(t *testing.T, ctx context.Context, client models.LocketClient) <-chan error {
	t.Helper()
	stream, err := client.Watch(ctx, &models.WatchRequest{})
	must(t, err)
	_, err = stream.Recv()
	must(t, err)
	ended := make(chan error, 1)
	go func() {
		for {
			if _, err := stream.Recv(); err != nil {
				ended <- err
				return
			}
		}
	}()
	return ended
}

func endsWithCredentials(t *testing.T, what string, ended <-chan error) {
	t.Helper()
	if err := harness.Await(t, "end of the watch by "+what, ended); status.Code(err) != codes.Unauthenticated || models.ReasonOf(err) != models.ReasonCredentialsEnded {
		t.Errorf("%s: %v", what, err)
	}
}

// A certificate that is revoked or has expired is refused on connections that are open, and streams end.
func TestCertificatesOfOpenConnections(t *testing.T) {
	t.Parallel()
	ca := fixtures.NewCA(t)
	crl := filepath.Join(t.TempDir(), "crl.pem")
	ca.Revoke(t, crl)
	server := harness.StartSecure(t, ca, "--tls-client-ca", ca.File, "--tls-crl", crl)
	connect := func(name string, options ...fixtures.CertOption) (certFile string, over models.LocketClient, overHTTP func() int) {
		certFile, key := ca.Issue(t, name, options...)
		pair, err := tls.LoadX509KeyPair(certFile, key)
		must(t, err)
		config := &tls.Config{RootCAs: ca.Pool(), Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
		conn, err := grpc.NewClient(server.Address(), grpc.WithTransportCredentials(credentials.NewTLS(config)))
		must(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: config}}
		t.Cleanup(client.CloseIdleConnections)
		first, web := true, server.HTTPAddress()
		return certFile, models.NewLocketClient(conn), func() int {
			trace := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) {
				if !info.Reused && !first {
					t.Error("it is another connection")
				}
				first = false
			}})
			request, err := http.NewRequestWithContext(trace, http.MethodGet, "https://"+web+"/v1/whoami", nil)
			must(t, err)
			response, err := client.Do(request)
			must(t, err)
			_, err = io.Copy(io.Discard, response.Body)
			must(t, err)
			must(t, response.Body.Close())
			return response.StatusCode
		}
	}
	who := func(client models.LocketClient) error {
		_, err := client.WhoAmI(t.Context(), &models.WhoAmIRequest{})
		return err
	}
	_, good, goodHTTP := connect("good")
	file, bad, badHTTP := connect("bad")
	must(t, who(good))
	must(t, who(bad))
	if a, b := goodHTTP(), badHTTP(); a != 200 || b != 200 {
		t.Errorf("%d, %d", a, b)
	}
	watches := watchOf(t, t.Context(), good)
	endBad := watchOf(t, t.Context(), bad)
	_, short, _ := connect("short", fixtures.ValidFor(15*time.Second)) // it is used during that time
	must(t, who(short))
	endShort := watchOf(t, t.Context(), short)
	ca.Revoke(t, crl, file)
	endsWithCredentials(t, "a certificate that was revoked", endBad)
	if err := who(bad); status.Code(err) != codes.Unauthenticated {
		t.Errorf("a certificate that was revoked: %v", err)
	}
	if code := badHTTP(); code != 401 {
		t.Errorf("over HTTP: %d", code)
	}
	endsWithCredentials(t, "a certificate that has expired", endShort)
	if err := who(short); status.Code(err) != codes.Unauthenticated {
		t.Errorf("a certificate that has expired: %v", err)
	}
	must(t, who(good))
	if code := goodHTTP(); code != 200 {
		t.Errorf("another certificate over HTTP: %d", code)
	}
	select {
	case err := <-watches:
		t.Errorf("the watch of another certificate: %v", err)
	default:
	}
}

// A stream ends with a reason when its bearer credential is withdrawn; the session of package lock continues with
// the new credential, and keeps its locks.
func TestCredentialsOfStreams(t *testing.T) {
	before, hashBefore := auth.NewCredential()
	after, hashAfter := auth.NewCredential()
	entry := func(hash string) string { return fmt.Sprintf("  - {name: ci, hash: %q}\n", hash) }
	file := write(t, "credentials.yaml", "credentials:\n"+entry(hashBefore)+entry(hashAfter))
	server := fixtures.StartLocket(t, harness.Embedded(t), "--auth-credentials", file)
	shown := write(t, "shown", before)
	caller, err := lock.Dial([]string{server.Address()}, conn.WithCredentialFile(write(t, "old", before)))
	must(t, err)
	defer func() { _ = caller.Close() }()
	old := models.NewLocketClient(caller)
	session, err := lock.NewSession([]string{server.Address()}, lock.WithDial(conn.WithCredentialFile(shown)))
	must(t, err)
	defer func() { _ = session.Close(context.Background()) }()
	_, err = session.Lock(t.Context(), "r")
	must(t, err)
	watch := watchOf(t, t.Context(), old)
	must(t, os.WriteFile(shown, []byte(after), 0o600))
	must(t, os.WriteFile(file, []byte("credentials:\n"+entry(hashAfter)), 0o600))
	endsWithCredentials(t, "a bearer credential that was withdrawn", watch)
	if _, err := session.Lock(t.Context(), "another"); err != nil {
		t.Errorf("the session does not go on: %v", err)
	}
	plain, err := grpc.NewClient(server.Address(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	must(t, err)
	defer func() { _ = plain.Close() }()
	w := &world{t: t, credentials: map[string]string{"ci": after}}
	found, err := models.NewLocketClient(plain).GetQueue(w.as("ci"), &models.GetQueueRequest{Resource: "r", Limit: proto.Uint32(1)})
	if err != nil || len(found.GetHolders()) != 1 {
		t.Errorf("what is held: %v, %v", found, err)
	}
}
