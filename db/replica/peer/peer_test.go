package peer_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/db/replica"
	"github.com/locket-service/locket/db/replica/peer"
	"github.com/locket-service/locket/db/replica/record"
	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/tests/harness"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// handler is a peer.Handler that records its calls, and answers a batch with itself unless carryOut is set.
type handler struct {
	calls    atomic.Int64
	carryOut func(ctx context.Context, batch []byte) ([]byte, error)
	parts    func(ctx context.Context, request []byte, send func([]byte) error) error
}

func (h *handler) CarryOut(ctx context.Context, batch []byte) ([]byte, error) {
	h.calls.Add(1)
	if h.carryOut != nil {
		return h.carryOut(ctx, batch)
	}
	return batch, nil
}

func (h *handler) SendSnapshot(ctx context.Context, request []byte, send func([]byte) error) error {
	h.calls.Add(1)
	return h.parts(ctx, request, send)
}

func (h *handler) SendHistory(ctx context.Context, request []byte, send func([]byte) error) error {
	h.calls.Add(1)
	return send(append([]byte("history "), request...))
}

// hang carries out the empty batch alone.
func hang(ctx context.Context, batch []byte) ([]byte, error) {
	if len(batch) > 0 {
		<-ctx.Done()
	}
	return nil, ctx.Err()
}

// greet makes a small call.
func greet(t *testing.T, p *peer.Peer, about []byte) error {
	t.Helper()
	_, err := p.CarryOut(t.Context(), about, nil)
	return err
}

