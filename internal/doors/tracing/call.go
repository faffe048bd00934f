package tracing

import (
	"context"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	otelcodes "go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/locket-service/locket/grpcserver"
)

// Headers are the HTTP headers that carry the trace of a request.
var Headers = propagator.Fields()

// isTraced reports whether calls of a method get spans: only methods of Locket's own service do.
func isTraced(fullMethod string) bool { return strings.HasPrefix(fullMethod, "/models.") }

// Observe is a grpcserver.Observer that makes the spans of calls over REST, which the StatsHandler does not see.
func (t *Tracing) Observe(ctx context.Context, call *grpcserver.Call) (context.Context, func(error)) {
	if trace.SpanContextFromContext(ctx).IsValid() || !isTraced(call.FullMethod) {
		return ctx, func(error) {}
	}
	headers := make(propagation.MapCarrier)
	for _, name := range Headers {
		if values := metadata.ValueFromIncomingContext(ctx, name); len(values) > 0 {
			headers[name] = values[0]
		}
	}
	service, method, _ := strings.Cut(strings.TrimPrefix(call.FullMethod, "/"), "/")
	ctx, span := t.tracer.Start(propagator.Extract(ctx, headers), service+"/"+method, trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(
		attribute.String("rpc.system", "grpc"), attribute.String("rpc.service", service), attribute.String("rpc.method", method), attribute.String("locket.api", "rest"),
	))
	return ctx, func(err error) {
		code := status.Code(err)
		span.SetAttributes(attribute.Int("rpc.grpc.status_code", int(code)))
		if code == codes.Internal || code == codes.Unknown || code == codes.Unavailable {
			span.SetStatus(otelcodes.Error, status.Convert(err).Message())
		}
		span.End()
	}
}

// maxTraceparent is the maximum number of bytes of a traceparent that is read. Version 00 has 55 characters.
const maxTraceparent = 256

// Command returns the context of a command of a session: in the trace of a traceparent, or unchanged if that is
// invalid.
func (t *Tracing) Command(ctx context.Context, traceparent string) context.Context {
	if traceparent == "" || len(traceparent) > maxTraceparent {
		return ctx
	}
	return propagator.Extract(ctx, propagation.MapCarrier{"traceparent": traceparent})
}
