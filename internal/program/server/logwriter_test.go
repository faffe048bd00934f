package server

import (
	"bytes"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// gated is a reader of the log that does not read while its gate is closed.
type gated struct {
	gate chan struct{}
	text bytes.Buffer
}

func (g *gated) Write(line []byte) (int, error) {
	<-g.gate
	return g.text.Write(line)
}

// TestLogIsBounded: a line has been written when it was logged. While the reader does not read, one line waits for a moment, and the others
// do not; lines without room are counted, and the others come in their order.
func TestLogIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &gated{gate: make(chan struct{})}
		w := newLogWriter(g)
		defer close(w.lines)
		var lost atomic.Int64
		w.report = func(lines int64) { lost.Add(lines) }
		begin := time.Now()
		for n := range logLines + 11 {
			fmt.Fprintln(w, n)
		}
		if took := time.Since(begin); took != logPatience {
			t.Errorf("it took %s", took)
		}
		w.flush() // there is no room for it: it does not wait
		close(g.gate)
		synctest.Wait()
		lines := strings.Fields(g.text.String())
		if len(lines) != logLines+1 || lines[0] != "0" || lines[logLines] != fmt.Sprint(logLines) || lost.Load() != 10 {
			t.Errorf("%d lines, %d lost", len(lines), lost.Load())
		}
		fmt.Fprintln(w, "more")
		if !strings.HasSuffix(g.text.String(), "more\n") {
			t.Error("the next line is not written when it was logged")
		}
	})
}
