package server

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/locket-service/locket/handlers"
)

// lagerSource is the source of the lines; their messages begin with it.
const lagerSource = "locket"

// lagerHandler writes lines in the format of lager (code.cloudfoundry.org/lager), the log of Cloud Foundry's
// components, so that tools for the log of its Locket read ours. Each line is a JSON object with timestamp, source,
// message and data, and with log_level as a number, or level as a word where the timestamps are in RFC 3339. It has no
// sessions of lager.
type lagerHandler struct {
	out     io.Writer // takes whole lines, from several goroutines at once
	level   slog.Level
	rfc3339 bool
	attrs   []slog.Attr
	group   string // prefix of the names of attributes, with its dots
}

// Enabled implements slog.Handler. Grants and releases of locks are logged at level info.
func (h *lagerHandler) Enabled(_ context.Context, level slog.Level) bool {
	return level >= h.level || level == handlers.LevelGrant && h.level <= slog.LevelInfo
}

// Handle implements slog.Handler.
func (h *lagerHandler) Handle(_ context.Context, record slog.Record) error {
	data := make(map[string]any)
	for _, attr := range h.attrs {
		addLager(data, "", attr)
	}
	record.Attrs(func(attr slog.Attr) bool {
		addLager(data, h.group, attr)
		return true
	})
	line, level := lagerLine{Source: lagerSource, Message: lagerSource + "." + lagerMessage(record.Message), Data: data}, lagerLevelOf(record.Level)
	if h.rfc3339 {
		line.Timestamp, line.Level = record.Time.UTC().Format(time.RFC3339Nano), lagerLevels[level]
	} else {
		line.Timestamp, line.LogLevel = fmt.Sprintf("%d.%09d", record.Time.Unix(), record.Time.Nanosecond()), &level
	}
	text, err := json.Marshal(line)
	if err != nil {
		return err
	}
	_, err = h.out.Write(append(text, '\n'))
	return err
}

// lagerLine is a line, with its members in lager's order. It has one of Level and LogLevel.
type lagerLine struct {
	Timestamp string         `json:"timestamp"`
	Level     string         `json:"level,omitempty"`
	Source    string         `json:"source"`
	Message   string         `json:"message"`
	LogLevel  *int           `json:"log_level,omitempty"`
	Data      map[string]any `json:"data"`
}

// lagerLevels are the names of lager's levels, by their numbers. Locket does not log the last, fatal.
var lagerLevels = []string{"debug", "info", "error", "fatal"}

// lagerLevelOf returns the level of lager for one of slog. lager has none for warnings: they are info.
func lagerLevelOf(level slog.Level) int {
	switch {
	case level == handlers.LevelGrant:
		return 1
	case level < slog.LevelInfo:
		return 0
	case level < slog.LevelError:
		return 1
	default:
		return 2
	}
}

// lagerMessages are the messages of Cloud Foundry's Locket that mean the same as ours, and that tools look for. Other
// messages become words with hyphens.
var lagerMessages = map[string]string{
	"acquired lock": "lock.lock.acquired-lock",
	"renewed lock":  "lock.lock.renewed-lock",
	"released lock": "release.release-lock.released-lock",
}

func lagerMessage(message string) string {
	if known, ok := lagerMessages[message]; ok {
		return known
	}
	words := strings.FieldsFunc(strings.ToLower(message), func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9')
	})
	return strings.Join(words, "-")
}

// addLager adds an attribute to the data of a line: names with hyphens, errors and times as text.
func addLager(data map[string]any, group string, attr slog.Attr) {
	value := attr.Value.Resolve()
	name := group + strings.ReplaceAll(attr.Key, "_", "-")
	if name == "request-id" {
		name = "request-uuid"
	}
	switch value.Kind() {
	case slog.KindGroup:
		if attr.Key != "" {
			group = name + "."
		}
		for _, member := range value.Group() {
			addLager(data, group, member)
		}
	case slog.KindBool, slog.KindInt64, slog.KindUint64:
		data[name] = value.Any()
	case slog.KindAny:
		if list, ok := value.Any().([]string); ok {
			data[name] = list
			return
		}
		data[name] = value.String()
	default:
		data[name] = value.String()
	}
}

func (h *lagerHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	with := *h
	with.attrs = append([]slog.Attr(nil), h.attrs...)
	for _, attr := range attrs {
		attr.Key = h.group + attr.Key
		with.attrs = append(with.attrs, attr)
	}
	return &with
}

func (h *lagerHandler) WithGroup(name string) slog.Handler {
	with := *h
	if name != "" {
		with.group += name + "."
	}
	return &with
}