func listen(t *testing.T, address string, o peer.Options) *peer.Peer {
	t.Helper()
	p, err := peer.Listen(address, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// serve returns a peer that answers with a handler.
func serve(t *testing.T, h peer.Handler) *peer.Peer {
	t.Helper()
	p := listen(t, "127.0.0.1:0", peer.Options{})
	p.Serve(h)
	return p
}

// caller returns a peer that only calls others.
func caller(t *testing.T) *peer.Peer { return listen(t, "127.0.0.1:0", peer.Options{}) }

// behind returns the About of a server as if it were at another address.
func behind(t *testing.T, about []byte, address string) []byte {
	t.Helper()
	return with(t, about, "address", address)
}

// with returns an About with another member.
func with(t *testing.T, about []byte, member string, value any) []byte {
	t.Helper()
	var all map[string]any
	harness.Must(t, json.Unmarshal(about, &all))
	all[member] = value
	changed, err := json.Marshal(all)
	harness.Must(t, err)
	return changed
}

// member returns a text of an About.
func member(t *testing.T, about []byte, name string) string {
	t.Helper()
	var all map[string]any
	harness.Must(t, json.Unmarshal(about, &all))
	return all[name].(string)
}

// secret returns the secret of an About.
func secret(t *testing.T, about []byte) string {
	t.Helper()
	text, err := base64.StdEncoding.DecodeString(member(t, about, "secret"))
	harness.Must(t, err)
	return string(text)
}

// TestCalls: the calls reach the other server, and its answers come back. Messages of all sizes pass.
func TestCalls(t *testing.T) {
	h := new(handler)
	about, p := serve(t, h).About(), caller(t)
	for _, size := range []int{0, 1, 100_000, 10_000_000} {
		batch := bytes.Repeat([]byte("b"), size)
		if outcome, err := p.CarryOut(t.Context(), about, batch); err != nil || !bytes.Equal(outcome, batch) {
			t.Errorf("a batch of %d bytes is answered with %d (%v)", size, len(outcome), err)
		}
	}
	if p.Links() != 1 {
		t.Errorf("there are %d connections", p.Links())
	}
	_, port, _ := net.SplitHostPort(member(t, about, "address"))
	if err := greet(t, p, behind(t, about, "localhost:"+port)); err != nil { // a name
		t.Error(err)
	}
}

// TestTooLarge: the largest message passes. A larger one is not sent, and an answer that is too large is an error.
func TestTooLarge(t *testing.T) {
	large := make([]byte, peer.MaxMessageBytes+1)
	h := &handler{carryOut: func(context.Context, []byte) ([]byte, error) { return large, nil }}
	about, p := serve(t, h).About(), caller(t)
	if _, err := p.CarryOut(t.Context(), about, large); !errors.Is(err, record.ErrNotSent) || h.calls.Load() != 0 {
		t.Errorf("%v, after %d calls", err, h.calls.Load())
	}
	if _, err := p.CarryOut(t.Context(), about, nil); !errors.Is(err, db.ErrOutcomeUnknown) {
		t.Error(err)
	}
	h.carryOut = func(_ context.Context, batch []byte) ([]byte, error) { return fmt.Append(nil, len(batch)), nil }
	outcome, err := p.CarryOut(t.Context(), about, large[1:])
	if want := fmt.Sprint(peer.MaxMessageBytes); err != nil || string(outcome) != want {
		t.Errorf("%s bytes have arrived (%v)", outcome, err)
	}
}

// TestErrors: errors keep their types on the way.
func TestErrors(t *testing.T) {
	var fails error
	h := &handler{carryOut: func(context.Context, []byte) ([]byte, error) { return nil, fails }}
	about, p := serve(t, h).About(), caller(t)
	fail := func(err error) error {
		fails = err
		_, got := p.CarryOut(t.Context(), about, nil)
		if got == nil || !strings.Contains(got.Error(), err.Error()[:10]) {
			t.Errorf("%v became %v", err, got)
		}
		return got
	}
	for _, err := range []error{db.ErrUnavailable, db.ErrOutcomeUnknown, record.ErrFormat, replica.ErrNotDecider, replica.ErrOldBatch} {
		for _, wrapped := range []error{err, fmt.Errorf("while something: %w", err)} {
			got := fail(wrapped)
			if !errors.Is(got, err) {
				t.Errorf("%v became %v", err, got)
			}
		}
	}
	if err := fail(errors.New("something else, " + strings.Repeat("é", 100_000))); !errors.Is(err, db.ErrOutcomeUnknown) {
		t.Error(err)
	}
}

// TestDeadline: the deadline of a call reaches the other server, and its end ends the call there.
func TestDeadline(t *testing.T) {
	ended := make(chan error, 1)
	h := &handler{carryOut: func(ctx context.Context, _ []byte) ([]byte, error) {
		if _, has := ctx.Deadline(); !has {
			ended <- errors.New("it has no deadline")
		}
		<-ctx.Done()
		ended <- ctx.Err()
		return nil, fmt.Errorf("%w: %w", db.ErrUnavailable, ctx.Err())
	}}
	about, p := serve(t, h).About(), caller(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	go func() {
		harness.Until(t, "a call", func() bool { return h.calls.Load() == 1 })
		cancel()
	}()
	_, err := p.CarryOut(ctx, about, nil)
	if !errors.Is(err, db.ErrOutcomeUnknown) || !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if err := harness.Await(t, "the end", ended); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if _, err := p.CarryOut(ctx, about, nil); !errors.Is(err, db.ErrUnavailable) || errors.Is(err, db.ErrOutcomeUnknown) {
		t.Errorf("a call that was cancelled before: %v", err)
	}
}

// TestStrangers: a caller with another secret, or for another server, is refused before anything is done for it.
func TestStrangers(t *testing.T) {
	h := new(handler)
	served, p := serve(t, h), caller(t)
	other := caller(t).About()
	for what, about := range map[string][]byte{
		"another secret":      with(t, served.About(), "secret", member(t, other, "secret")),
		"another certificate": with(t, served.About(), "fingerprint", member(t, other, "fingerprint")),
	} {
		_, err := p.CarryOut(t.Context(), about, make([]byte, 1<<20))
		if !errors.Is(err, db.ErrUnavailable) || errors.Is(err, db.ErrOutcomeUnknown) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for what, header := range map[string]metadata.MD{
		"no secret":    nil,
		"a short one":  metadata.Pairs("locket-peer-secret-bin", "00"),
		"an empty one": metadata.Pairs("locket-peer-secret-bin", ""),
		"two": metadata.Pairs("locket-peer-secret-bin", secret(t, served.About()),
			"locket-peer-secret-bin", secret(t, other)),
	} {
		if code := stranger(t, served.Address(), header); code != codes.Unauthenticated {
			t.Errorf("%s: %v", what, code)
		}
	}
	garbage(t, served.Address())
	if n := h.calls.Load(); n != 0 {
		t.Errorf("the handler was called %d times", n)
	}
	if _, err := p.CarryOut(t.Context(), served.About(), nil); err != nil {
		t.Error(err)
	}
}

// stranger makes a call that sends its message without end, with a header.
func stranger(t *testing.T, address string, header metadata.MD) codes.Code {
	t.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{InsecureSkipVerify: true})))
	harness.Must(t, err)
	defer func() { _ = conn.Close() }()
	ctx := metadata.NewOutgoingContext(t.Context(), header)
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, "/locket.peer.v1.Peer/CarryOut", grpc.ForceCodec(bytesCodec{}))
	harness.Must(t, err)
	for err == nil {
		err = stream.SendMsg(make([]byte, 1<<20))
	}
	if !errors.Is(err, io.EOF) {
		t.Error(err)
	}
	return status.Code(stream.RecvMsg(new([]byte)))
}

