package server

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tedsuo/ifrit"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/locket-service/locket/db/replica"
	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/grpcserver"
	"github.com/locket-service/locket/internal/base/follow"
	"github.com/locket-service/locket/tests/harness"
)

// seen is a guard's view of a call.
type seen struct{ method, id, metadata, from, to, tls string }

// sentry is a guard that records the calls, and refuses them after refuseWith.
type sentry struct {
	mu     sync.Mutex
	calls  []seen
	refuse error
}

func (s *sentry) guard(ctx context.Context, call *grpcserver.Call, next func(context.Context) error) error {
	saw := seen{
		method: call.FullMethod, id: grpcserver.RequestID(ctx),
		metadata: fmt.Sprint(metadata.ValueFromIncomingContext(ctx, "uuid")),
	}
	if p, ok := peer.FromContext(ctx); ok {
		saw.from, saw.to = address(p.Addr), address(p.LocalAddr)
		if info, ok := p.AuthInfo.(credentials.TLSInfo); ok {
			saw.tls = fmt.Sprintf("%s, %s, %d chains", info.State.PeerCertificates[0].Subject.CommonName, info.SecurityLevel, len(info.State.VerifiedChains))
		}
	}
	s.mu.Lock()
	s.calls = append(s.calls, saw)
	refuse := s.refuse
	s.mu.Unlock()
	if refuse != nil {
		return refuse
	}
	return next(ctx)
}

func address(a net.Addr) string { return fmt.Sprintf("%T %s %s", a, a.Network(), a) }

// take returns the calls seen since it was last called.
func (s *sentry) take() []seen {
	s.mu.Lock()
	defer s.mu.Unlock()
	calls := s.calls
	s.calls = nil
	return calls
}

// refuseWith refuses the calls from now on, none if err is nil.
func (s *sentry) refuseWith(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refuse = err
}

// lastConn is the latest connection of a client to a listener.
type lastConn struct {
	mu       sync.Mutex
	from, to string
}

func (l *lastConn) dial(ctx context.Context, target string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", target)
	if err == nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.from, l.to = address(conn.LocalAddr()), address(conn.RemoteAddr())
	}
	return conn, err
}

// wants returns the view that a guard must have of a call on the connection.
func (l *lastConn) wants(method, id, tls string) seen {
	l.mu.Lock()
	defer l.mu.Unlock()
	return seen{method, id, "[" + id + "]", l.from, l.to, tls}
}

// openedListeners are the listeners of a server built as the program builds it, with a sentry.
type openedListeners struct {
	sentry
	tls                string // the TLS version that a guard sees
	grpc               *grpc.ClientConn
	http               *http.Client
	url                string
	grpcConn, httpConn lastConn
	addresses          map[string]string // of the open listeners, by their names in the log
	end                func()            // ends the server, once
}

// openListeners serves with TLS if there is an authority.
func openListeners(t *testing.T, ca *fixtures.CA, changes ...func(*Config)) *openedListeners {
	t.Helper()
	d := &openedListeners{}
	c := Config{
		GRPCAddress: "127.0.0.1:0", HTTPAddress: "127.0.0.1:0", DatabaseTimeout: time.Minute,
		ShutdownTimeout: time.Minute, HistoryRetention: time.Hour, HistoryLimit: 100,
	}
	scheme, creds := "http", insecure.NewCredentials()
	transport := &http.Transport{ForceAttemptHTTP2: true}
	if ca != nil {
		c.TLSCert, c.TLSKey = ca.Issue(t, "server")
		c.TLSClientCA = ca.File
		scheme, creds, transport.TLSClientConfig = "https", credentials.NewTLS(ca.ClientTLS(t)), ca.ClientTLS(t)
		d.tls = "client, PrivacyAndIntegrity, 1 chains"
	}
	for _, change := range changes {
		change(&c)
	}
	d.addresses, d.end = serve(t, c, d.guard)
	grpcAddress, httpAddress := d.addresses["gRPC"], d.addresses["HTTP"]
	conn, err := grpc.NewClient("passthrough:///"+grpcAddress, grpc.WithContextDialer(d.grpcConn.dial), grpc.WithTransportCredentials(creds))
	must(t, err)
	transport.DialContext = func(ctx context.Context, _, target string) (net.Conn, error) { return d.httpConn.dial(ctx, target) }
	d.grpc, d.http, d.url = conn, &http.Client{Transport: transport, Timeout: harness.HangTimeout}, scheme+"://"+httpAddress
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		must(t, conn.Close())
	})
	return d
}

// serve runs a server in this process, and returns its addresses.
func serve(t *testing.T, c Config, guard grpcserver.Guard) (addresses map[string]string, end func()) {
	t.Helper()
	store, err := replica.Open(filepath.Join(t.TempDir(), "data"))
	must(t, err)
	var logs fixtures.Buffer
	listeners, err := listen(c)
	must(t, err)
	log := slog.New(slog.NewTextHandler(&logs, nil))
	group, err := newGroup(c, store, listeners, follow.NewSet(log), log, guard)
	must(t, err)
	process := ifrit.Invoke(group)
	end = sync.OnceFunc(func() {
		process.Signal(os.Interrupt)
		must(t, <-process.Wait())
		must(t, store.Close())
	})
	t.Cleanup(end)
	addresses = make(map[string]string)
	for _, match := range regexp.MustCompile(`msg="serving (\w+)" address=(\S+)`).FindAllStringSubmatch(logs.String(), -1) {
		addresses[match[1]] = match[2]
	}
	return addresses, end
}

// request sends a request over HTTP, and returns its answer.
func (d *openedListeners) request(t *testing.T, method, path, body, id string) (code int, header http.Header, content string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, d.url+path, strings.NewReader(body))
	must(t, err)
	req.Header.Set("Content-Type", "application/json")
	if id != "" {
		req.Header.Set("X-Request-Id", id)
	}
	resp, err := d.http.Do(req)
	must(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	must(t, err)
	return resp.StatusCode, resp.Header, string(text)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
