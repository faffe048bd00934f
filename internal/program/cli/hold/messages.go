package hold

import (
	"fmt"
	"io"

	"github.com/locket-service/locket/internal/program/cli/printable"
	"github.com/locket-service/locket/internal/program/cli/tty"
)

// Messages writes what happens to standard error, one line each. On a terminal the last line may describe a wait, and be rewritten.
type Messages struct {
	out  io.Writer
	line *tty.Line // nil if a line cannot be rewritten there
}

// NewMessages returns messages that go to standard error.
func NewMessages(stderr io.Writer) *Messages {
	return &Messages{out: stderr, line: tty.NewLine(stderr)}
}

// Say writes a line.
func (m *Messages) Say(format string, args ...any) {
	m.line.Clear()
	fmt.Fprintln(m.out, "locket:", printable.OneLine(fmt.Sprintf(format, args...)))
}

// Watched reports whether a person reads the messages.
func (m *Messages) Watched() bool { return tty.Is(m.out) }
