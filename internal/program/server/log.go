package server

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"

	"github.com/locket-service/locket/grpcserver"
	"github.com/locket-service/locket/internal/doors/tracing"
)

// The formats of the log that Cloud Foundry's Locket has: timestamps as seconds, or in RFC 3339.
const (
	formatLager        = "lager"
	formatLagerRFC3339 = "lager-rfc3339"
)

// openLog returns the log of a configuration, and what writes its lines. It goes to standard error; in the formats of Cloud Foundry it goes
// to out.
func openLog(c Config, out io.Writer) (*slog.Logger, *logWriter, error) {
	to := out
	if !c.isLager() {
		to = os.Stderr
	}
	lines := newLogWriter(to)
	log, err := newLogger(c, lines)
	if err == nil {
		lines.report = func(lost int64) { log.Warn("lines of the log were lost: it was not read", "lines", lost) }
	}
	return log, lines, err
}

// newLogger returns the log of a configuration, which goes to to. Its lines have the id of the request.
func newLogger(c Config, to io.Writer) (*slog.Logger, error) {
	handler, err := c.newLogHandler(to)
	if err != nil {
		return nil, err
	}
	return slog.New(grpcserver.LogRequestID(tracing.Log(handler))), nil
}

func (c Config) newLogHandler(to io.Writer) (slog.Handler, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(c.LogLevel)); err != nil {
		return nil, fmt.Errorf("--log-level: %q: must be debug, info, warn or error", c.LogLevel)
	}
	options := &slog.HandlerOptions{Level: level}
	switch c.LogFormat {
	case "text":
		return slog.NewTextHandler(to, options), nil
	case "json":
		return slog.NewJSONHandler(to, options), nil
	case "auto":
		if info, err := os.Stderr.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
			return slog.NewTextHandler(to, options), nil
		}
		return slog.NewJSONHandler(to, options), nil
	case formatLager, formatLagerRFC3339:
		return &lagerHandler{out: to, level: level, rfc3339: c.LogFormat == formatLagerRFC3339}, nil
	default:
		return nil, fmt.Errorf("--log-format: %q: must be text, json, auto, %s or %s", c.LogFormat, formatLager, formatLagerRFC3339)
	}
}

// isLager reports whether the format of the log is one of Cloud Foundry's.
func (c Config) isLager() bool { return strings.HasPrefix(c.LogFormat, formatLager) }
