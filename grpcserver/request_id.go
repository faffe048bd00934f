package grpcserver

import (
	"context"
	"log/slog"

	"google.golang.org/grpc/metadata"

	"github.com/locket-service/locket/internal/ids"
	"github.com/locket-service/locket/models"
)

type requestIDKey struct{}

// withRequestID sets the id of a call: the caller's, if that is valid, otherwise a new one. The gateway always sets
// one, because it returns it in a header. A new id of a call over gRPC only connects the lines of the log, and is not
// returned.
func withRequestID(ctx context.Context) context.Context {
	var id string
	if values := metadata.ValueFromIncomingContext(ctx, models.RequestIDKey); len(values) > 0 {
		id = values[0]
	}
	if !models.ValidRequestID(id) {
		id = ids.NewRequest()
	}
	return context.WithValue(ctx, requestIDKey{}, id)
}

// RequestID returns the id of the call of a context, "" outside of a call.
func RequestID(ctx context.Context) string {
	id, _ := ctx.Value(requestIDKey{}).(string)
	return id
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
