package conn_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/grpcserver"
	"github.com/locket-service/locket/internal/base/certs"
	"github.com/locket-service/locket/internal/base/follow"
	"github.com/locket-service/locket/lock/conn"
	"github.com/locket-service/locket/lock/internal/locktest"
	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/models/methods"
	"github.com/locket-service/locket/tests/harness"
)

// dialScript is called for each call of a method. Its error is the answer; without an error that is an empty message.
type dialScript func(ctx context.Context, method string) error

func dialFine(context.Context, string) error { return nil }

// dialServe serves a script, with the options of Locket's servers.
func dialServe(t testing.TB, listener net.Listener, config *tls.Config, script dialScript) (*locktest.Script, *grpc.Server) {
	chain := grpcserver.NewChain(slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	return locktest.Serve(t, listener, func(ctx context.Context, method string, _ any) (any, error) {
		return &emptypb.Empty{}, script(ctx, method)
	}, grpcserver.Options(config, chain)...)
}

// dialListen serves a script on a socket and returns its address.
func dialListen(t testing.TB, config *tls.Config, script dialScript) (string, *locktest.Script, *grpc.Server) {
	t.Helper()
	listener := fixtures.Listen(t)
	served, server := dialServe(t, listener, config, script)
	return listener.Addr().String(), served, server
}

func dialMust(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func dialWantCode(t testing.TB, err error, want codes.Code) {
	t.Helper()
	if status.Code(err) != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// dialConn dials and has the connection closed when the test ends.
func dialConn(t testing.TB, addresses []string, options ...conn.Option) *conn.Conn {
	t.Helper()
	cc, err := conn.Dial(addresses, options...)
	dialMust(t, err)
	t.Cleanup(func() { dialMust(t, cc.Close()) })
	return cc
}

// dialCall calls a method with a deadline.
func dialCall(cc *conn.Conn, method string, timeout time.Duration, options ...grpc.CallOption) error {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return cc.Invoke(ctx, "/models.Locket/"+method, &emptypb.Empty{}, &emptypb.Empty{}, options...)
}

// dialLatency is the time from the server to the client. So a client times out before it hears that the server has timed out
// too.
const dialLatency = time.Millisecond

// dialNet is a server, and the network to it.
type dialNet struct {
	*locktest.Network
	*locktest.Script
}

func newDialNet(t testing.TB, script dialScript) *dialNet {
	listener := locktest.Listen()
	n := &dialNet{Network: locktest.Over(listener)}
	n.Latency = dialLatency
	n.Script, _ = dialServe(t, listener, nil, script)
	return n
}

// conn returns a connection over the network.
func (n *dialNet) conn(t testing.TB) *conn.Conn {
	t.Helper()
	return dialConn(t, []string{"127.0.0.1:8891"}, n.Option())
}

// dialBubble runs a test with a fake clock and a connection.
func dialBubble(t *testing.T, script dialScript, test func(t *testing.T, n *dialNet, cc *conn.Conn)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		n := newDialNet(t, script)
		test(t, n, n.conn(t))
	})
}

// wantWires fails the test unless a number of connections were made.
func (n *dialNet) wantWires(t testing.TB, want int) {
	t.Helper()
	synctest.Wait()
	if got := len(n.Wires()); got != want {
		t.Fatalf("%d connections were made, want %d", got, want)
	}
}

// TestDialAddresses: the error of Dial names an invalid address.
func TestDialAddresses(t *testing.T) {
	for name, addresses := range map[string][]string{
		"no address": nil, `""`: {""}, `"localhost"`: {"localhost"}, `":8891"`: {":8891"}, `"localhost:"`: {"localhost:"},
		`"localhost:0"`: {"localhost:0"}, `"localhost:65536"`: {"localhost:65536"}, `"localhost:http"`: {"localhost:http"},
		`"::1:8891"`: {"::1:8891"}, `"http://localhost:8891"`: {"http://localhost:8891"},
		`"localhost:8891,localhost:8892"`: {"localhost:8891,localhost:8892"},
		`" localhost:8891"`:               {" localhost:8891"}, `"local/host:1"`: {"local/host:1"},
		`"second"`: {"localhost:8891", "second"},
	} {
		if _, err := conn.Dial(addresses, conn.WithInsecure()); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%q: got %v, which is to have %s in it", addresses, err, name)
		}
	}
}

