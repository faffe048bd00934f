package grpcserver_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/tedsuo/ifrit"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/grpcserver"
	"github.com/locket-service/locket/models"
)

const serving, notServing = grpc_health_v1.HealthCheckResponse_SERVING, grpc_health_v1.HealthCheckResponse_NOT_SERVING

func TestHealth(t *testing.T) {
	bubble(t, config{}, func(t *testing.T, s *server) {
		for _, name := range []string{"", "models.Locket"} {
			if got, err := s.health(t, name); err != nil || got != serving {
				t.Errorf("%q: %s (%v)", name, got, err)
			}
		}
		_, err := s.health(t, "other")
		wantCode(t, err, codes.NotFound)
	})
}

// TestWatch: a health watch is notified of the shutdown, and its stream then ends.
func TestWatch(t *testing.T) {
	var release chan struct{}
	bubble(t, config{lock: func(context.Context) error { <-release; return nil }}, func(t *testing.T, s *server) {
		release = make(chan struct{})
		watch, err := grpc_health_v1.NewHealthClient(s.conn).Watch(t.Context(), &grpc_health_v1.HealthCheckRequest{Service: "models.Locket"})
		must(t, err)
		if got, err := watch.Recv(); err != nil || got.GetStatus() != serving {
			t.Fatalf("got %v (%v)", got, err)
		}
		underWay := s.call(t.Context())
		s.process.Signal(os.Interrupt)
		if got, err := watch.Recv(); err != nil || got.GetStatus() != notServing {
			t.Errorf("at the end %v (%v)", got, err)
		}
		begin := time.Now()
		if got, err := watch.Recv(); err == nil {
			t.Errorf("the watch goes on: %v", got)
		}
		if took := time.Since(begin); took > time.Second {
			t.Errorf("the watch ended after %s", took)
		}
		close(release)
		must(t, <-underWay)
	})
}

// TestDrain: running requests finish, new ones are refused.
func TestDrain(t *testing.T) {
	var release chan struct{}
	bubble(t, config{lock: func(context.Context) error { <-release; return nil }}, func(t *testing.T, s *server) {
		release = make(chan struct{})
		first, second := s.call(t.Context()), s.call(t.Context())
		begin := time.Now()
		s.process.Signal(os.Interrupt)
		synctest.Wait()
		if !s.drained {
			t.Error("nobody was notified of the end")
		}
		wantCode(t, <-s.call(t.Context()), codes.Unavailable)
		if _, err := s.listener.DialContext(t.Context()); err == nil {
			t.Error("a new connection was taken")
		}
		time.Sleep(time.Second)
		close(release)
		must(t, errors.Join(<-first, <-second))
		must(t, <-s.process.Wait())
		if took := time.Since(begin); took != time.Second {
			t.Errorf("the end took %s", took)
		}
	})
}

// TestCutOff: requests that take too long are cut off.
func TestCutOff(t *testing.T) {
	var ended chan error
	bubble(t, config{lock: func(ctx context.Context) error {
		<-ctx.Done()
		ended <- ctx.Err()
		return ctx.Err()
	}}, func(t *testing.T, s *server) {
		ended = make(chan error, 1)
		underWay := s.call(t.Context())
		begin := time.Now()
		s.process.Signal(os.Interrupt)
		wantCode(t, <-underWay, codes.Unavailable)
		must(t, <-s.process.Wait())
		if took := time.Since(begin); took != shutdownTimeout {
			t.Errorf("the end took %s", took)
		}
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("the request ended with %v", err)
		}
		s.logs.line(t, "cut off")
	})
}

// TestEndWhileIdle: without requests the shutdown does not wait.
func TestEndWhileIdle(t *testing.T) {
	bubble(t, config{}, func(t *testing.T, s *server) {
		must(t, <-s.call(t.Context()))
		begin := time.Now()
		s.stop(t)
		if took := time.Since(begin); took != 0 {
			t.Errorf("the end took %s", took)
		}
	})
}

