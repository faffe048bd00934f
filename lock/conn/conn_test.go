package conn_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/locket-service/locket/lock/conn"
	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/tests/harness"
)

// connSleep is a script: a call takes as long as "sleep" in its metadata says, even after its deadline.
func connSleep(ctx context.Context, _ string) error {
	for _, text := range metadata.ValueFromIncomingContext(ctx, "sleep") {
		d, err := time.ParseDuration(text)
		if err != nil {
			return status.Error(codes.InvalidArgument, err.Error())
		}
		time.Sleep(d)
	}
	return nil
}

// connCall calls a method that takes the server some time.
func connCall(ctx context.Context, cc *conn.Conn, method string, takes, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(ctx, "sleep", takes.String()), timeout)
	defer cancel()
	return cc.Invoke(ctx, "/models.Locket/"+method, &grpc_health_v1.HealthCheckRequest{}, &grpc_health_v1.HealthCheckRequest{})
}

// wantOpen fails the test unless the connections are open (true) or closed.
func (n *dialNet) wantOpen(t testing.TB, want ...bool) {
	t.Helper()
	n.wantWires(t, len(want))
	for i, wire := range n.Wires() {
		if wire.IsClosed() == want[i] {
			t.Errorf("connection %d: open is %v", i, !want[i])
		}
	}
}

// TestStuckConnection: the first call on it times out, the next one has its answer at once.
func TestStuckConnection(t *testing.T) {
	dialBubble(t, dialFine, func(t *testing.T, n *dialNet, cc *conn.Conn) {
		dialMust(t, dialCall(cc, "Lock", time.Second))
		n.wantOpen(t, true)
		n.Wires()[0].Stuck.Store(true)
		dialWantCode(t, dialCall(cc, "Lock", time.Second), codes.DeadlineExceeded)
		start := time.Now()
		dialMust(t, dialCall(cc, "Lock", time.Second))
		if took := time.Since(start); took > 10*dialLatency {
			t.Errorf("the next call took %v", took)
		}
		time.Sleep(time.Second) // gRPC waits a second for the end of the stream
		n.wantOpen(t, false, true)

		n.Wires()[1].Stuck.Store(true)
		dialWantCode(t, dialCall(cc, "Lock", time.Second), codes.DeadlineExceeded)
		dialMust(t, dialCall(cc, "Lock", time.Second))
		n.wantWires(t, 3)
	})
}

// TestStuckServer: one of two servers silently becomes unreachable. One call times out, and no call after it.
func TestStuckServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, other := newDialNet(t, dialFine), newDialNet(t, dialFine)
		nets := map[string]*dialNet{"127.0.0.1:1": one, "127.0.0.1:2": other}
		cc := dialConn(t, []string{"127.0.0.1:1", "127.0.0.1:2"}, conn.WithDialOptions(grpc.WithContextDialer(
			func(ctx context.Context, address string) (net.Conn, error) { return nets[address].Dial(ctx, address) })))
		call := func(until func() bool) {
			t.Helper()
			for range 100 {
				dialMust(t, dialCall(cc, "Lock", 10*time.Second))
				if until() {
					return
				}
				time.Sleep(100 * time.Millisecond)
			}
			t.Fatalf("the calls: %d and %d", one.Calls("Lock"), other.Calls("Lock"))
		}
		call(func() bool { return one.Calls("Lock") > 0 && other.Calls("Lock") > 0 })
		one.Prevent(func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		})
		for _, wire := range one.Wires() {
			wire.Stuck.Store(true)
		}
		failed := 0
		for range 50 {
			if err := dialCall(cc, "Lock", time.Second); err != nil {
				dialWantCode(t, err, codes.DeadlineExceeded)
				failed++
			}
		}
		if failed != 1 {
			t.Errorf("%d of 50 calls failed, want the first one on the stuck connection", failed)
		}
		before := one.Calls("Lock")
		one.Prevent(nil)
		call(func() bool { return one.Calls("Lock") > before })
	})
}

// TestLongCalls: calls on the old connection continue. It is closed when the last of them has ended.
func TestLongCalls(t *testing.T) {
	dialBubble(t, connSleep, func(t *testing.T, n *dialNet, cc *conn.Conn) {
		var calls sync.WaitGroup
		calls.Go(func() {
			if err := connCall(t.Context(), cc, "AwaitClaim", time.Minute, time.Hour); err != nil {
				t.Errorf("a long call: %v", err)
			}
		})
		ctx, cancel := context.WithCancel(t.Context())
		watch, err := grpc_health_v1.NewHealthClient(cc).Watch(ctx, &grpc_health_v1.HealthCheckRequest{})
		dialMust(t, err)
		_, err = watch.Recv()
		dialMust(t, err)

		dialWantCode(t, connCall(t.Context(), cc, "Lock", time.Minute, time.Second), codes.DeadlineExceeded)
		dialMust(t, dialCall(cc, "Lock", time.Second))
		n.wantOpen(t, true, true)
		calls.Wait()
		n.wantOpen(t, true, true)
		cancel()
		_, err = watch.Recv()
		dialWantCode(t, err, codes.Canceled)
		time.Sleep(time.Second)
		n.wantOpen(t, false, true)
	})
}