// TestDialLoopback: plain text stays on this machine unless it is allowed.
func TestDialLoopback(t *testing.T) {
	for _, c := range []struct {
		address string
		local   bool
	}{
		{"localhost:1", true},
		{"LocalHost:1", true},
		{"127.0.0.1:1", true},
		{"127.9.8.7:1", true},
		{"[::1]:1", true},
		{"[::ffff:127.0.0.1]:1", true},
		{"localhost.example:1", false},
		{"127.0.0.1.example:1", false},
		{"10.0.0.1:1", false},
		{"0.0.0.0:1", false},
		{"[::]:1", false},
		{"[fe80::1%eth0]:1", false},
		{"[::2]:1", false},
		{"locket.example:1", false},
	} {
		refuse := conn.WithDialOptions(grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) {
			return nil, errors.New("nobody there")
		}))
		cc, err := conn.Dial([]string{"localhost:1", c.address}, refuse)
		if c.local != (err == nil) {
			t.Errorf("%s without an option: %v", c.address, err)
		}
		if err == nil {
			dialMust(t, cc.Close())
		} else if host, _, _ := net.SplitHostPort(c.address); !strings.Contains(err.Error(), host) ||
			!strings.Contains(err.Error(), "WithTLS") || !strings.Contains(err.Error(), "WithInsecure()") {
			t.Errorf("%s: the error does not say enough: %v", c.address, err)
		}
		cc, err = conn.Dial([]string{c.address}, refuse, conn.WithInsecure())
		if err != nil {
			t.Fatalf("%s with WithInsecure: %v", c.address, err)
		}
		dialMust(t, cc.Close())
	}
	for name, option := range map[string]conn.Option{
		"WithTLSFiles": conn.WithTLSFiles(conn.Files{}),
		"WithTLS":      conn.WithTLS(&tls.Config{MinVersion: tls.VersionTLS12}),
	} {
		if _, err := conn.Dial([]string{"localhost:1"}, conn.WithInsecure(), option); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("both %s and none: %v", name, err)
		}
		creds := conn.WithCredentials(insecure.NewCredentials())
		if _, err := conn.Dial([]string{"localhost:1"}, creds, option); err == nil || !strings.Contains(err.Error(), "WithCredentials") {
			t.Errorf("both %s and WithCredentials: %v", name, err)
		}
	}
	for name, option := range map[string]conn.Option{"WithTLS": conn.WithTLS(nil), "WithCredentials": conn.WithCredentials(nil)} {
		if _, err := conn.Dial([]string{"localhost:1"}, option); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s of nil: %v", name, err)
		}
	}
}

// TestDialBadOptions: Dial returns an error for an option that gRPC refuses.
func TestDialBadOptions(t *testing.T) {
	if _, err := conn.Dial([]string{"localhost:1"}, conn.WithDialOptions(grpc.WithDefaultServiceConfig("{"))); err == nil {
		t.Error("no error")
	}
}

// TestServiceConfig: every method that may be repeated is tried again, as gRPC reads it, and no other.
func TestServiceConfig(t *testing.T) {
	var config struct {
		MethodConfig []struct {
			Name []struct{ Service, Method string }
		}
	}
	dialMust(t, json.Unmarshal([]byte(conn.ServiceConfig), &config))
	var repeated []string
	for _, name := range config.MethodConfig[0].Name {
		if name.Service != models.Locket_ServiceDesc.ServiceName {
			t.Errorf("the service %q", name.Service)
		}
		repeated = append(repeated, name.Method)
	}
	if want := methods.Repeatable(); !slices.Equal(repeated, want) || len(want) == 0 {
		t.Errorf("repeated are %v, want %v", repeated, want)
	}
	for _, unsafe := range []string{"CreateClaim", "EndSession", "Release", "ResetSessions", "Session"} {
		if slices.Contains(repeated, unsafe) {
			t.Errorf("%s is repeated", unsafe)
		}
	}
}