// TestStartStop starts and stops servers on real sockets, again and again.
func TestStartStop(t *testing.T) {
	for i := range 20 {
		process := ifrit.Background(grpcserver.New(grpcserver.Config{
			Listener: fixtures.Listen(t), Register: func(grpc.ServiceRegistrar) {},
			Chain:           grpcserver.NewChain(slog.New(slog.DiscardHandler), prometheus.NewRegistry()),
			ShutdownTimeout: shutdownTimeout, OnDrain: func() {}, Log: slog.New(slog.DiscardHandler),
		}))
		if i%2 == 0 {
			<-process.Ready()
		}
		process.Signal(os.Interrupt)
		must(t, <-process.Wait())
	}
}

func TestReflection(t *testing.T) {
	bubble(t, config{}, func(t *testing.T, s *server) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		stream, err := grpc_reflection_v1.NewServerReflectionClient(s.conn).ServerReflectionInfo(ctx)
		must(t, err)
		must(t, stream.Send(&grpc_reflection_v1.ServerReflectionRequest{
			MessageRequest: &grpc_reflection_v1.ServerReflectionRequest_ListServices{},
		}))
		got, err := stream.Recv()
		must(t, err)
		var names []string
		for _, service := range got.GetListServicesResponse().GetService() {
			names = append(names, service.GetName())
		}
		for _, want := range []string{"models.Locket", "grpc.health.v1.Health"} {
			if !strings.Contains(fmt.Sprint(names), want) {
				t.Errorf("services %q lack %s", names, want)
			}
		}
		// The stream is open and idle: it must not delay the shutdown.
		begin := time.Now()
		s.stop(t)
		if took := time.Since(begin); took > time.Second {
			t.Errorf("the end took %s", took)
		}
	})
}

// TestPanic: its caller gets Internal without the details, and the server keeps serving.
func TestPanic(t *testing.T) {
	bubble(t, config{
		lock: func(ctx context.Context) error {
			if grpcserver.RequestID(ctx) == "bad" {
				panic("secret")
			}
			return nil
		},
		stream: func(any, grpc.ServerStream) error { panic("secret stream") },
	}, func(t *testing.T, s *server) {
		_, err := s.Lock(withID(t, "bad"), &models.LockRequest{})
		internal(t, err)
		stream, err := s.conn.NewStream(t.Context(), &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, "/test.Stream/Call")
		must(t, err)
		internal(t, stream.RecvMsg(&emptypb.Empty{}))
		must(t, <-s.call(t.Context()))
		for _, panicked := range []string{`panic=secret `, `panic="secret stream"`} {
			if line := s.logs.line(t, panicked); !strings.Contains(line, "server_test.go") {
				t.Errorf("no stack: %s", line)
			}
		}
		if line := s.logs.line(t, "panic=secret "); !strings.Contains(line, "request_id=bad") {
			t.Errorf("no request id: %s", line)
		}
	})
}

func internal(t *testing.T, err error) {
	t.Helper()
	if got := status.Convert(err); got.Code() != codes.Internal || got.Message() != "internal error" {
		t.Errorf("got %v", err)
	}
}

func withID(t *testing.T, id string) context.Context {
	return metadata.AppendToOutgoingContext(t.Context(), models.RequestIDKey, id)
}

func TestMessageSize(t *testing.T) {
	bubble(t, config{}, func(t *testing.T, s *server) {
		send := func(size int) error {
			_, err := s.Lock(t.Context(), &models.LockRequest{Resource: &models.Resource{Value: strings.Repeat("v", size)}})
			return err
		}
		must(t, send(2*64<<10+8<<10)) // more than the largest valid one
		wantCode(t, send(256<<10), codes.ResourceExhausted)
		must(t, send(1))
	})
}