// TestManyTimeouts: calls that time out together make one replacement.
func TestManyTimeouts(t *testing.T) {
	dialBubble(t, dialFine, func(t *testing.T, n *dialNet, cc *conn.Conn) {
		dialMust(t, dialCall(cc, "Lock", time.Second))
		n.Wires()[0].Stuck.Store(true)
		// One timer for all: a thousand in a bubble can crash the race detector of Go 1.26.
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var calls sync.WaitGroup
		for range 1000 {
			calls.Go(func() { dialWantCode(t, connCall(ctx, cc, "Lock", 0, time.Hour), codes.DeadlineExceeded) })
		}
		calls.Wait()
		dialMust(t, dialCall(cc, "Lock", time.Second))
		time.Sleep(time.Second)
		n.wantOpen(t, false, true)
	})
}

// TestLateTimeout: a call that times out on the old connection says nothing about the new
// one.
func TestLateTimeout(t *testing.T) {
	dialBubble(t, dialFine, func(t *testing.T, n *dialNet, cc *conn.Conn) {
		dialMust(t, dialCall(cc, "Lock", time.Second))
		n.Wires()[0].Stuck.Store(true)
		var calls sync.WaitGroup
		for _, timeout := range []time.Duration{time.Second, 3 * time.Second} {
			calls.Go(func() { dialWantCode(t, dialCall(cc, "Lock", timeout), codes.DeadlineExceeded) })
		}
		calls.Wait()
		time.Sleep(time.Second)
		n.wantOpen(t, false, true)
	})
}

// TestReplacementsAreRare: when every call times out, there is one replacement a second.
func TestReplacementsAreRare(t *testing.T) {
	dialBubble(t, connSleep, func(t *testing.T, n *dialNet, cc *conn.Conn) {
		dialMust(t, dialCall(cc, "Lock", time.Second))
		for start := time.Now(); time.Since(start) < 9500*time.Millisecond; {
			dialWantCode(t, connCall(t.Context(), cc, "Lock", time.Minute, 100*time.Millisecond), codes.DeadlineExceeded)
		}
		n.wantWires(t, 11)
	})
}

// TestMeaninglessDeadlines: deadlines that do not show a stuck connection replace none.
func TestMeaninglessDeadlines(t *testing.T) {
	said := func(ctx context.Context, method string) error {
		if method == "Fetch" {
			return status.Error(codes.DeadlineExceeded, "the database is slow")
		}
		return connSleep(ctx, method)
	}
	dialBubble(t, said, func(t *testing.T, n *dialNet, cc *conn.Conn) {
		dialMust(t, dialCall(cc, "Lock", time.Second))

		dialWantCode(t, connCall(t.Context(), cc, "AwaitClaim", time.Minute, 2*time.Second), codes.DeadlineExceeded)
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		watch, err := grpc_health_v1.NewHealthClient(cc).Watch(ctx, &grpc_health_v1.HealthCheckRequest{})
		dialMust(t, err)
		for err == nil {
			_, err = watch.Recv()
		}
		dialWantCode(t, err, codes.DeadlineExceeded)
		dialWantCode(t, dialCall(cc, "Lock", -time.Second), codes.DeadlineExceeded) // its deadline has passed already
		dialWantCode(t, dialCall(cc, "Fetch", time.Second), codes.DeadlineExceeded)
		canceled, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		dialWantCode(t, connCall(canceled, cc, "Lock", time.Minute, time.Hour), codes.Canceled)

		dialMust(t, dialCall(cc, "Lock", time.Second))
		n.wantOpen(t, true)
	})
}

// TestTimeoutWhileConnecting: a call that times out while gRPC connects does not start another connection.
func TestTimeoutWhileConnecting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newDialNet(t, dialFine)
		n.Prevent(func(ctx context.Context) error { // a slow network
			select {
			case <-time.After(2500 * time.Millisecond):
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
		cc := n.conn(t)
		for range 2 {
			dialWantCode(t, dialCall(cc, "Lock", time.Second), codes.DeadlineExceeded)
		}
		dialMust(t, dialCall(cc, "Lock", time.Second))
		if tried := n.Attempts(); tried != 1 {
			t.Errorf("%d attempts to connect", tried)
		}
	})
}

