package grpcserver_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/locket-service/locket/grpcserver"
	"github.com/locket-service/locket/models"
)

// TestConnectionAge: after an hour a connection accepts no more calls, and a stream on it ends some time later; the
// client's calls continue over another connection.
func TestConnectionAge(t *testing.T) {
	bubble(t, config{stream: lasts}, func(t *testing.T, s *server) {
		call := func() {
			_, err := s.Lock(t.Context(), &models.LockRequest{})
			must(t, err)
		}
		call()
		stream := s.lasting(t)
		time.Sleep(50 * time.Minute)
		if synctest.Wait(); len(stream) != 0 {
			t.Errorf("a stream has ended after 50 minutes: %v", <-stream)
		}
		call()
		time.Sleep(30 * time.Minute)
		if synctest.Wait(); len(stream) != 1 {
			t.Error("a stream goes on after 80 minutes")
		} else {
			wantCode(t, <-stream, codes.Unavailable)
		}
		call()
	})
}

// TestEndOfAStream: a guard ends a stream with an error of its own while the handler is running.
func TestEndOfAStream(t *testing.T) {
	ended := status.Error(codes.Unauthenticated, "not any more")
	var end func(error)
	guard := func(ctx context.Context, call *grpcserver.Call, next func(context.Context) error) error {
		if call.Stream {
			end = call.End
		}
		return next(ctx)
	}
	for name, handler := range map[string]grpc.StreamHandler{
		"blocked": func(_ any, stream grpc.ServerStream) error { return stream.RecvMsg(&models.LockRequest{}) },
		"attends": func(_ any, stream grpc.ServerStream) error {
			<-stream.Context().Done()
			return errors.New("other")
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, config{stream: handler, guards: []grpcserver.Guard{guard}}, func(t *testing.T, s *server) {
				stream := s.unfinished(t, t.Context(), "/test.Stream/Call")
				synctest.Wait()
				end(ended)
				wantCode(t, <-stream, codes.Unauthenticated)
				must(t, <-s.call(t.Context()))
			})
		})
	}
}
