package grpcserver_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/locket-service/locket/grpcserver"
	"github.com/locket-service/locket/models"
)

// record is a guard that records the calls.
type record struct {
	mu    sync.Mutex
	calls []string
}

func (r *record) guard(ctx context.Context, call *grpcserver.Call, next func(context.Context) error) error {
	r.mu.Lock()
	r.calls = append(r.calls, call.FullMethod+" "+grpcserver.RequestID(ctx))
	r.mu.Unlock()
	return next(ctx)
}

// take returns the calls since the last time.
func (r *record) take() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	seen := strings.Join(r.calls, ", ")
	r.calls = nil
	return seen
}

// transports are client connections over gRPC and in the process.
func (s *server) transports() map[string]grpc.ClientConnInterface {
	return map[string]grpc.ClientConnInterface{"gRPC": s.conn, "in process": s.local}
}

// methods lists every method of the services that a test registers, by kind.
func methods() (unary, streams []string) {
	for _, desc := range []*grpc.ServiceDesc{&models.Locket_ServiceDesc, (&service{}).stream(nil)} {
		for _, m := range desc.Methods {
			unary = append(unary, "/"+desc.ServiceName+"/"+m.MethodName)
		}
		for _, s := range desc.Streams {
			streams = append(streams, "/"+desc.ServiceName+"/"+s.StreamName)
		}
	}
	return unary, streams
}

// invoke calls a method with an empty request.
func invoke(ctx context.Context, t *testing.T, conn grpc.ClientConnInterface, method string) error {
	t.Helper()
	name := protoreflect.FullName(strings.ReplaceAll(method[1:], "/", "."))
	desc, err := protoregistry.GlobalFiles.FindDescriptorByName(name)
	must(t, err)
	request, err := protoregistry.GlobalTypes.FindMessageByName(desc.(protoreflect.MethodDescriptor).Input().FullName())
	must(t, err)
	reply, err := protoregistry.GlobalTypes.FindMessageByName(desc.(protoreflect.MethodDescriptor).Output().FullName())
	must(t, err)
	return conn.Invoke(ctx, method, request.New().Interface(), reply.New().Interface())
}

// open calls a stream, sends one empty message, and returns how it ends.
func open(ctx context.Context, conn grpc.ClientConnInterface, method string) error {
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, method)
	if err != nil {
		return err
	}
	_ = stream.SendMsg(&emptypb.Empty{}) // RecvMsg returns how the stream ended
	_ = stream.CloseSend()
	for err == nil {
		err = stream.RecvMsg(&emptypb.Empty{})
	}
	return err
}

// each calls every method over each connection; the request id of a call is the connection's name.
func (s *server) each(t *testing.T, see func(transport, method string, err error)) {
	t.Helper()
	unary, streams := methods()
	for transport, conn := range s.transports() {
		ctx, cancel := context.WithCancel(withID(t, transport))
		for _, method := range unary {
			see(transport, method, invoke(ctx, t, conn, method))
		}
		for _, method := range streams {
			see(transport, method, open(ctx, conn, method))
		}
		cancel()
	}
}

// TestEveryCallPassesTheGuards: each unary call and each stream passes them once, over each connection.
func TestEveryCallPassesTheGuards(t *testing.T) {
	var first, second record
	handled := func(any, grpc.ServerStream) error { return status.Error(codes.Aborted, "handled") }
	bubble(t, config{stream: handled, guards: []grpcserver.Guard{first.guard, second.guard}}, func(t *testing.T, s *server) {
		s.each(t, func(transport, method string, _ error) {
			want := method + " " + transport
			if a, b := first.take(), second.take(); a != want || b != want {
				t.Errorf("%s: the guards have seen %q and %q, want %q", transport, a, b, want)
			}
		})
		// Health has no guards, reflection has.
		_, err := s.health(t, "")
		must(t, err)
		watch, err := grpc_health_v1.NewHealthClient(s.conn).Watch(t.Context(), &grpc_health_v1.HealthCheckRequest{})
		must(t, err)
		_, err = watch.Recv()
		must(t, err)
		if seen := first.take(); seen != "" {
			t.Errorf("health: %q", seen)
		}
		const reflection = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"
		_ = open(withID(t, "x"), s.conn, reflection)
		if seen := first.take(); seen != reflection+" x" {
			t.Errorf("reflection: %q", seen)
		}
	})
}

