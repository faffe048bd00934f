package server

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/locket-service/locket/handlers"
)

// lagerLines logs with a configuration of the log, and returns the lines.
func lagerLines(t *testing.T, format, level string, log func(*slog.Logger)) (lines []map[string]any, text string) {
	t.Helper()
	var out bytes.Buffer
	logger, err := newLogger(Config{LogFormat: format, LogLevel: level}, &out)
	must(t, err)
	log(logger)
	text = out.String()
	for decoder := json.NewDecoder(&out); decoder.More(); {
		var line map[string]any
		must(t, decoder.Decode(&line))
		lines = append(lines, line)
	}
	return lines, text
}

// The lines equal lager's byte for byte (code.cloudfoundry.org/lager, LogFormat and PrettyFormat).
func TestLager(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // the time is midnight, 2000-01-01 UTC
		time.Sleep(1500 * time.Millisecond)
		log := func(l *slog.Logger) {
			l.With("a_b", 1).WithGroup("g").Error("It failed: twice", "error", errors.New("e\n<"), "took", time.Second, "list", []string{"x"})
		}
		data := `"data":{"a-b":1,"g.error":"e\n\u003c","g.list":["x"],"g.took":"1s"}}` + "\n"
		if _, got := lagerLines(t, "lager", "info", log); got != `{"timestamp":"946684801.500000000","source":"locket","message":"locket.it-failed-twice","log_level":2,`+data {
			t.Error(got)
		}
		if _, got := lagerLines(t, "lager-rfc3339", "info", log); got != `{"timestamp":"2000-01-01T00:00:01.5Z","level":"error","source":"locket","message":"locket.it-failed-twice",`+data {
			t.Error(got)
		}
	})
}

// A log at level info has the grants, not what is for debugging; one at level error has neither.
func TestLagerLevels(t *testing.T) {
	t.Parallel()
	log := func(l *slog.Logger) {
		l.Debug("started")
		l.Log(t.Context(), handlers.LevelGrant, "acquired lock", "type_code", 1, "request_id", "u")
		l.Log(t.Context(), handlers.LevelGrant, "released lock")
		l.Info("started")
		l.Warn("slow")
		l.Error("broken")
	}
	all := []struct {
		message string
		level   float64
	}{
		{"locket.started", 0},
		{"locket.lock.lock.acquired-lock", 1},
		{"locket.release.release-lock.released-lock", 1},
		{"locket.started", 1},
		{"locket.slow", 1},
		{"locket.broken", 2},
	}
	for level, skip := range map[string]int{"debug": 0, "info": 1, "error": 5, "error+4": 6} {
		lines, text := lagerLines(t, "lager", level, log)
		if len(lines) != len(all)-skip {
			t.Errorf("at level %s:\n%s", level, text)
			continue
		}
		for i, line := range lines {
			if want := all[skip+i]; line["message"] != want.message || line["log_level"] != want.level || line["data"] == nil {
				t.Errorf("at level %s: %v, want %v", level, line, want)
			}
		}
	}
	lines, _ := lagerLines(t, "lager", "info", log)
	if data := lines[0]["data"].(map[string]any); data["request-uuid"] != "u" || data["type-code"] != 1.0 {
		t.Errorf("got %v", data)
	}
}
