package etcdnode

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
)

// TestLastWords: after etcd has said why it cannot go on, its other parts say nothing more, which would hide the reason.
func TestLastWords(t *testing.T) {
	t.Parallel()
	var text bytes.Buffer
	var end error
	log := newLogger(Options{Log: slog.New(slog.NewTextHandler(&text, nil)), Exit: func(err error) { end = err }}, new(ended))
	log.Warn("before")
	log.Panic("tocommit(3) is out of range [lastIndex(2)]")
	log.Warn("failed to publish")
	if lines := strings.Split(strings.TrimSpace(text.String()), "\n"); len(lines) != 2 || !strings.Contains(lines[1], "out of range") {
		t.Errorf("the log is\n%s", text.String())
	}
	if !errors.Is(end, ErrRefused) {
		t.Errorf("it ended with %v", end)
	}
}
