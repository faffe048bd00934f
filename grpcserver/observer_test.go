package grpcserver_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/locket-service/locket/grpcserver"
)

type spanKey struct{}

// spans are observers that record calls, and add to the context of each call which observers it is in.
type spans struct {
	mu    sync.Mutex
	heard []string
}

func (s *spans) say(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.heard = append(s.heard, fmt.Sprintf(format, args...))
}

func (s *spans) take() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer func() { s.heard = nil }()
	return s.heard
}

func (s *spans) observer(name string) grpcserver.Observer {
	return func(ctx context.Context, call *grpcserver.Call) (context.Context, func(error)) {
		within, _ := ctx.Value(spanKey{}).(string)
		s.say("%s begins in %q", name, within)
		if grpcserver.RequestID(ctx) == "" || call.FullMethod == "" {
			s.say("no request id, or no method")
		}
		return context.WithValue(ctx, spanKey{}, within+"/"+name), func(err error) { s.say("%s ends with %s for %s", name, status.Code(err), call.Identity()) }
	}
}

// TestIdentityOfEndedStream: a guard may still learn who calls when the stream has ended and is logged.
func TestIdentityOfEndedStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var identified sync.WaitGroup
		observe := func(ctx context.Context, call *grpcserver.Call) (context.Context, func(error)) {
			return ctx, func(error) { _ = call.Identity() }
		}
		handle := func(_ any, stream grpc.ServerStream) error { return stream.Context().Err() }
		s := start(t, config{stream: handle, observers: []grpcserver.Observer{observe}, guards: []grpcserver.Guard{func(ctx context.Context, call *grpcserver.Call, next func(context.Context) error) error {
			identified.Add(1)
			defer identified.Done()
			<-ctx.Done()
			call.Identify("jim")
			return next(ctx)
		}}})
		_, streams := methods()
		for _, conn := range s.transports() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			_ = open(ctx, conn, streams[len(streams)-1])
			cancel()
			synctest.Wait()
			identified.Wait()
		}
	})
}

// TestObservers: observers are called for every call, one inside the other, even if a guard refuses it or it panics; guards and handlers get their contexts.
func TestObservers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s spans
		var refuse error
		fail := func() error { return nil }
		s2 := start(t, config{
			lock: func(ctx context.Context) error { s.say("the handler is in %s", ctx.Value(spanKey{})); return fail() },
			stream: func(_ any, stream grpc.ServerStream) error {
				s.say("the handler is in %s", stream.Context().Value(spanKey{}))
				return fail()
			},
			guards: []grpcserver.Guard{func(ctx context.Context, call *grpcserver.Call, next func(context.Context) error) error {
				s.say("the guard is in %s", ctx.Value(spanKey{}))
				call.Identify("jim")
				if refuse != nil {
					return refuse
				}
				return next(ctx)
			}},
			observers: []grpcserver.Observer{s.observer("a"), s.observer("b")},
		})
		_, streams := methods()
		calls := map[string]func(grpc.ClientConnInterface) error{
			"unary":  func(conn grpc.ClientConnInterface) error { return invoke(t.Context(), t, conn, "/models.Locket/Lock") },
			"stream": func(conn grpc.ClientConnInterface) error { return open(t.Context(), conn, streams[len(streams)-1]) },
		}
		for transport, conn := range s2.transports() {
			for kind, call := range calls {
				for name, c := range map[string]struct {
					refuse error
					fail   func() error
					code   codes.Code
				}{
					"answered": {nil, func() error { return nil }, codes.OK},
					"refused":  {status.Error(codes.PermissionDenied, "no"), nil, codes.PermissionDenied},
					"failed":   {nil, func() error { return status.Error(codes.NotFound, "no") }, codes.NotFound},
					"panic":    {nil, func() error { panic(errors.New("a bug")) }, codes.Internal},
				} {
					refuse, fail = c.refuse, c.fail
					_ = call(conn)
					synctest.Wait()
					want := []string{`a begins in ""`, `b begins in "/a"`, "the guard is in /a/b"}
					if c.refuse == nil {
						want = append(want, "the handler is in /a/b")
					}
					want = append(want, fmt.Sprintf("b ends with %s for jim", c.code), fmt.Sprintf("a ends with %s for jim", c.code))
					if got := s.take(); !slices.Equal(got, want) {
						t.Errorf("%s, %s, %s: %q, want %q", transport, kind, name, got, want)
					}
				}
			}
		}
	})
}
