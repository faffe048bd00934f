// Package locktrace makes OpenTelemetry spans of package lock, with the global tracer provider. Package lock itself
// does not import OpenTelemetry.
//
// Requests carry their trace context (W3C Trace Context), so the servers' spans belong to the same trace. That holds
// for calls on a connection, for waits of runners that use one, and for commands of a session that wait.
package locktrace

import (
	"context"
	"errors"

	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/stats"

	"github.com/locket-service/locket/lock"
	"github.com/locket-service/locket/lock/conn"
	"github.com/locket-service/locket/models"
)

// WithTraces is an option of lock.Dial and lock.WithDial. Each call becomes a span, except Session and Watch, which
// last as long as the program.
func WithTraces() conn.Option {
	return conn.WithDialOptions(grpc.WithStatsHandler(otelgrpc.NewClientHandler(
		otelgrpc.WithPropagators(propagation.TraceContext{}), otelgrpc.WithMeterProvider(noop.NewMeterProvider()),
		otelgrpc.WithFilter(func(info *stats.RPCTagInfo) bool {
			return info.FullMethodName != models.Locket_Session_FullMethodName && info.FullMethodName != models.Locket_Watch_FullMethodName
		}),
	)))
}

// Observer returns the observer to pass to lock.WithObserver. It makes a span locket.client.wait for each wait, and a
// span locket.client.hold from the grant to the release or the loss, linked to the wait's span. Both are in the trace
// of Acquire's context; a runner has no context, so it gets two traces. Failed waits and losses are recorded as errors.
func Observer() lock.Observer { return lock.Observer{WaitBegins: waitBegins, Traceparent: traceparent} }

func traceparent(ctx context.Context) string {
	header := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, header)
	return header.Get("traceparent")
}

func waitBegins(caller context.Context, resource, owner string) (context.Context, func(*lock.Hold, error)) {
	tracer := otel.Tracer("github.com/locket-service/locket/lock/locktrace")
	about := trace.WithAttributes(attribute.String("locket.resource", resource), attribute.String("locket.owner", owner))
	ctx, wait := tracer.Start(caller, "locket.client.wait", about)
	return ctx, func(hold *lock.Hold, err error) {
		if err != nil {
			fail(wait, err)
			wait.End()
			return
		}
		token := attribute.Int64("locket.token", int64(hold.Token()))
		wait.SetAttributes(token)
		wait.End()
		link := trace.Link{SpanContext: wait.SpanContext(), Attributes: []attribute.KeyValue{attribute.String("locket.link", "wait")}}
		_, held := tracer.Start(caller, "locket.client.hold", about, trace.WithAttributes(token), trace.WithLinks(link))
		context.AfterFunc(hold.Context(), func() {
			if err := hold.Err(); !errors.Is(err, lock.ErrReleased) {
				fail(held, err)
			}
			held.End()
		})
	}
}

func fail(span trace.Span, err error) { span.SetStatus(codes.Error, err.Error()) }