func TestObserver(t *testing.T) {
	bubble(t, config{lock: func(ctx context.Context) error {
		time.Sleep(20 * time.Millisecond)
		switch grpcserver.RequestID(ctx) {
		case "collides":
			return status.Error(codes.AlreadyExists, "lock-collision")
		case "fails":
			return status.Error(codes.Internal, "internal error")
		case "away":
			return status.Error(codes.Unavailable, "away")
		}
		return nil
	}}, func(t *testing.T, s *server) {
		lock := &models.LockRequest{Resource: &models.Resource{Key: "the-key", Owner: "the-owner", Value: "the-value"}}
		for _, c := range []struct{ id, level, code, message string }{
			{"works", "DEBUG", "OK", ""},
			{"collides", "DEBUG", "AlreadyExists", "message=lock-collision"},
			{"fails", "ERROR", "Internal", `message="internal error"`},
			{"away", "WARN", "Unavailable", "message=away"},
		} {
			_, _ = s.Lock(withID(t, c.id), lock)
			line := s.logs.line(t, "request_id="+c.id)
			for _, want := range []string{"level=" + c.level, "msg=request", "method=Lock", "code=" + c.code, "duration=20ms", "resource=the-key owner=the-owner", c.message} {
				if !strings.Contains(line, want) {
					t.Errorf("no %s in %s", want, line)
				}
			}
		}
		_, _ = s.Lock(t.Context(), lock) // without an id
		if strings.Contains(s.logs.String(), "request_id= ") {
			t.Error("an empty request id")
		}
		if strings.Contains(s.logs.String(), "the-value") {
			t.Errorf("what callers keep with a lock was logged:\n%s", s.logs)
		}
		want := map[string]uint64{"Lock OK": 2, "Lock AlreadyExists": 1, "Lock Internal": 1, "Lock Unavailable": 1}
		if got := requests(t, s.registry); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("requests %v, want %v", got, want)
		}
	})
}

// requests returns how many requests were counted, by method and code.
func requests(t *testing.T, registry *prometheus.Registry) map[string]uint64 {
	t.Helper()
	families, err := registry.Gather()
	must(t, err)
	counts := make(map[string]uint64)
	for _, family := range families {
		if family.GetName() != "locket_request_duration_seconds" {
			continue
		}
		for _, m := range family.GetMetric() {
			labels := make(map[string]string)
			for _, label := range m.GetLabel() {
				labels[label.GetName()] = label.GetValue()
			}
			if len(labels) != 2 {
				t.Errorf("labels %v", labels)
			}
			counts[labels["method"]+" "+labels["code"]] = m.GetHistogram().GetSampleCount()
		}
	}
	return counts
}

// TestUnknownMethod: an unknown method does not become a label of a metric.
func TestUnknownMethod(t *testing.T) {
	bubble(t, config{}, func(t *testing.T, s *server) {
		err := s.conn.Invoke(t.Context(), "/models.Locket/MadeUp", &emptypb.Empty{}, &emptypb.Empty{})
		wantCode(t, err, codes.Unimplemented)
		if got := requests(t, s.registry); len(got) != 0 {
			t.Errorf("requests %v", got)
		}
	})
}

// TestOrdinaryEnds: a wait that its caller's deadline or a shutdown ends causes no warning.
func TestOrdinaryEnds(t *testing.T) {
	stopping, err := status.New(codes.Unavailable, "the server is shutting down").WithDetails(
		&errdetails.ErrorInfo{Domain: models.ErrorDomain, Reason: models.ReasonShuttingDown})
	must(t, err)
	for _, c := range []struct {
		err         error
		lock, await string
	}{
		{context.DeadlineExceeded, "WARN", "DEBUG"},
		{stopping.Err(), "DEBUG", "DEBUG"},
		{status.Error(codes.Unavailable, "the database is not available"), "WARN", "WARN"},
		{status.Error(codes.ResourceExhausted, "too many"), "WARN", "WARN"},
		{context.Canceled, "DEBUG", "DEBUG"},
		{status.Error(codes.Internal, "internal error"), "ERROR", "ERROR"},
	} {
		answer := func(context.Context) error { return c.err }
		bubble(t, config{lock: answer}, func(t *testing.T, s *server) {
			_, _ = s.Lock(t.Context(), &models.LockRequest{})
			_, _ = s.AwaitClaim(t.Context(), &models.AwaitClaimRequest{})
			if line := s.logs.line(t, "method=Lock"); !strings.Contains(line, "level="+c.lock) {
				t.Error(line)
			}
			if line := s.logs.line(t, "method=AwaitClaim"); !strings.Contains(line, "level="+c.await) {
				t.Error(line)
			}
		})
	}
}

