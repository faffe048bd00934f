package server

import (
	"fmt"
	"log/slog"
	"os"

	"github.com/locket-service/locket/grpcserver"
)

// newLogger returns the log that a configuration asks for. Its lines have the id of the request.
func newLogger(c Config) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(c.LogLevel)); err != nil {
		return nil, fmt.Errorf("--log-level: %w", err)
	}
	options := &slog.HandlerOptions{Level: level}
	var handler slog.Handler
	switch c.LogFormat {
	case "text":
		handler = slog.NewTextHandler(os.Stderr, options)
	case "json":
		handler = slog.NewJSONHandler(os.Stderr, options)
	case "auto":
		handler = slog.NewJSONHandler(os.Stderr, options)
		if info, err := os.Stderr.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
			handler = slog.NewTextHandler(os.Stderr, options)
		}
	default:
		return nil, fmt.Errorf("--log-format: %q: must be text, json or auto", c.LogFormat)
	}
	return slog.New(grpcserver.LogRequestID(handler)), nil
}
