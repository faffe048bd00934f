package grpcserver

import (
	"context"
	"log/slog"
	"path"
	"runtime/debug"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// RequestIDKey is the metadata key of the request id (Cloud Foundry's clients send it).
const RequestIDKey = "uuid"

// Observer logs and counts the calls, and answers for those that panic.
type Observer struct {
	log       *slog.Logger
	durations *prometheus.HistogramVec
}

// NewObserver returns an observer whose metrics are registered. A process needs one.
func NewObserver(log *slog.Logger, registerer prometheus.Registerer) *Observer {
	o := &Observer{
		log: log,
		durations: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "locket_request_duration_seconds",
			Help:    "Time that requests took, by method and code; its count is the number of requests.",
			Buckets: prometheus.ExponentialBuckets(0.00025, 4, 10),
		}, []string{"method", "code"}),
	}
	registerer.MustRegister(o.durations)
	return o
}

func (o *Observer) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	start := time.Now()
	resp, err := o.recoverUnary(ctx, req, handler)
	o.observe(ctx, info.FullMethod, start, err)
	return resp, err
}

func (o *Observer) stream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	start := time.Now()
	err := handler(srv, stream)
	o.observe(stream.Context(), info.FullMethod, start, err)
	return err
}

func (o *Observer) observe(ctx context.Context, fullMethod string, start time.Time, err error) {
	took := time.Since(start)
	method, code := path.Base(fullMethod), status.Code(err)
	o.durations.WithLabelValues(method, code.String()).Observe(took.Seconds())
	level := levelOf(code)
	if !o.log.Enabled(ctx, level) {
		return
	}
	attrs := []slog.Attr{
		slog.String("method", method), slog.String("code", code.String()), slog.Duration("duration", took),
	}
	if err != nil {
		attrs = append(attrs, slog.String("message", status.Convert(err).Message()))
	}
	o.log.LogAttrs(ctx, level, "request", attrs...)
}

// levelOf is the level at which a request is logged: what is a caller's own affair is
// logged for who looks for it only.
func levelOf(code codes.Code) slog.Level {
	switch code {
	case codes.Internal, codes.Unknown, codes.DataLoss:
		return slog.LevelError
	case codes.Unavailable, codes.DeadlineExceeded, codes.ResourceExhausted:
		return slog.LevelWarn
	default:
		return slog.LevelDebug
	}
}

// RequestID returns the id that the caller gave to its request, "" when it gave none.
func RequestID(ctx context.Context) string {
	if values := metadata.ValueFromIncomingContext(ctx, RequestIDKey); len(values) > 0 {
		return values[0]
	}
	return ""
}

// LogRequestID returns a handler that adds the request id to what is logged with the
// context of a request.
func LogRequestID(next slog.Handler) slog.Handler { return requestIDHandler{next} }

type requestIDHandler struct{ slog.Handler }

func (h requestIDHandler) Handle(ctx context.Context, record slog.Record) error {
	if id := RequestID(ctx); id != "" {
		record.AddAttrs(slog.String("request_id", id))
	}
	return h.Handler.Handle(ctx, record)
}

func (h requestIDHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return requestIDHandler{h.Handler.WithAttrs(attrs)}
}

func (h requestIDHandler) WithGroup(name string) slog.Handler {
	return requestIDHandler{h.Handler.WithGroup(name)}
}

// A panic in a handler is a bug: its caller gets Internal, the log the whole of it, and
// everybody else is served on.
func (o *Observer) recoverUnary(ctx context.Context, req any, handler grpc.UnaryHandler) (resp any, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = recovered(ctx, o.log, p)
		}
	}()
	return handler(ctx, req)
}

func recoverStream(log *slog.Logger) grpc.StreamServerInterceptor {
	return func(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) (err error) {
		defer func() {
			if p := recover(); p != nil {
				err = recovered(stream.Context(), log, p)
			}
		}()
		return handler(srv, stream)
	}
}

func recovered(ctx context.Context, log *slog.Logger, p any) error {
	log.ErrorContext(ctx, "panic", "panic", p, "stack", string(debug.Stack()))
	return status.Error(codes.Internal, "internal error")
}