// TestDialRetries: a method that may be repeated is tried again, up to three times within about a second. No other method is.
func TestDialRetries(t *testing.T) {
	for _, desc := range models.Locket_ServiceDesc.Methods {
		method, safe := desc.MethodName, slices.Contains(methods.Repeatable(), desc.MethodName)
		for _, failures := range []int{1, 3, 4} {
			var calls atomic.Int32
			script := func(context.Context, string) error {
				if int(calls.Add(1)) <= failures {
					return status.Error(codes.Unavailable, "the database is away")
				}
				return nil
			}
			dialBubble(t, script, func(t *testing.T, n *dialNet, cc *conn.Conn) {
				start := time.Now()
				err := dialCall(cc, method, time.Minute)
				want, succeeds := 1, false
				if safe {
					want, succeeds = min(failures+1, 4), failures < 4
				}
				if got := n.Calls(method); got != want || succeeds != (err == nil) {
					t.Errorf("%s, which fails %d times: %d attempts, want %d; %v", method, failures, got, want, err)
				}
				if took := time.Since(start); took > 1200*time.Millisecond {
					t.Errorf("%s: the attempts took %v", method, took)
				}
			})
		}
	}
}

// TestDialOtherErrors: permanent errors are returned at once.
func TestDialOtherErrors(t *testing.T) {
	script := func(context.Context, string) error { return models.ErrLockCollision }
	dialBubble(t, script, func(t *testing.T, n *dialNet, cc *conn.Conn) {
		dialWantCode(t, dialCall(cc, "Lock", time.Minute), codes.AlreadyExists)
		if got := n.Calls("Lock"); got != 1 {
			t.Errorf("%d attempts", got)
		}
	})
}

// TestDialServerComesBack: after a long outage the client connects within little more than a second, and it has not tried too
// often before. Retries bridge a short outage.
func TestDialServerComesBack(t *testing.T) {
	dialBubble(t, dialFine, func(t *testing.T, n *dialNet, cc *conn.Conn) {
		dialMust(t, dialCall(cc, "Lock", time.Minute))
		n.Prevent(func(context.Context) error { return errors.New("connection refused") })
		before := n.Attempts()
		_ = n.Wires()[0].Conn.Close()
		time.Sleep(10 * time.Minute)
		dialWantCode(t, dialCall(cc, "Lock", time.Minute), codes.Unavailable)
		if n := n.Attempts() - before; n < 400 || n > 1000 {
			t.Errorf("%d attempts in ten minutes", n)
		}
		n.Prevent(nil)
		start := time.Now()
		dialMust(t, dialCall(cc, "Lock", time.Minute, grpc.WaitForReady(true)))
		if took := time.Since(start); took > 1300*time.Millisecond {
			t.Errorf("connected after %v", took)
		}
		synctest.Wait() // gRPC has noted the success, and resets its pauses
		n.Prevent(func(context.Context) error { return errors.New("connection refused") })
		_ = n.Wires()[1].Conn.Close()
		time.AfterFunc(200*time.Millisecond, func() { n.Prevent(nil) })
		dialMust(t, dialCall(cc, "Lock", time.Minute))
	})
}

// TestDialConnectTimeout: an attempt to connect that gets no answer ends soon.
func TestDialConnectTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newDialNet(t, dialFine)
		n.Prevent(func(ctx context.Context) error {
			n.Prevent(nil)
			<-ctx.Done()
			return ctx.Err()
		})
		cc, start := n.conn(t), time.Now()
		dialMust(t, dialCall(cc, "Lock", time.Minute, grpc.WaitForReady(true)))
		if took := time.Since(start); took > 5*time.Second {
			t.Errorf("connected after %v", took)
		}
	})
}

