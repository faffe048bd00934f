package grpcserver

import (
	"context"
	"log/slog"
	"sync"

	"google.golang.org/grpc/metadata"

	"github.com/locket-service/locket/internal/base/ids"
	"github.com/locket-service/locket/models"
)

// callContext is the context of a call. It knows the id of the call.
type callContext struct {
	context.Context
	once sync.Once
	id   string // set on first use: most calls log nothing
}

type callKey struct{}

// Value implements context.Context.
func (c *callContext) Value(key any) any {
	if key == (callKey{}) {
		return c
	}
	return c.Context.Value(key)
}

// requestID returns the id of the call: the caller's, if that is valid, otherwise a new one. The gateway always sets
// one, because it returns it in a header. A new id of a call over gRPC only connects the lines of the log, and is not
// returned.
func (c *callContext) requestID() string {
	c.once.Do(func() {
		if values := metadata.ValueFromIncomingContext(c.Context, models.RequestIDKey); len(values) > 0 {
			c.id = values[0]
		}
		if !models.ValidRequestID(c.id) {
			c.id = ids.NewRequest()
		}
	})
	return c.id
}

// RequestID returns the id of the call of a context, "" outside of a call.
func RequestID(ctx context.Context) string {
	if c, ok := ctx.Value(callKey{}).(*callContext); ok {
		return c.requestID()
	}
	return ""
}

// LogRequestID returns a handler that adds the request id to records that are logged with the context of a call.
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