// TestRefusal: a call that a guard refuses reaches neither its handler nor the next guard.
func TestRefusal(t *testing.T) {
	refuse := func(context.Context, *grpcserver.Call, func(context.Context) error) error {
		return status.Error(codes.PermissionDenied, "not you")
	}
	var behind record
	bubble(t, config{
		lock:   func(context.Context) error { t.Error("the handler ran"); return nil },
		stream: func(any, grpc.ServerStream) error { t.Error("the handler of a stream ran"); return nil },
		guards: []grpcserver.Guard{refuse, behind.guard},
	}, func(t *testing.T, s *server) {
		s.each(t, func(transport, method string, err error) {
			if status.Code(err) != codes.PermissionDenied || status.Convert(err).Message() != "not you" {
				t.Errorf("%s %s: %v", transport, method, err)
			}
		})
		if seen := behind.take(); seen != "" {
			t.Errorf("the next guard has seen %q", seen)
		}
		for call, count := range requests(t, s.registry) { // refused calls are observed
			if !strings.HasSuffix(call, " PermissionDenied") || count != uint64(len(s.transports())) {
				t.Errorf("%s: %d", call, count)
			}
		}
		if _, err := s.health(t, ""); err != nil {
			t.Errorf("health: %v", err)
		}
	})
}

// TestGuardContext: what a guard adds to the context reaches the handler; a guard that breaks its contract causes
// Internal.
func TestGuardContext(t *testing.T) {
	type identity struct{}
	who := func(ctx context.Context) error {
		if ctx.Value(identity{}) != "me" {
			t.Errorf("the handler's context has %v", ctx.Value(identity{}))
		}
		return nil
	}
	guard := func(ctx context.Context, call *grpcserver.Call, next func(context.Context) error) error {
		switch grpcserver.RequestID(ctx) {
		case "forgotten":
			return nil
		case "panic":
			panic("a bug in a guard")
		}
		return next(context.WithValue(ctx, identity{}, "me"))
	}
	bubble(t, config{
		lock: who, stream: func(_ any, stream grpc.ServerStream) error { return who(stream.Context()) }, guards: []grpcserver.Guard{guard},
	}, func(t *testing.T, s *server) {
		for transport, conn := range s.transports() {
			lock := func(id string) error {
				_, err := models.NewLocketClient(conn).Lock(withID(t, id), &models.LockRequest{})
				return err
			}
			must(t, lock("fine"))
			wantCode(t, lock("forgotten"), codes.Internal)
			internal(t, lock("panic"))
			if err := open(withID(t, "fine"), conn, "/test.Stream/Call"); err.Error() != "EOF" {
				t.Errorf("%s: %v", transport, err)
			}
			internal(t, open(withID(t, "panic"), conn, "/test.Stream/Call"))
			must(t, lock("fine"))
		}
		if n := strings.Count(s.logs.String(), `panic="a bug in a guard"`); n != 4 {
			t.Errorf("%d panics were logged, want 4", n)
		}
	})
}

// TestPanicOverEachTransport: a panic of a handler affects only its caller.
func TestPanicOverEachTransport(t *testing.T) {
	bubble(t, config{
		lock:   func(context.Context) error { panic("secret") },
		stream: func(any, grpc.ServerStream) error { panic("secret") },
	}, func(t *testing.T, s *server) {
		for transport, conn := range s.transports() {
			_, err := models.NewLocketClient(conn).Lock(withID(t, transport), &models.LockRequest{})
			internal(t, err)
			internal(t, open(withID(t, transport), conn, "/test.Stream/Call"))
			for _, method := range []string{"/models.Locket/Lock", "/test.Stream/Call"} {
				found := false
				for line := range strings.Lines(s.logs.String()) {
					found = found || strings.Contains(line, "panic=secret") && strings.Contains(line, transport) &&
						strings.Contains(line, "method="+method) && strings.Contains(line, "chain_test.go")
				}
				if !found {
					t.Errorf("%s %s was not logged with its stack:\n%s", transport, method, s.logs)
				}
			}
		}
	})
}

