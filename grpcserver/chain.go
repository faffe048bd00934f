package grpcserver

import (
	"cmp"
	"context"
	"log/slog"
	"runtime/debug"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/models/methods"
)

// Chain is the chain of interceptors that every call passes on its way to its handler: Options adds it to the gRPC
// server, NewLocal to the gateway's calls. A process needs one. Each call, unary or stream, passes each step once, in
// this order:
//
//  1. The request id: the caller's, or a new one. See RequestID.
//  2. Observation: the log, the metrics.
//  3. The end of streams, when the server shuts down.
//  4. Recovery: a panic in a guard or a handler is logged with its stack, and its caller gets
//     Internal. The process keeps running.
//  5. The guards, in the order of NewChain's arguments.
//
// Every method of every service passes all steps, reflection too, with one exception: the health service
// (grpc.health.v1.Health) passes no guard, so that a load balancer needs no identity. Requests that never become calls
// do not pass the chain: requests that gRPC refuses (unknown methods, messages larger than MaxRequest) or the gateway
// refuses (unknown paths, invalid parameters), and pages of the gateway that are not RPCs (/healthz,
// /readyz, /docs, /openapi.json; /metrics passes it by Page).
type Chain struct {
	log       *slog.Logger
	panics    *rate.Sometimes // limits which are logged
	observers []Observer
	guards    []Guard
	// healthStreams counts the watches of the health service.
	healthStreams atomic.Int64
	// ending is done when the streams must end, and lastEnding when the sessions' streams must end too.
	ending, lastEnding context.Context
	end, endLast       context.CancelFunc
	// sent is the function of OnSent, nil for none.
	sent func(message any)
}

// Guard decides about a call before its handler runs. To refuse the call it returns an error, a gRPC status, without
// calling next; over REST the status becomes an HTTP status. Otherwise it calls next once, with its context or one
// derived from it, and returns the error of next.
//
// A guard gets the same for gRPC and for REST: RequestID, the caller's address and TLS state (peer.FromContext;
// AuthInfo is a credentials.TLSInfo with its State, or nil without TLS), and the deadline. The incoming
// metadata of a call over REST are the request id, the headers that the gateway passes on (credentials), and the
// client's own X-Forwarded headers.
type Guard func(ctx context.Context, call *Call, next func(context.Context) error) error

// Call is a call that passes the chain.
type Call struct {
	// FullMethod is like "/models.Locket/Lock".
	FullMethod string
	// Stream reports whether the call is a stream, which may last.
	Stream bool
	// Credential is the id of the caller's credential, for the audit log, "" if there is none.
	Credential string
	// Refused is why the caller's credential is invalid, for the audit log, once a guard has set it.
	Refused string
	// Response is the response of the handler of a unary call, once next has returned.
	Response any
	// identity is set by a guard, which may still run when a stream has ended.
	identity atomic.Pointer[string]
	// conceal returns the part of a response that the caller gets; nil: all of it.
	conceal func(response any) any
	// end ends a stream; nil for a unary call.
	end     context.CancelCauseFunc
	checks  []func(message any) error
	checked []func(message any, err error)
}

// Identify sets the name of the caller.
func (c *Call) Identify(name string) { c.identity.Store(&name) }

// Identity returns the name of the caller, for the log, "" before a guard has set it.
func (c *Call) Identity() string {
	if name := c.identity.Load(); name != nil {
		return *name
	}
	return ""
}

// Check adds a check of every message from the caller. Guards may call it before next. If a check returns an error, the
// handler of a unary call does not run, and the handler of a stream receives the error in place of the message.
func (c *Call) Check(check func(message any) error) { c.checks = append(c.checks, check) }

// Checked adds a function that is called with every message from the caller and the result of its checks. Guards may
// call it before next.
func (c *Call) Checked(hear func(message any, err error)) { c.checked = append(c.checked, hear) }

// Conceal sets a function that returns the part of a unary response that the caller gets. Response stays complete, for
// guards. Guards may call it before next.
func (c *Call) Conceal(conceal func(response any) any) { c.conceal = conceal }

// End ends a stream with an error, without waiting for its handler. Only the first call counts.
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

// NewChain returns a chain, and registers its metrics.
func NewChain(log *slog.Logger, registerer prometheus.Registerer, guards ...Guard) *Chain {
	c := &Chain{log: log, panics: newBound(), observers: []Observer{newObserver(log, registerer).observe}, guards: guards}
	c.ending, c.end = context.WithCancel(context.Background())
	c.lastEnding, c.endLast = context.WithCancel(context.Background())
	return c
}

// Observer is called for each call, after the request id is set and before anything else, including calls that are
// refused later. The rest of the chain and the handler get the context that it returns. The function that it returns is
// called when the call ends, with its status. By then the guards have set their fields of Call.
type Observer func(ctx context.Context, call *Call) (context.Context, func(err error))

// Observe adds an observer, which is called after the observers added before. It must be called before the first
// call.
func (c *Chain) Observe(o Observer) { c.observers = append(c.observers, o) }

// OnSent sets a function that is called with each message to a caller after its last use: it was encoded, or copied
// for a caller in this process. It must be called before the first call.
func (c *Chain) OnSent(sent func(message any)) { c.sent = sent }

func (c *Chain) wasSent(message any) {
	if c.sent != nil {
		c.sent(message)
	}
}

// ObserveFirst adds an observer that is called before all others, so that log lines include its additions to the
// context.
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
				late := time.AfterFunc(firstMessage, func() { call.End(errNoMessage) })
				defer late.Stop()
				passing := &passingStream{ServerStream: &unbatched{ServerStream: stream, ctx: ctx}, ctx: ctx, call: call}
				passing.first = func() {
					late.Stop()
					passing.first = nil
				}
				return handler(srv, passing)
			})
		})
	})
}

