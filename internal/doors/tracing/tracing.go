// Package tracing sends traces by OpenTelemetry, if the standard environment variables (OTEL_*) ask for it: spans of
// calls, of their transactions, and of waits, with links to the claims that were waited for.
package tracing

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/time/rate"
	"google.golang.org/grpc/stats"
)

// flushTimeout limits how long Run waits at its end for the last spans to be sent.
const flushTimeout = 5 * time.Second

// Tracing makes and sends spans.
type Tracing struct {
	provider *sdktrace.TracerProvider
	tracer   trace.Tracer

	mu   sync.Mutex
	made claims
}

// New returns a Tracing as the environment configures it, nil if it configures none: without OTEL_TRACES_EXPORTER=otlp
// and without an OTLP endpoint, or with OTEL_SDK_DISABLED=true or OTEL_TRACES_EXPORTER=none. No call waits for the
// exporter: when its queue is full, spans are dropped. Errors of the exporter are logged.
func New(ctx context.Context, getenv func(string) string, log *slog.Logger) (*Tracing, error) {
	endpoint := cmp.Or(getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"), getenv("OTEL_EXPORTER_OTLP_ENDPOINT"))
	switch exporter := getenv("OTEL_TRACES_EXPORTER"); {
	case getenv("OTEL_SDK_DISABLED") == "true", exporter == "none", exporter == "" && endpoint == "":
		return nil, nil
	case exporter != "" && exporter != "otlp":
		return nil, fmt.Errorf("OTEL_TRACES_EXPORTER: %q: must be otlp or none", exporter)
	}
	exporter, err := newExporter(ctx, cmp.Or(getenv("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"), getenv("OTEL_EXPORTER_OTLP_PROTOCOL"), "http/protobuf"))
	if err != nil {
		return nil, err
	}
	about, err := resource.New(ctx, resource.WithAttributes(attribute.String("service.name", "locket")), resource.WithTelemetrySDK(), resource.WithHost(), resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	otel.SetErrorHandler(logErrors(log))
	return newTracing(sdktrace.WithBatcher(exporter), sdktrace.WithResource(about)), nil
}

// logErrors returns a handler of errors that logs them: the first few, then one in 10 seconds, because each 512 spans may cause one.
func logErrors(log *slog.Logger) otel.ErrorHandler {
	bound := rate.Sometimes{First: 5, Interval: 10 * time.Second}
	return otel.ErrorHandlerFunc(func(err error) {
		bound.Do(func() { log.Warn("traces cannot be sent", "error", err) })
	})
}

func newTracing(options ...sdktrace.TracerProviderOption) *Tracing {
	provider := sdktrace.NewTracerProvider(options...)
	return &Tracing{provider: provider, tracer: provider.Tracer("github.com/locket-service/locket"), made: newClaims(maxClaims)}
}

func newExporter(ctx context.Context, protocol string) (*otlptrace.Exporter, error) {
	switch protocol {
	case "grpc":
		return otlptracegrpc.New(ctx)
	case "http/protobuf":
		return otlptracehttp.New(ctx)
	default:
		return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_PROTOCOL: %q: must be grpc or http/protobuf", protocol)
	}
}

// propagator reads the trace of a caller (W3C Trace Context).
var propagator = propagation.TraceContext{}

// StatsHandler makes the spans of the calls at a gRPC server, except health checks.
func (t *Tracing) StatsHandler() stats.Handler {
	return otelgrpc.NewServerHandler(
		otelgrpc.WithTracerProvider(t.provider), otelgrpc.WithMeterProvider(noop.NewMeterProvider()), otelgrpc.WithPropagators(propagator),
		otelgrpc.WithFilter(func(info *stats.RPCTagInfo) bool { return isTraced(info.FullMethodName) }),
	)
}

// Run implements ifrit.Runner. When it ends, it sends the last spans.
func (t *Tracing) Run(signals <-chan os.Signal, ready chan<- struct{}) error {
	close(ready)
	<-signals
	ctx, cancel := context.WithTimeout(context.Background(), flushTimeout)
	defer cancel()
	if err := t.provider.Shutdown(ctx); err != nil {
		otel.Handle(err)
	}
	return nil
}

// Log returns a handler that adds trace and span ids to lines logged with the context of a traced call.
func Log(next slog.Handler) slog.Handler { return handler{next} }

type handler struct{ slog.Handler }

func (h handler) Handle(ctx context.Context, record slog.Record) error {
	if span := trace.SpanContextFromContext(ctx); span.IsValid() {
		record.AddAttrs(slog.String("trace_id", span.TraceID().String()), slog.String("span_id", span.SpanID().String()))
	}
	return h.Handler.Handle(ctx, record)
}

func (h handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return handler{h.Handler.WithAttrs(attrs)}
}

func (h handler) WithGroup(name string) slog.Handler { return handler{h.Handler.WithGroup(name)} }