// TestLastEvents: a session has time to send its last events when the server shuts down, and ends by itself; one that does not
// is ended.
func TestLastEvents(t *testing.T) {
	for took, want := range map[time.Duration]codes.Code{time.Second: codes.Aborted, time.Minute: codes.Unavailable} {
		t.Run(took.String(), func(t *testing.T) {
			var stopping chan struct{}
			session := func(stream grpc.BidiStreamingServer[models.SessionRequest, models.SessionResponse]) error {
				<-stopping
				select {
				case <-time.After(took):
				case <-stream.Context().Done():
					return stream.Context().Err()
				}
				return errors.Join(stream.Send(&models.SessionResponse{Sequence: 7}), status.Error(codes.Aborted, "by itself"))
			}
			bubble(t, config{session: session}, func(t *testing.T, s *server) {
				stopping = make(chan struct{}) // of the bubble
				stream, err := s.Session(t.Context())
				must(t, err)
				must(t, stream.Send(&models.SessionRequest{Sequence: 1}))
				synctest.Wait()
				s.process.Signal(os.Interrupt)
				close(stopping)
				last, err := stream.Recv()
				if want == codes.Aborted {
					if err != nil || last.GetSequence() != 7 {
						t.Errorf("the last event: %v, %v", last, err)
					}
					_, err = stream.Recv()
				}
				wantCode(t, err, want)
			})
		})
	}
}

// TestStreams: the number of concurrent calls of a connection is limited.
func TestStreams(t *testing.T) {
	var under atomic.Int64
	var end chan struct{}
	bubble(t, config{lock: func(context.Context) error { under.Add(1); <-end; under.Add(-1); return nil }}, func(t *testing.T, s *server) {
		end = make(chan struct{})
		var calls sync.WaitGroup
		for range 10_100 {
			calls.Go(func() { _, _ = s.Lock(t.Context(), &models.LockRequest{}) })
		}
		synctest.Wait()
		if n := under.Load(); n != 10_000 {
			t.Errorf("%d calls are under way", n)
		}
		close(end)
		calls.Wait()
	})
}

// TestLogWith: a logger derived with With keeps the request id.
func TestLogWith(t *testing.T) {
	var l logs
	bubble(t, config{lock: func(ctx context.Context) error {
		l.logger().With("a", 1).WithGroup("g").InfoContext(ctx, "said", "b", 2)
		return nil
	}}, func(t *testing.T, s *server) {
		ctx := metadata.AppendToOutgoingContext(t.Context(), models.RequestIDKey, "one", models.RequestIDKey, "two")
		must(t, <-s.call(ctx))
		if line := l.line(t, "said"); !strings.Contains(line, "request_id=one") || !strings.Contains(line, "a=1") {
			t.Error(line)
		}
	})
}

// TestPings: a client may ping every few seconds, and its connection is closed if it pings all the time.
func TestPings(t *testing.T) {
	for _, c := range []struct {
		interval time.Duration
		sentAway bool
	}{{time.Second, true}, {6 * time.Second, false}} {
		t.Run(c.interval.String(), func(t *testing.T) {
			bubble(t, config{}, func(t *testing.T, s *server) {
				conn, err := s.listener.DialContext(t.Context())
				must(t, err)
				goAway := make(chan string, 1)
				go func() { goAway <- readGoAway(conn) }()
				const settings, ping = "\x00\x00\x00\x04\x00\x00\x00\x00\x00", "\x00\x00\x08\x06\x00\x00\x00\x00\x0012345678"
				must(t, send(conn, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"+settings))
				for range 10 {
					time.Sleep(c.interval)
					_ = send(conn, ping)
				}
				synctest.Wait()
				select {
				case why := <-goAway:
					if !c.sentAway || why != "too_many_pings" {
						t.Errorf("sent away: %q", why)
					}
				default:
					if c.sentAway {
						t.Error("the pings were borne")
					}
				}
				must(t, conn.Close())
			})
		})
	}
}

func send(conn net.Conn, text string) error {
	_, err := conn.Write([]byte(text))
	return err
}

// readGoAway reads HTTP/2 frames until the connection's last, and returns its text.
func readGoAway(conn net.Conn) string {
	for {
		header := make([]byte, 9)
		if _, err := io.ReadFull(conn, header); err != nil {
			return err.Error()
		}
		body := make([]byte, binary.BigEndian.Uint32(append([]byte{0}, header[:3]...)))
		if _, err := io.ReadFull(conn, body); err != nil {
			return err.Error()
		}
		if header[3] == 7 { // GOAWAY: last stream, error code, text
			return string(body[8:])
		}
	}
}