// TestCloseConn: Close ends all calls, also those on old connections. Later calls return ErrClosed.
func TestCloseConn(t *testing.T) {
	dialBubble(t, connSleep, func(t *testing.T, n *dialNet, cc *conn.Conn) {
		var calls sync.WaitGroup
		long := func() {
			calls.Go(func() {
				dialWantCode(t, connCall(t.Context(), cc, "AwaitClaim", time.Minute, time.Hour), codes.Canceled)
			})
			synctest.Wait()
		}
		long()
		watch, err := grpc_health_v1.NewHealthClient(cc).Watch(t.Context(), &grpc_health_v1.HealthCheckRequest{})
		dialMust(t, err)
		_, err = watch.Recv()
		dialMust(t, err)
		dialWantCode(t, connCall(t.Context(), cc, "Lock", time.Minute, time.Second), codes.DeadlineExceeded)
		long()
		n.wantOpen(t, true, true)

		for range 2 {
			calls.Go(func() {
				dialMust(t, cc.Close())
				for i, wire := range n.Wires() {
					if !wire.IsClosed() {
						t.Errorf("connection %d is open after the end", i)
					}
				}
			})
		}
		calls.Wait()
		n.wantOpen(t, false, false)
		_, err = watch.Recv()
		dialWantCode(t, err, codes.Canceled)

		if err := dialCall(cc, "Lock", time.Second); !errors.Is(err, conn.ErrClosed) {
			t.Errorf("a call: %v", err)
		}
		if _, err := grpc_health_v1.NewHealthClient(cc).Watch(t.Context(), &grpc_health_v1.HealthCheckRequest{}); !errors.Is(err, conn.ErrClosed) {
			t.Errorf("a stream: %v", err)
		}
		dialMust(t, cc.Close())
	})
}

// TestBadStream: a stream that could not be opened does not keep its connection open.
func TestBadStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, wrong := newDialNet(t, connSleep), errors.New("no credential")
		cc := dialConn(t, []string{"localhost:8891"}, conn.WithDialOptions(grpc.WithContextDialer(n.Dial), grpc.WithStreamInterceptor(
			func(context.Context, *grpc.StreamDesc, *grpc.ClientConn, string, grpc.Streamer, ...grpc.CallOption) (grpc.ClientStream, error) {
				return nil, wrong
			})))
		dialMust(t, dialCall(cc, "Lock", time.Second))
		if _, err := grpc_health_v1.NewHealthClient(cc).Watch(t.Context(), &grpc_health_v1.HealthCheckRequest{}); !errors.Is(err, wrong) {
			t.Fatalf("got %v", err)
		}
		dialWantCode(t, connCall(t.Context(), cc, "Lock", time.Minute, time.Second), codes.DeadlineExceeded)
		time.Sleep(time.Second)
		n.wantOpen(t, false, true)
	})
}

// TestConnStress: calls, timeouts and Close at the same time.
func TestConnStress(t *testing.T) {
	address, _, _ := dialListen(t, nil, func(ctx context.Context, _ string) error {
		select {
		case <-time.After(rand.N(4 * time.Millisecond)): // real time: some calls are too late, or none
		case <-ctx.Done():
		}
		return nil
	})
	cc, err := conn.Dial([]string{address, address})
	dialMust(t, err)
	var calls sync.WaitGroup
	var answered, late atomic.Int64
	for i := range 50 {
		timeout := time.Duration(1+i%2*1000) * 5 * time.Millisecond // 5 ms, 5 s
		calls.Go(func() {
			for {
				err := dialCall(cc, "Lock", 1+rand.N(timeout), grpc.WaitForReady(true)) // connecting may take too long, and is tried again
				switch status.Code(err) {
				case codes.OK:
					answered.Add(1)
				case codes.DeadlineExceeded:
					late.Add(1)
				case codes.Canceled:
					return
				default:
					t.Errorf("got %v", err)
					return
				}
			}
		})
	}
	harness.Until(t, "answers and late calls", func() bool { return answered.Load() > 500 && late.Load() > 100 })
	dialMust(t, cc.Close())
	calls.Wait()
}

// TestAwaitBehindSilence: the server answers AwaitClaim before its deadline. So a deadline that passes after the timeout in the
// request replaces the connection.
func TestAwaitBehindSilence(t *testing.T) {
	dialBubble(t, dialFine, func(t *testing.T, n *dialNet, cc *conn.Conn) {
		await := func(timeout time.Duration) error {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			request := &models.AwaitClaimRequest{Id: "a", Timeout: durationpb.New(timeout)}
			_, err := models.NewLocketClient(cc).AwaitClaim(ctx, request)
			return err
		}
		dialMust(t, await(4*time.Second))
		n.Wires()[0].Stuck.Store(true)
		dialWantCode(t, await(time.Hour), codes.DeadlineExceeded) // it may wait on
		n.wantWires(t, 1)
		dialWantCode(t, await(4*time.Second), codes.DeadlineExceeded)
		dialMust(t, await(4*time.Second))
		n.wantWires(t, 2)
	})
}
