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

// TestRemovedWhileItRuns: a node that is removed while it carries out a request says so, and how to use it again.
func TestRemovedWhileItRuns(t *testing.T) {
	t.Parallel()
	var end error
	log := newLogger(Options{Name: "b", Log: slog.New(slog.DiscardHandler), Exit: func(err error) { end = err }}, new(ended))
	log.Panic("failed to find local ID in cluster members")
	if !errors.Is(end, ErrRefused) || !strings.Contains(end.Error(), "node b was removed from the cluster") {
		t.Errorf("it ended with %v", end)
	}
}
