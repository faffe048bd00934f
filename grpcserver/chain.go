package grpcserver

import (
	"context"
	"log/slog"
	"runtime/debug"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
)

// Chain is what every call passes on its way to its handler, through whichever door it comes:
// Options give it to the gRPC server, NewLocal to the gateway. A process needs one. Each call,
// unary or stream, passes each link once, in this order:
//
//  1. The request id: the caller's, or a new one. See RequestID.
//  2. Observation: the log, the metrics.
//  3. The end of streams, when the server shuts down.
//  4. Recovery: a panic in a guard or a handler is logged with its stack, and its caller gets
//     Internal. The process serves on.
//  5. The guards, in the order in which NewChain got them.
//
// Every method of every service passes all of it, reflection too, with one exception: the
// health service (grpc.health.v1.Health) passes no guard, so that a load balancer needs no
// identity. These never become a call, and so pass nothing: what gRPC refuses by itself (unknown
// methods, messages larger than MaxRequest), what the gateway refuses by itself (paths that are
// not served, parameters that are not valid), and the pages of the gateway that are no RPC
// (/healthz, /readyz, /metrics, /docs, /openapi.json).
type Chain struct {
	log       *slog.Logger
	observers []Observer
	guards    []Guard
	// healthStreams is how many watches of the health service there are.
	healthStreams atomic.Int64
	// ending is done when the streams must end.
	ending context.Context
	end    context.CancelFunc
}

// Guard decides about a call before its handler runs. It refuses the call when it returns an
// error without calling next: a gRPC status, which over REST becomes an HTTP status. Otherwise
// it calls next once, with its context or one made from it, and returns what next returned.
//
// What it may rely on is the same for gRPC and for REST: RequestID, the caller's address and
// TLS state (peer.FromContext; AuthInfo is a credentials.TLSInfo, whose State is to be used, or
// nil without TLS), the deadline. The incoming metadata of a call over REST is the request id,
// the headers that the gateway passes on (credentials), and what the client claims in X-Forwarded
// headers.
type Guard func(ctx context.Context, call *Call, next func(context.Context) error) error

// Call is a call on its way through the chain.
type Call struct {
	// FullMethod is like "/models.Locket/Lock".
	FullMethod string
	// Stream is whether it is a stream.
	Stream bool
	// Identity is the name of the caller, for the log, once a guard knows it.
	Identity string
	// Credential is the id of the credential that was shown, for the audit log, "" where there is none.
	Credential string
	// Refused is what is wrong with the caller's credential, for the audit log, once a guard knows it.
	Refused string
	// Response is what the handler of a unary call has answered, once next has returned.
	Response any
	// conceal makes of a response what the caller gets; nil: all of it.
	conceal func(response any) any
	// end ends a stream; nil for a unary call.
	end     context.CancelCauseFunc
	checks  []func(message any) error
	checked []func(message any, err error)
}

// Check adds a check of every message that the caller sends. It is for guards, before they call
// next. When a check returns an error, the handler of a unary call does not run, and that of a
// stream gets the error in place of the message.
func (c *Call) Check(check func(message any) error) { c.checks = append(c.checks, check) }

// Checked calls a function with every message that the caller sends and what came of its checks. It
// is for guards, before they call next.
func (c *Call) Checked(hear func(message any, err error)) { c.checked = append(c.checked, hear) }

// Conceal has the caller of a unary call get what a function makes of the response. Response stays
// whole, for guards. It is for guards, before they call next.
func (c *Call) Conceal(conceal func(response any) any) { c.conceal = conceal }

// Streams reports whether the call is a stream, which may last.
func (c *Call) Streams() bool { return c.end != nil }

// End ends a stream with an error, whatever its handler does. Later calls do nothing.
func (c *Call) End(err error) { c.end(err) }

func (c *Call) check(message any) (err error) {
	for _, check := range c.checks {
		if err = check(message); err != nil {
			break
		}
	}
	for _, hear := range c.checked {
		hear(message, err)
	}
	return err
}

// NewChain returns a chain whose metrics are registered.
func NewChain(log *slog.Logger, registerer prometheus.Registerer, guards ...Guard) *Chain {
	ending, end := context.WithCancel(context.Background())
	return &Chain{log: log, observers: []Observer{newObserver(log, registerer).observe}, guards: guards, ending: ending, end: end}
}

// Observer is called for each call, after the request id is known and before anything else, also for calls that are refused
// later. The rest of the chain and the handler get the context that it returns. The function that it returns is called at the
// end of the call, with its status; the Call then has what the guards know of the caller.
type Observer func(ctx context.Context, call *Call) (context.Context, func(err error))

// Observe adds an observer, which stands inside of those before it. It is to be called before calls come.
func (c *Chain) Observe(o Observer) { c.observers = append(c.observers, o) }

// ObserveFirst adds an observer that stands around all others, so that the log's lines have what it adds to the context.
func (c *Chain) ObserveFirst(o Observer) { c.observers = append([]Observer{o}, c.observers...) }