// TestDialIdle: the server accepts the pings on a connection without calls.
func TestDialIdle(t *testing.T) {
	dialBubble(t, dialFine, func(t *testing.T, n *dialNet, cc *conn.Conn) {
		dialMust(t, dialCall(cc, "Lock", time.Minute))
		time.Sleep(20 * time.Minute)
		n.wantWires(t, 1)
	})
}

// TestDialKeepalive: a connection that has gone silent is noticed without any call.
func TestDialKeepalive(t *testing.T) {
	dialBubble(t, dialFine, func(t *testing.T, n *dialNet, cc *conn.Conn) {
		dialMust(t, dialCall(cc, "Lock", time.Minute))
		n.Wires()[0].Stuck.Store(true)
		time.Sleep(10 * time.Second)
		n.wantWires(t, 1)
		time.Sleep(6 * time.Second)
		n.wantWires(t, 2)
	})
}

// TestDialUserAgent: the server gets the user agent and the authority. The user's own options have priority.
func TestDialUserAgent(t *testing.T) {
	var agent, authority atomic.Value
	script := func(ctx context.Context, _ string) error {
		md, _ := metadata.FromIncomingContext(ctx)
		agent.Store(strings.Join(md.Get("user-agent"), " "))
		authority.Store(strings.Join(md.Get(":authority"), " "))
		return nil
	}
	dialBubble(t, script, func(t *testing.T, n *dialNet, cc *conn.Conn) {
		dialMust(t, dialCall(cc, "Lock", time.Minute))
		if got := agent.Load().(string); !strings.HasPrefix(got, "locket-go ") {
			t.Errorf("the user agent: %q", got)
		}
		if got := authority.Load(); got != "127.0.0.1:8891" {
			t.Errorf("the authority: %q", got)
		}
		own := dialConn(t, []string{"locket.example:8891"}, conn.WithInsecure(), conn.WithDialOptions(
			grpc.WithContextDialer(n.Dial), grpc.WithUserAgent("mine")))
		dialMust(t, dialCall(own, "Lock", time.Minute))
		if got := agent.Load().(string); !strings.HasPrefix(got, "mine ") {
			t.Errorf("the user agent: %q", got)
		}
	})
}

// TestDialLargeAnswer: a client takes a large answer to FetchAll, which Cloud Foundry's servers do not divide into pages.
func TestDialLargeAnswer(t *testing.T) {
	many := &models.FetchAllResponse{} // 100 locks of the largest size
	for range 100 {
		many.Resources = append(many.Resources, &models.Resource{Value: strings.Repeat("x", 65_536)})
	}
	listener := locktest.Listen()
	locktest.Serve(t, listener, func(context.Context, string, any) (any, error) { return many, nil })
	cc := dialConn(t, []string{"localhost:1"}, locktest.Over(listener).Option())
	resp, err := models.NewLocketClient(cc).FetchAll(t.Context(), &models.FetchAllRequest{}, grpc.WaitForReady(true))
	if err != nil || len(resp.GetResources()) != 100 {
		t.Errorf("%d resources, %v", len(resp.GetResources()), err)
	}
}

// TestDialRoundRobin: calls alternate between two servers; when one is killed, the other one gets all calls.
func TestDialRoundRobin(t *testing.T) {
	address, one, first := dialListen(t, nil, dialFine)
	otherAddress, other, _ := dialListen(t, nil, dialFine)
	cc := dialConn(t, []string{address, otherAddress})
	harness.Until(t, "calls of both servers", func() bool {
		for range 20 {
			dialMust(t, dialCall(cc, "Lock", harness.HangTimeout, grpc.WaitForReady(true))) // neither may be connected yet
		}
		return one.Calls("Lock") >= 20 && other.Calls("Lock") >= 20
	})
	before := [2]int{one.Calls("Lock"), other.Calls("Lock")}
	for range 100 {
		dialMust(t, dialCall(cc, "Lock", harness.HangTimeout))
	}
	if one, other := one.Calls("Lock")-before[0], other.Calls("Lock")-before[1]; one != 50 || other != 50 {
		t.Errorf("of 100 calls %d and %d", one, other)
	}
	failed, killed := 0, make(chan struct{})
	for i := range 300 {
		if i == 50 {
			go func() { first.Stop(); close(killed) }()
		}
		if i == 200 {
			harness.Await(t, "end of the first server", killed)
		}
		if err := dialCall(cc, "Lock", harness.HangTimeout); err != nil {
			dialWantCode(t, err, codes.Unavailable)
			failed++
		}
	}
	if failed > 1 { // gRPC does not retry a call that has received the beginning of its answer
		t.Errorf("%d calls failed", failed)
	}
}