type bytesCodec struct{}

func (bytesCodec) Marshal(v any) ([]byte, error) { return v.([]byte), nil }

func (bytesCodec) Unmarshal(b []byte, v any) error { *v.(*[]byte) = bytes.Clone(b); return nil }

func (bytesCodec) Name() string { return "raw" }

// garbage sends bytes that are not TLS. The server closes the connection.
func garbage(t *testing.T, address string) {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	harness.Must(t, err)
	defer func() { _ = conn.Close() }()
	_, err = conn.Write([]byte("GET / HTTP/1.1\r\n\r\n"))
	harness.Must(t, err)
	_, _ = io.Copy(io.Discard, conn) // until the server closes it
}

// waitingCall makes a call through a proxy to a server that does not answer it.
func waitingCall(t *testing.T) (p *peer.Peer, proxy *fixtures.Proxy, about []byte, ended <-chan error) {
	t.Helper()
	h := &handler{carryOut: hang}
	served, p := serve(t, h), caller(t)
	proxy = fixtures.NewProxy(t, served.Address())
	about = behind(t, served.About(), proxy.Addr())
	end := make(chan error, 1)
	go func() {
		_, err := p.CarryOut(t.Context(), about, []byte("waits"))
		end <- err
	}()
	harness.Until(t, "a call", func() bool { return h.calls.Load() == 1 })
	return p, proxy, about, end
}

// TestDeadServer: calls to a server that has stopped answering end, and so do calls that wait for a connection. When it
// answers again new calls reach it.
func TestDeadServer(t *testing.T) {
	p, proxy, about, ended := waitingCall(t)
	proxy.Hang()
	begin := time.Now()
	if err := harness.Await(t, "the end of the call", ended); !errors.Is(err, db.ErrOutcomeUnknown) {
		t.Error(err)
	}
	harness.AtMost(t, "noticing a dead server", time.Since(begin), 2*time.Second)
	begin = time.Now()
	if _, err := p.CarryOut(t.Context(), about, nil); !errors.Is(err, db.ErrUnavailable) {
		t.Errorf("a call that got no connection: %v", err)
	}
	harness.AtMost(t, "noticing a server that does not answer", time.Since(begin), 2*time.Second+dialing)
	proxy.Restore()
	harness.Eventually(t, func() error {
		_, err := p.CarryOut(t.Context(), about, nil)
		return err
	})
}

// dialing is more than a connection on loopback takes.
const dialing = 100 * time.Millisecond

// TestLostConnection: the outcome of a call is not known if its connection is lost, and nothing was done if there was none.
func TestLostConnection(t *testing.T) {
	p, proxy, about, ended := waitingCall(t)
	proxy.Cut()
	if err := harness.Await(t, "the end of the call", ended); !errors.Is(err, db.ErrOutcomeUnknown) {
		t.Error(err)
	}
	begin := time.Now()
	for range 3 {
		if err := greet(t, p, about); !errors.Is(err, db.ErrUnavailable) || errors.Is(err, db.ErrOutcomeUnknown) {
			t.Errorf("a call that was refused: %v", err)
		}
	}
	harness.AtMost(t, "three calls that were refused", time.Since(begin), 500*time.Millisecond)
	proxy.Restore()
	harness.Eventually(t, func() error { return greet(t, p, about) })
}

// TestRestart: a server that was started again has another key and secret, so nobody takes it for the one before.
func TestRestart(t *testing.T) {
	first := serve(t, new(handler))
	before, p := first.About(), caller(t)
	harness.Must(t, greet(t, p, before))
	first.Close()
	h := new(handler)
	var second *peer.Peer
	harness.Eventually(t, func() (err error) {
		second, err = peer.Listen(member(t, before, "address"), peer.Options{})
		return err
	})
	t.Cleanup(second.Close)
	second.Serve(h)
	if err := greet(t, p, before); !errors.Is(err, db.ErrUnavailable) || h.calls.Load() != 0 {
		t.Errorf("%v, after %d calls", err, h.calls.Load())
	}
	harness.Must(t, greet(t, p, second.About()))
}

// TestIdle: a connection that nobody uses is closed, and made again when it is needed.
func TestIdle(t *testing.T) {
	served, p := serve(t, new(handler)), caller(t)
	p.SetIdle(0)
	for range 2 {
		harness.Must(t, greet(t, p, served.About()))
		harness.Until(t, "no connection", func() bool { return p.Links() == 0 })
	}
}

