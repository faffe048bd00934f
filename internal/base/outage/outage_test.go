package outage

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

var errFull = errors.New("the disk is full")

func newTestLog() (l *Log, text *bytes.Buffer) {
	text = &bytes.Buffer{}
	handler := slog.NewTextHandler(text, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}})
	return New(slog.New(handler), slog.LevelError, "no commits", "commits again"), text
}

// TestOutages: the first failure is logged and the first success after it, and no attempt between.
func TestOutages(t *testing.T) {
	t.Parallel()
	l, text := newTestLog()
	for _, err := range []error{nil, errFull, errFull, nil, nil, errFull} {
		l.Report(err)
	}
	begins := "level=ERROR msg=\"no commits\" error=\"the disk is full\"\n"
	if want := begins + "level=INFO msg=\"commits again\"\n" + begins; text.String() != want {
		t.Errorf("%s, want %s", text, want)
	}
}

// TestOutagesAreBounded: of 50 outages a second for ten minutes the first few are logged, then one in 10 seconds. The
// lines come in pairs, with the number of omitted outages. The final state is logged.
func TestOutagesAreBounded(t *testing.T) {
	for _, atEnd := range []error{nil, errFull} {
		synctest.Test(t, func(t *testing.T) {
			l, text := newTestLog()
			const rounds = 600 * 50
			for range rounds {
				l.Report(errFull)
				time.Sleep(10 * time.Millisecond)
				l.Report(nil)
				time.Sleep(10 * time.Millisecond)
			}
			for range 100 { // as beats do
				l.Report(atEnd)
				time.Sleep(interval / 100)
			}
			l.Report(atEnd)
			left, failing, logged := 0, false, 0
			for line := range strings.Lines(text.String()) {
				begins := strings.Contains(line, "no commits")
				if begins == failing {
					t.Fatalf("two of a kind, one after the other: %s", line)
				}
				failing = begins
				if begins {
					n := 0
					if _, of, found := strings.Cut(line, "left_out_before="); found {
						_, _ = fmt.Sscan(of, &n)
					}
					logged++
					left += n
				}
			}
			if most := 600/10 + burst + 2; logged > most || logged < most-3 {
				t.Errorf("%d outages are logged, want %d", logged, most)
			}
			if failing != (atEnd != nil) {
				t.Errorf("the log ends with an outage: %v, and it fails: %v", failing, atEnd != nil)
			}
			if left += l.leftOut; left+logged < rounds {
				t.Errorf("%d are logged, and %d left out, of %d", logged, left, rounds)
			}
		})
	}
}
