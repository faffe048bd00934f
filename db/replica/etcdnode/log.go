package etcdnode

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// newLogger has etcd log to ours, at lower levels: what it says about an ordinary start is for debugging here.
func newLogger(o Options, reason *ended) *zap.Logger {
	end := &ending{o, reason}
	return zap.New(&core{log: o.Log, reason: reason}, zap.WithFatalHook(end), zap.WithPanicHook(end))
}

const (
	// messageEnd comes with the reason when etcd ends by itself. Only the log has the reason.
	messageEnd = "server error"
	// messageSinglePort is a warning about many clients.
	messageSinglePort = "Running http and grpc server on single port. This is not recommended for production."
)

// ended holds the reason why etcd has ended.
type ended struct {
	atomic.Pointer[string]
	// stopping says that it was stopped, or cannot go on: what fails then is no news, and some of it is repeated without a pause.
	stopping atomic.Bool
}

// core is a zapcore.Core that writes to a slog.Logger.
type core struct {
	log    *slog.Logger
	reason *ended
	fields []zapcore.Field
}

func levelOf(l zapcore.Level) slog.Level {
	switch {
	case l <= zapcore.InfoLevel:
		return slog.LevelDebug
	case l == zapcore.WarnLevel:
		return slog.LevelInfo
	case l == zapcore.ErrorLevel:
		return slog.LevelWarn
	}
	return slog.LevelError
}

// Enabled implements zapcore.Core.
func (c *core) Enabled(l zapcore.Level) bool { return c.log.Enabled(context.Background(), levelOf(l)) }

// With implements zapcore.Core.
func (c *core) With(fields []zapcore.Field) zapcore.Core {
	return &core{c.log, c.reason, append(c.fields[:len(c.fields):len(c.fields)], fields...)}
}

// Check implements zapcore.Core.
func (c *core) Check(e zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	quiet := e.Message == messageSinglePort || c.reason.stopping.Load() && e.Level <= zapcore.ErrorLevel
	if c.Enabled(e.Level) && !quiet || e.Message == messageEnd {
		return checked.AddCore(e, c)
	}
	return checked
}

// Write implements zapcore.Core.
func (c *core) Write(e zapcore.Entry, fields []zapcore.Field) error {
	if text := errorOf(fields); e.Message == messageEnd {
		c.reason.Store(&text)
	}
	c.log.LogAttrs(context.Background(), levelOf(e.Level), "etcd: "+e.Message, attributes(c.fields, fields)...)
	return nil
}

func attributes(all ...[]zapcore.Field) (attrs []slog.Attr) {
	encoder := zapcore.NewMapObjectEncoder()
	for _, fields := range all {
		for _, field := range fields {
			field.AddTo(encoder)
			if value, there := encoder.Fields[field.Key]; there {
				attrs = append(attrs, slog.Any(field.Key, value))
			}
		}
	}
	return attrs
}

// errorOf returns the text of the error among some fields.
func errorOf(fields []zapcore.Field) string {
	for _, attr := range attributes(fields) {
		if attr.Key == "error" {
			return attr.Value.String()
		}
	}
	return ""
}

// Sync implements zapcore.Core.
func (c *core) Sync() error { return nil }

// ending ends the process when etcd cannot go on: it has said why.
type ending struct {
	Options
	reason *ended
}

// ErrFatal says that etcd cannot go on, because of its disk or its data.
var ErrFatal = errors.New("etcd cannot go on")

// OnWrite implements zapcore.CheckWriteHook.
func (e *ending) OnWrite(entry *zapcore.CheckedEntry, fields []zapcore.Field) {
	e.reason.stopping.Store(true)
	reason := entry.Message
	if text := errorOf(fields); text != "" {
		reason += ": " + text
	}
	err := fmt.Errorf("%w: %s", ErrFatal, reason)
	switch {
	case strings.Contains(reason, "failed to find local ID in cluster members"): // it has seen its removal before etcd's main loop has
		err = fmt.Errorf("%w (%w)", removed(e.Name, e.Folder, "HOST:PORT"), err)
	case strings.Contains(reason, "is out of range"): // Raft: the leader knows that this node had more
		err = fmt.Errorf("%w: %w: %s was taken back to an older state, or has lost what was written. %s (%s)", ErrRefused, ErrFatal, e.Folder, replaceBy(e.Name), reason)
	}
	e.Exit(err)
}