// TestCheck: a guard sees each message before the handler does.
func TestCheck(t *testing.T) {
	guard := func(ctx context.Context, call *grpcserver.Call, next func(context.Context) error) error {
		call.Check(func(message any) error {
			if strings.Contains(fmt.Sprint(message), "forbidden") {
				return status.Error(codes.PermissionDenied, "forbidden")
			}
			return nil
		})
		return next(ctx)
	}
	handled := 0
	bubble(t, config{
		lock: func(context.Context) error { handled++; return nil },
		stream: func(_ any, stream grpc.ServerStream) error {
			for {
				if err := stream.RecvMsg(&wrapperspb.StringValue{}); err != nil {
					return err
				}
				handled++
			}
		},
		guards: []grpcserver.Guard{guard},
	}, func(t *testing.T, s *server) {
		for transport, conn := range s.transports() {
			handled = 0
			for _, key := range []string{"allowed", "forbidden"} {
				_, err := models.NewLocketClient(conn).Lock(t.Context(), &models.LockRequest{Resource: &models.Resource{Key: key}})
				if (key == "forbidden") != (status.Code(err) == codes.PermissionDenied) {
					t.Errorf("%s %s: %v", transport, key, err)
				}
			}
			stream, err := conn.NewStream(t.Context(), &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, "/test.Stream/Call")
			must(t, err)
			must(t, stream.SendMsg(wrapperspb.String("allowed")))
			must(t, stream.SendMsg(wrapperspb.String("forbidden")))
			wantCode(t, stream.RecvMsg(&wrapperspb.StringValue{}), codes.PermissionDenied)
			if handled != 2 {
				t.Errorf("%s: %d messages reached a handler, want 2", transport, handled)
			}
		}
	})
}

// TestRequestIDs: a call keeps a valid id of its caller, and gets a new one otherwise.
func TestRequestIDs(t *testing.T) {
	var seen string
	note := func(ctx context.Context) error { seen = grpcserver.RequestID(ctx); return nil }
	bubble(t, config{lock: note, stream: func(_ any, s grpc.ServerStream) error { return note(s.Context()) }}, func(t *testing.T, s *server) {
		longest := strings.Repeat("x", 128)
		for transport, conn := range s.transports() {
			client, made := models.NewLocketClient(conn), make(map[string]bool)
			for _, c := range []struct{ given, want string }{{"a b", "a b"}, {longest, longest}, {longest + "x", ""}, {"", ""}} {
				for method, call := range map[string]func(ctx context.Context){
					"unary":  func(ctx context.Context) { _, _ = client.Lock(ctx, &models.LockRequest{}) },
					"stream": func(ctx context.Context) { _ = open(ctx, conn, "/test.Stream/Call") },
				} {
					call(withID(t, c.given))
					synctest.Wait()
					if c.want != "" && seen != c.want || c.want == "" && (len(seen) != 36 || made[seen]) {
						t.Errorf("%s, %s: %.10q became %q", transport, method, c.given, seen)
					}
					made[seen] = true
				}
			}
			_, err := client.Lock(t.Context(), &models.LockRequest{})
			must(t, err)
			if len(seen) != 36 || made[seen] {
				t.Errorf("%s: without an id: %q", transport, seen)
			}
		}
	})
}

// TestSent: an answer may be reused once it is sent, over the network or in the same process, and is reused once.
func TestSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sent := 0
		s := start(t, config{sent: func(message any) {
			sent++
			message.(*models.Claim).Id = "of another answer"
		}})
		for n, client := range []models.LocketClient{s, models.NewLocketClient(s.local)} {
			answer, err := client.AwaitClaim(t.Context(), &models.AwaitClaimRequest{})
			must(t, err)
			synctest.Wait()
			if answer.GetId() != "" || sent != n+1 {
				t.Errorf("the answer is %v, and %d were sent", answer, sent)
			}
		}
	})
}
