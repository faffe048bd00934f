package grpcserver

import (
	"context"
	"log/slog"
	"path"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/locket-service/locket/internal/base/metric"
	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/models/methods"
)

// observer logs and counts the calls.
type observer struct {
	log       *slog.Logger
	durations *prometheus.HistogramVec
	// bounds limit the lines in the log while every call is refused or fails. The metric counts all calls.
	bounds map[slog.Level]*rate.Sometimes
}

func newObserver(log *slog.Logger, registerer prometheus.Registerer) *observer {
	o := &observer{
		log: log, bounds: map[slog.Level]*rate.Sometimes{slog.LevelWarn: newBound(), slog.LevelError: newBound()},
		durations: prometheus.NewHistogramVec(metric.Histogram("locket_request_duration_seconds",
			"Time that requests took, by method and code; its count is the number of requests.",
			prometheus.ExponentialBuckets(0.00025, 4, 10)), []string{"method", "code"}),
	}
	registerer.MustRegister(o.durations)
	return o
}

// newBound returns a limit for log lines that any call may cause: the first few, then one a second.
func newBound() *rate.Sometimes { return &rate.Sometimes{First: 100, Interval: time.Second} }

// observe implements Observer.
func (o *observer) observe(ctx context.Context, call *Call) (context.Context, func(error)) {
	start := time.Now()
	if !o.log.Enabled(ctx, slog.LevelDebug) || call.Stream {
		return ctx, func(err error) { o.ended(ctx, call, nil, time.Since(start), err) }
	}
	about := new(subject)
	call.Checked(func(message any, _ error) { about.add(message) })
	return ctx, func(err error) {
		about.add(call.Response)
		o.ended(ctx, call, about, time.Since(start), err)
	}
}

// ended logs and counts a call. about is nil if the log has no lines of level debug.
func (o *observer) ended(ctx context.Context, call *Call, about *subject, took time.Duration, err error) {
	fullMethod := call.FullMethod
	method, code := path.Base(fullMethod), status.Code(err)
	o.durations.WithLabelValues(method, code.String()).Observe(took.Seconds())
	level := levelOf(fullMethod, err)
	if !o.log.Enabled(ctx, level) {
		return
	}
	attrs := []slog.Attr{
		slog.String("method", method), slog.String("code", code.String()), slog.Duration("duration", took),
	}
	if name := call.Identity(); name != "" {
		attrs = append(attrs, slog.String("identity", name))
	}
	if about != nil {
		attrs = append(attrs, about.attrs()...)
	}
	if err != nil {
		attrs = append(attrs, slog.String("message", status.Convert(err).Message()))
	}
	write := func() { o.log.LogAttrs(ctx, level, "request", attrs...) }
	if bound := o.bounds[level]; bound != nil {
		bound.Do(write)
	} else {
		write()
	}
}

// levelOf returns the log level of a request. Client errors are logged at level debug, and
// so is the ordinary end of a wait: the caller's deadline, or the shutdown of the server.
func levelOf(fullMethod string, err error) slog.Level {
	switch status.Code(err) {
	case codes.Internal, codes.Unknown, codes.DataLoss:
		return slog.LevelError
	case codes.DeadlineExceeded:
		if m, _ := methods.Of(fullMethod); m.Lasts == methods.Wait {
			return slog.LevelDebug
		}
		return slog.LevelWarn
	case codes.Unavailable:
		if models.ReasonOf(err) == models.ReasonShuttingDown {
			return slog.LevelDebug
		}
		return slog.LevelWarn
	case codes.ResourceExhausted:
		return slog.LevelWarn
	default:
		return slog.LevelDebug
	}
}