// dialTLS returns the configuration of a server that requires client certificates signed by an authority.
func dialTLS(t testing.TB, ca *fixtures.CA) *tls.Config {
	t.Helper()
	cert, key := ca.Issue(t, "server")
	certificates, err := certs.LoadServer(certs.ServerFiles{Cert: cert, Key: key, ClientCA: ca.File}, follow.NewSet(slog.New(slog.DiscardHandler)))
	dialMust(t, err)
	return certificates.Config(tls.RequireAndVerifyClientCert)
}

func dialFiles(t testing.TB, ca *fixtures.CA) conn.Files {
	t.Helper()
	cert, key := ca.Issue(t, "client")
	return conn.Files{CA: ca.File, Cert: cert, Key: key}
}

// TestDialTLS: which certificates and authorities clients and servers accept.
func TestDialTLS(t *testing.T) {
	ca, other := fixtures.NewCA(t), fixtures.NewCA(t)
	address, _, _ := dialListen(t, dialTLS(t, ca), dialFine)
	_, port, err := net.SplitHostPort(address)
	dialMust(t, err)
	good, bad := dialFiles(t, ca), dialFiles(t, other)
	for name, c := range map[string]struct {
		host  string
		files conn.Files
		says  string // "-" for any error: with TLS 1.3 a client learns it late
	}{
		"by IP":                        {"127.0.0.1", good, ""},
		"by name":                      {"localhost", good, ""},
		"another host":                 {"locket.example", good, "locket.example"},
		"another authority":            {"127.0.0.1", conn.Files{CA: other.File, Cert: good.Cert, Key: good.Key}, "unknown authority"},
		"the system's authorities":     {"127.0.0.1", conn.Files{Cert: good.Cert, Key: good.Key}, "authority"},
		"no certificate":               {"127.0.0.1", conn.Files{CA: ca.File}, "-"},
		"a certificate by another one": {"127.0.0.1", conn.Files{CA: ca.File, Cert: bad.Cert, Key: bad.Key}, "-"},
	} {
		t.Run(name, func(t *testing.T) {
			cc := dialConn(t, []string{net.JoinHostPort(c.host, port)}, conn.WithTLSFiles(c.files), conn.WithDialOptions(
				grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
					return new(net.Dialer).DialContext(ctx, "tcp", address)
				})))
			if c.says == "" {
				dialMust(t, dialCall(cc, "Release", harness.HangTimeout, grpc.WaitForReady(true)))
				return
			}
			harness.Eventually(t, func() error { // a handshake that takes too long is tried again, as any other
				err := dialCall(cc, "Release", harness.HangTimeout)
				dialWantCode(t, err, codes.Unavailable)
				if c.says != "-" && !strings.Contains(status.Convert(err).Message(), c.says) {
					return fmt.Errorf("the error is to have %q in it: %w", c.says, err)
				}
				return nil
			})
		})
	}
}

// TestDialOwnCredentials: WithTLS and WithCredentials secure the connections; credentials in WithDialOptions have priority.
func TestDialOwnCredentials(t *testing.T) {
	ca := fixtures.NewCA(t)
	address, _, _ := dialListen(t, dialTLS(t, ca), dialFine)
	creds := credentials.NewTLS(ca.ClientTLS(t))
	for name, options := range map[string][]conn.Option{
		"WithTLS":         {conn.WithTLS(ca.ClientTLS(t))},
		"WithCredentials": {conn.WithCredentials(creds)},
		"WithDialOptions": {conn.WithInsecure(), conn.WithDialOptions(grpc.WithTransportCredentials(creds))},
	} {
		t.Run(name, func(t *testing.T) {
			dialMust(t, dialCall(dialConn(t, []string{address}, options...), "Lock", harness.HangTimeout, grpc.WaitForReady(true)))
		})
	}
}

