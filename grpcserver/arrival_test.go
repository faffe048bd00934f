package grpcserver_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"

	"github.com/locket-service/locket/internal/doors/guard"
	"github.com/locket-service/locket/models"
)

// unfinished begins a call whose message never arrives, and returns when the server has ended it.
func (s *server) unfinished(t *testing.T, ctx context.Context, method string) <-chan error {
	t.Helper()
	stream, err := s.conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, method)
	must(t, err)
	return endOf(stream)
}

// lasting begins a stream of a handler that lasts, and sends a message. It returns the channel of its end.
func (s *server) lasting(t *testing.T) <-chan error {
	t.Helper()
	stream, err := s.conn.NewStream(t.Context(), &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, "/test.Stream/Call")
	must(t, err)
	must(t, stream.SendMsg(&models.LockRequest{}))
	return endOf(stream)
}

func endOf(stream grpc.ClientStream) <-chan error {
	done := make(chan error, 1)
	go func() { done <- stream.RecvMsg(&models.LockResponse{}) }()
	return done
}

// lasts is the handler of a stream that lasts.
func lasts(_ any, stream grpc.ServerStream) error {
	if err := stream.RecvMsg(&models.LockRequest{}); err != nil {
		return err
	}
	<-stream.Context().Done()
	return stream.Context().Err()
}

// knownByUser knows callers by a name in their metadata.
func knownByUser(ctx context.Context) bool {
	return len(metadata.ValueFromIncomingContext(ctx, "user")) > 0
}

// TestUnfinishedCalls: calls of unknown callers whose messages do not arrive end after a time, and earlier if there are
// too many. They hinder neither complete calls nor known callers.
func TestUnfinishedCalls(t *testing.T) {
	arrivals := guard.NewArrivals(knownByUser, prometheus.NewRegistry())
	bubble(t, config{arrive: arrivals.Begin}, func(t *testing.T, s *server) {
		known := s.unfinished(t, metadata.AppendToOutgoingContext(t.Context(), "user", "alice"), models.Locket_Lock_FullMethodName)
		const more = 50
		var calls []<-chan error
		for range guard.MaxArrivals + more {
			calls = append(calls, s.unfinished(t, t.Context(), models.Locket_Lock_FullMethodName))
			synctest.Wait()
		}
		ended := func() (n int) {
			synctest.Wait()
			for _, call := range calls {
				n += len(call)
			}
			return n
		}
		if n := ended(); n != more {
			t.Errorf("%d unfinished calls were cut off at once, want %d", n, more)
		}
		must(t, <-s.call(t.Context())) // in place of one more
		if status, err := s.health(t, ""); err != nil || status != grpc_health_v1.HealthCheckResponse_SERVING {
			t.Errorf("health: %v, %v", status, err)
		}
		time.Sleep(guard.ArrivalTime)
		if n := ended(); n != len(calls) {
			t.Errorf("%d of %d unfinished calls were cut off in time", n, len(calls))
		}
		wantCode(t, <-calls[0], codes.Canceled)
		time.Sleep(time.Minute)
		if synctest.Wait(); len(known) != 0 {
			t.Errorf("the call of a known caller was cut off: %v", <-known)
		}
	})
}

// TestUnfinishedStreams: the same for streams. A stream that was let in lasts.
func TestUnfinishedStreams(t *testing.T) {
	arrivals := guard.NewArrivals(knownByUser, prometheus.NewRegistry())
	bubble(t, config{arrive: arrivals.Begin, stream: lasts}, func(t *testing.T, s *server) {
		stream := s.lasting(t)
		health := s.unfinished(t, t.Context(), grpc_health_v1.Health_Watch_FullMethodName)
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(stream) != 0 || len(health) != 1 {
			t.Errorf("a stream that was let in has ended: %t; an unfinished health watch has ended: %t", len(stream) == 1, len(health) == 1)
		}
		watch, err := grpc_health_v1.NewHealthClient(s.conn).Watch(t.Context(), &grpc_health_v1.HealthCheckRequest{})
		must(t, err)
		_, err = watch.Recv()
		must(t, err)
		next := make(chan error, 1)
		go func() {
			_, err := watch.Recv()
			next <- err
		}()
		time.Sleep(time.Minute)
		if synctest.Wait(); len(next) != 0 {
			t.Errorf("a health watch that had arrived was cut off: %v", <-next)
		}
	})
}

// TestHealthStreams: the watches of the health service are limited; callers without valid credentials do not take the
// room of others.
func TestHealthStreams(t *testing.T) {
	arrivals := guard.NewArrivals(knownByUser, prometheus.NewRegistry())
	bubble(t, config{arrive: arrivals.Begin}, func(t *testing.T, s *server) {
		client := grpc_health_v1.NewHealthClient(s.conn)
		watch := func(ctx context.Context) error {
			stream, err := client.Watch(ctx, &grpc_health_v1.HealthCheckRequest{})
			must(t, err)
			_, err = stream.Recv()
			return err
		}
		for range 1000 {
			must(t, watch(t.Context()))
		}
		wantCode(t, watch(t.Context()), codes.ResourceExhausted)
		must(t, watch(metadata.AppendToOutgoingContext(t.Context(), "user", "alice")))
		if _, err := s.health(t, ""); err != nil {
			t.Error(err)
		}
	})
}

// TestLargeHeader: a header that is larger than the limit over HTTP is refused.
func TestLargeHeader(t *testing.T) {
	bubble(t, config{}, func(t *testing.T, s *server) {
		for size, ok := range map[int]bool{32 << 10: true, 1 << 20: false, 12 << 20: false} {
			err := <-s.call(metadata.AppendToOutgoingContext(t.Context(), "x", strings.Repeat("x", size)))
			if (err == nil) != ok {
				t.Errorf("a header of %d bytes: %v", size, err)
			}
		}
	})
}