// firstMessage is how long the first message of a stream may take. Until then the stream has no place in a limit.
const firstMessage = 10 * time.Second

var errNoMessage = status.Errorf(codes.DeadlineExceeded, "the stream has sent no message within %s", firstMessage)

// Page makes a page, which is not an RPC, pass the chain like a unary call without a message; serve writes the page.
// The context has the peer and the incoming metadata of the request.
func (c *Chain) Page(ctx context.Context, name string, serve func()) error {
	_, err := c.unary(ctx, nil, &grpc.UnaryServerInfo{FullMethod: name}, func(context.Context, any) (any, error) {
		serve()
		return name, nil
	})
	return err
}

// pass runs the steps around the others: request id and observation.
func (c *Chain) pass(ctx context.Context, call *Call, rest func(context.Context) error) error {
	ctx = &callContext{Context: ctx}
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

// guarded runs the guards and the handler. A panic in them is a bug: its caller gets Internal, and the panic is logged
// with its stack.
func (c *Chain) guarded(ctx context.Context, call *Call, handler func(context.Context) error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			stack := string(debug.Stack())
			c.panics.Do(func() {
				c.log.ErrorContext(ctx, "panic", "method", call.FullMethod, "panic", p, "stack", stack)
			})
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

// lastWord is how long a health watch has to send NOT_SERVING, and any other stream to end by itself. lastEvents is
// the same for sessions, which may still have answers and events to send; it is longer than a handler takes.
const (
	lastWord   = 100 * time.Millisecond
	lastEvents = 1200 * time.Millisecond
)

// errEnding ends the streams still open when the server shuts down: streams that never end by themselves (health
// watches, reflection), and streams whose handler is busy, such as a watch that sends its snapshot.
var errEnding = models.WithInfo(status.New(codes.Unavailable, "the server is shutting down; ask again"), models.ReasonShuttingDown, nil)

// EndStreams ends the streaming calls with errEnding, after their lastWord. A Server calls it when it begins to shut down.
func (c *Chain) EndStreams() {
	time.AfterFunc(lastWord, c.end)
	time.AfterFunc(lastEvents, c.endLast)
}

// endingOf returns the context that is done when a stream must end.
func (c *Chain) endingOf(call *Call) context.Context {
	if method, _ := methods.Of(call.FullMethod); method.Lasts == methods.Session {
		return c.lastEnding
	}
	return c.ending
}

// untilEnd runs the rest of a stream on another goroutine, because a handler that is blocked in RecvMsg only returns
// after the interceptor. So the rest must include the recovery.
func (c *Chain) untilEnd(ctx context.Context, call *Call, rest func(context.Context) error) error {
	ctx, call.end = context.WithCancelCause(ctx)
	defer call.end(nil)
	defer context.AfterFunc(c.endingOf(call), func() { call.end(errEnding) })()
	done := make(chan error, 1)
	go func() { done <- rest(ctx) }()
	select {
	case err := <-done:
		if ctx.Err() == nil {
			return err
		}
		if cause := context.Cause(ctx); status.Code(cause) != codes.Unknown {
			return cause // from End; the handler only knows that it has to end
		}
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// passingStream is the stream that a handler gets from the chain.
type passingStream struct {
	grpc.ServerStream
	ctx   context.Context
	call  *Call
	first func() // called when a message has arrived, or the client sends none; may be nil
}

// Context implements grpc.ServerStream.
func (s *passingStream) Context() context.Context { return s.ctx }

func (s *passingStream) RecvMsg(message any) error {
	err := s.ServerStream.RecvMsg(message)
	if s.first != nil {
		s.first()
	}
	if err != nil {
		return err
	}
	return s.call.check(decoded(message))
}

// decoded returns the caller's message, without the wrapper used for decoding.
func decoded(message any) any {
	if m, ok := message.(interface{ Decoded() any }); ok {
		return m.Decoded()
	}
	return message
}

// subject has the resource, the owner and the claim of a unary call, as far as its messages name them.
type subject struct{ resource, owner, claim string }

// add adds the names in a request or a response; it replaces none.
func (s *subject) add(message any) {
	said := subject{}
	switch m := message.(type) {
	case interface{ GetResource() *models.Resource }: // the RPCs of locks
		said = subject{resource: m.GetResource().GetKey(), owner: m.GetResource().GetOwner()}
	case *models.FetchRequest:
		said.resource = m.GetKey()
	case interface {
		GetResource() string
		GetOwner() string
		GetId() string
	}:
		said = subject{m.GetResource(), m.GetOwner(), m.GetId()}
	case interface {
		GetResource() string
		GetOwner() string
	}:
		said = subject{resource: m.GetResource(), owner: m.GetOwner()}
	case interface{ GetResource() string }:
		said.resource = m.GetResource()
	case *models.GetClaimRequest, *models.UpdateClaimRequest, *models.AwaitClaimRequest, *models.EndClaimRequest:
		said.claim = m.(interface{ GetId() string }).GetId()
	}
	s.resource, s.owner, s.claim = cmp.Or(s.resource, said.resource), cmp.Or(s.owner, said.owner), cmp.Or(s.claim, said.claim)
}

// maxNamed is how many bytes of a name are logged: the maximum length of a valid one.
const maxNamed = 1024

func (s *subject) attrs() (attrs []slog.Attr) {
	for _, a := range []struct{ name, value string }{{"resource", s.resource}, {"owner", s.owner}, {"claim", s.claim}} {
		if a.value != "" {
			attrs = append(attrs, slog.String(a.name, a.value[:min(len(a.value), maxNamed)])) // one that is too long may be in a refused request
		}
	}
	return attrs
}