// TestDialFiles: the error of Dial names an invalid file.
func TestDialFiles(t *testing.T) {
	ca := fixtures.NewCA(t)
	good := dialFiles(t, ca)
	_, otherKey := ca.Issue(t, "other")
	empty := filepath.Join(t.TempDir(), "empty.crt")
	dialMust(t, os.WriteFile(empty, nil, 0o600))
	for name, c := range map[string]struct {
		files conn.Files
		says  string
	}{
		"no authority":        {conn.Files{CA: "none.ca", Cert: good.Cert, Key: good.Key}, "none.ca"},
		"an empty authority":  {conn.Files{CA: empty, Cert: good.Cert, Key: good.Key}, empty},
		"no certificate":      {conn.Files{CA: ca.File, Cert: "none.crt", Key: good.Key}, "none.crt"},
		"no key":              {conn.Files{CA: ca.File, Cert: good.Cert, Key: "none.key"}, "none.key"},
		"an empty cert":       {conn.Files{CA: ca.File, Cert: empty, Key: good.Key}, empty},
		"another's key":       {conn.Files{CA: ca.File, Cert: good.Cert, Key: otherKey}, otherKey},
		"a cert without key":  {conn.Files{CA: ca.File, Cert: good.Cert}, good.Cert},
		"a key without cert":  {conn.Files{CA: ca.File, Key: good.Key}, good.Key},
		"a key for authority": {conn.Files{CA: good.Key}, good.Key},
	} {
		if _, err := conn.Dial([]string{"locket.example:8891"}, conn.WithTLSFiles(c.files)); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: got %v, which is to have %s in it", name, err, c.says)
		}
	}
}

// dialReplace overwrites files with the content of others.
func dialReplace(t testing.TB, files, by conn.Files) {
	t.Helper()
	for to, from := range map[string]string{files.CA: by.CA, files.Cert: by.Cert, files.Key: by.Key} {
		content, err := os.ReadFile(from)
		dialMust(t, errors.Join(err, os.WriteFile(to, content, 0o600)))
	}
}

// TestDialRotation: a new connection uses the current files. Files that are invalid leave the last valid ones in use.
func TestDialRotation(t *testing.T) {
	before, after := fixtures.NewCA(t), fixtures.NewCA(t)
	folder := t.TempDir()
	files := conn.Files{CA: filepath.Join(folder, "ca"), Cert: filepath.Join(folder, "crt"), Key: filepath.Join(folder, "key")}
	dialReplace(t, files, dialFiles(t, before))

	var target atomic.Value
	var server *grpc.Server
	use := func(ca *fixtures.CA) {
		if server != nil {
			defer server.Stop() // the client connects to the next one
		}
		var address string
		address, _, server = dialListen(t, dialTLS(t, ca), dialFine)
		target.Store(address)
	}
	use(before)
	cc := dialConn(t, []string{"locket.example:8891", "localhost:8891"}, conn.WithTLSFiles(files), conn.WithDialOptions(
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", target.Load().(string))
		})))
	call := func() error { return dialCall(cc, "Lock", harness.HangTimeout, grpc.WaitForReady(true)) }
	dialMust(t, call())

	use(after)
	dialReplace(t, files, dialFiles(t, after))
	dialMust(t, call())

	_, otherKey := after.Issue(t, "other")
	dialReplace(t, files, conn.Files{CA: files.CA, Cert: files.Cert, Key: otherKey})
	use(after)
	dialMust(t, call())

	use(before) // does not go together with the last good files
	harness.Eventually(t, func() error {
		err := dialCall(cc, "Release", harness.HangTimeout)
		if status.Code(err) == codes.Unavailable && strings.Contains(err.Error(), files.Key) {
			return nil
		}
		return fmt.Errorf("the error is to name the bad file: %w", err)
	})
}