// unary implements grpc.UnaryServerInterceptor.
func (c *Chain) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (resp any, err error) {
	arrived(ctx)
	call := &Call{FullMethod: info.FullMethod}
	err = c.pass(ctx, call, func(ctx context.Context) error {
		return c.guarded(ctx, call, func(ctx context.Context) error {
			err := call.check(req)
			if err == nil {
				resp, err = handler(ctx, req)
				call.Response = resp
			}
			return err
		})
	})
	if err == nil && resp == nil {
		err = status.Error(codes.Internal, "no guard refused the call, and no handler answered it")
	}
	if err == nil && call.conceal != nil {
		resp = call.conceal(resp)
	}
	return resp, err
}

// stream implements grpc.StreamServerInterceptor.
func (c *Chain) stream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	call := &Call{FullMethod: info.FullMethod, Stream: true}
	return c.pass(stream.Context(), call, func(ctx context.Context) error {
		return c.untilEnd(ctx, call, func(ctx context.Context) error {
			if isHealth(call) {
				return c.watchHealth(ctx, func(ctx context.Context) error {
					return c.guarded(ctx, call, func(ctx context.Context) error {
						return handler(srv, &passingStream{ServerStream: stream, ctx: ctx, call: call, first: func() { arrived(ctx) }})
					})
				})
			}
			return c.guarded(ctx, call, func(ctx context.Context) error {
				arrived(ctx)
				return handler(srv, &passingStream{ServerStream: stream, ctx: ctx, call: call})
			})
		})
	})
}

// Page has a page, which is no RPC, pass the chain like a unary call without a message; serve writes it.
// The incoming metadata and the peer of the context say who asks.
func (c *Chain) Page(ctx context.Context, name string, serve func()) error {
	_, err := c.unary(ctx, nil, &grpc.UnaryServerInfo{FullMethod: name}, func(context.Context, any) (any, error) {
		serve()
		return name, nil
	})
	return err
}

// pass is what surrounds all the rest: request id and observation.
func (c *Chain) pass(ctx context.Context, call *Call, rest func(context.Context) error) error {
	ctx = withRequestID(ctx)
	ended := make([]func(error), len(c.observers))
	for i, observe := range c.observers {
		ctx, ended[i] = observe(ctx, call)
	}
	err := rest(ctx)
	if _, ok := status.FromError(err); !ok {
		err = status.FromContextError(err).Err()
	}
	for _, end := range slices.Backward(ended) {
		end(err)
	}
	return err
}

var healthMethods = "/" + grpc_health_v1.Health_ServiceDesc.ServiceName + "/"

func isHealth(call *Call) bool { return strings.HasPrefix(call.FullMethod, healthMethods) }

// guarded runs the guards and the handler. A panic in them is a bug: its caller gets Internal,
// the log the whole of it, and everybody else is served on.
func (c *Chain) guarded(ctx context.Context, call *Call, handler func(context.Context) error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			c.log.ErrorContext(ctx, "panic", "method", call.FullMethod, "panic", p, "stack", string(debug.Stack()))
			err = status.Error(codes.Internal, "internal error")
		}
	}()
	if isHealth(call) {
		return handler(ctx)
	}
	return through(ctx, c.guards, call, handler)
}

func through(ctx context.Context, guards []Guard, call *Call, handler func(context.Context) error) error {
	if len(guards) == 0 {
		return handler(ctx)
	}
	return guards[0](ctx, call, func(ctx context.Context) error { return through(ctx, guards[1:], call, handler) })
}

// lastWord is how long a health watch has to send NOT_SERVING.
const lastWord = 100 * time.Millisecond

// endStreams ends the streaming calls (health watches, reflection): they would go on for ever.
func (c *Chain) endStreams() { time.AfterFunc(lastWord, c.end) }

// untilEnd runs the rest of a stream beside itself, since a handler that is blocked in RecvMsg
// ends when the interceptor returns, and not before. So recovery is a part of the rest.
func (c *Chain) untilEnd(ctx context.Context, call *Call, rest func(context.Context) error) error {
	ctx, call.end = context.WithCancelCause(ctx)
	defer call.end(nil)
	defer context.AfterFunc(c.ending, func() { call.end(nil) })()
	done := make(chan error, 1)
	go func() { done <- rest(ctx) }()
	select {
	case err := <-done:
		if ctx.Err() == nil {
			return err
		}
		if cause := context.Cause(ctx); status.Code(cause) != codes.Unknown {
			return cause // of End; the handler has only seen that it has to end
		}
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// passingStream is a stream as its handler sees it behind the chain.
type passingStream struct {
	grpc.ServerStream
	ctx   context.Context
	call  *Call
	first func() // called when a message has come, unless it is nil
}

// Context implements grpc.ServerStream.
func (s *passingStream) Context() context.Context { return s.ctx }

// RecvMsg implements grpc.ServerStream.
func (s *passingStream) RecvMsg(message any) error {
	if err := s.ServerStream.RecvMsg(message); err != nil {
		return err
	}
	if s.first != nil {
		s.first()
	}
	if m, ok := message.(interface{ Decoded() any }); ok { // it stands around the caller's
		message = m.Decoded()
	}
	return s.call.check(message)
}