// TestClose: Close ends calls on their way, in both directions, and none is begun after it.
func TestClose(t *testing.T) {
	h := &handler{carryOut: hang}
	served, other := serve(t, h), serve(t, h)
	ended := make(chan error, 2)
	for _, way := range [][2]*peer.Peer{{served, other}, {other, served}} {
		go func() {
			_, err := way[0].CarryOut(t.Context(), way[1].About(), []byte("waits"))
			ended <- err
		}()
	}
	harness.Until(t, "two calls", func() bool { return h.calls.Load() == 2 })
	served.Close()
	for range 2 {
		if err := harness.Await(t, "the end of a call", ended); !errors.Is(err, db.ErrOutcomeUnknown) {
			t.Error(err)
		}
	}
	if err := greet(t, served, other.About()); !errors.Is(err, db.ErrUnavailable) {
		t.Error(err)
	}
	if err := greet(t, other, served.About()); !errors.Is(err, db.ErrUnavailable) {
		t.Error(err)
	}
}

// TestTogether: many callers share a connection while it is lost and made again. Each gets its own answer, or an error.
func TestTogether(t *testing.T) {
	served, p := serve(t, new(handler)), caller(t)
	proxy := fixtures.NewProxy(t, served.Address())
	about := behind(t, served.About(), proxy.Addr())
	var callers sync.WaitGroup
	var answered atomic.Int64
	stop := make(chan struct{})
	call := func(batch []byte) {
		outcome, err := p.CarryOut(t.Context(), about, batch)
		switch {
		case err == nil && !bytes.Equal(outcome, batch):
			t.Errorf("%s was answered with %s", batch, outcome)
		case err == nil:
			answered.Add(1)
		case !errors.Is(err, db.ErrUnavailable) && !errors.Is(err, db.ErrOutcomeUnknown):
			t.Error(err)
		}
	}
	for n := range 8 {
		callers.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
					call(fmt.Append(nil, n, i))
				}
			}
		})
	}
	for range 5 {
		before := answered.Load()
		harness.Until(t, "answers", func() bool { return answered.Load() > before+20 })
		proxy.Cut()
		proxy.Restore()
	}
	close(stop)
	callers.Wait()
}

// TestParts: the parts of an answer come in order, with the error behind them.
func TestParts(t *testing.T) {
	h := &handler{parts: func(_ context.Context, request []byte, send func([]byte) error) error {
		for n := range 1000 {
			if err := send(fmt.Append(nil, n, string(request))); err != nil {
				return err
			}
		}
		return fmt.Errorf("%w: no more", db.ErrUnavailable)
	}}
	about, p := serve(t, h).About(), caller(t)
	n := 0
	err := p.Snapshot(t.Context(), about, []byte(" is asked for"), func(part []byte) error {
		if want := fmt.Sprint(n, " is asked for"); string(part) != want {
			t.Errorf("part %q, want %q", part, want)
		}
		n++
		return nil
	})
	if !errors.Is(err, db.ErrUnavailable) || !strings.Contains(err.Error(), "no more") || n != 1000 {
		t.Errorf("%d parts, and then: %v", n, err)
	}
	var all []string
	err = p.History(t.Context(), about, []byte("of all"), func(part []byte) error { all = append(all, string(part)); return nil })
	if err != nil || fmt.Sprint(all) != "[history of all]" {
		t.Errorf("%q (%v)", all, err)
	}
	enough := errors.New("enough")
	if err := p.Snapshot(t.Context(), about, nil, func([]byte) error { return enough }); !errors.Is(err, enough) {
		t.Error(err)
	}
}

// TestSlowReader: a reader that takes no parts makes the sender wait, with little in memory, and nobody else. When it has
// gone, the sender ends.
func TestSlowReader(t *testing.T) {
	var sent atomic.Int64
	ended := make(chan error, 1)
	h := &handler{parts: func(_ context.Context, _ []byte, send func([]byte) error) error {
		for {
			if err := send(make([]byte, 1<<20)); err != nil {
				ended <- err
				return err
			}
			sent.Add(1)
		}
	}}
	about, p := serve(t, h).About(), caller(t)
	ctx, cancel := context.WithCancel(t.Context())
	stopped := make(chan error, 1)
	go func() {
		stopped <- p.Snapshot(ctx, about, nil, func([]byte) error { <-ctx.Done(); return ctx.Err() })
	}()
	harness.Until(t, "the sender waits", func() bool {
		before := sent.Load()
		for range 100 {
			harness.Must(t, greet(t, p, about))
		}
		return before > 0 && sent.Load() == before
	})
	if n := sent.Load(); n > 40 {
		t.Errorf("%d parts of 1 MiB were sent to a reader that has taken one", n)
	}
	cancel()
	if err := harness.Await(t, "the end of the sender", ended); err == nil {
		t.Error("it has ended without an error")
	}
	if err := harness.Await(t, "the end of the reader", stopped); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
