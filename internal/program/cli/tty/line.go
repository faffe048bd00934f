package tty

import (
	"io"

	"github.com/locket-service/locket/internal/program/cli/printable"
)

// Line is one line of a terminal, which is rewritten. A nil Line shows nothing.
type Line struct {
	out   io.Writer
	shown bool
}

// NewLine returns a line, nil unless out is a terminal that can rewrite it.
func NewLine(out io.Writer) *Line {
	if !Rewrites(out) {
		return nil
	}
	return &Line{out: out}
}

// rewrite erases the current line.
const rewrite = "\r\x1b[K"

// Show shows a printable text in place of the last one, as much of it as fits.
func (l *Line) Show(text string) {
	if l != nil {
		_, _ = io.WriteString(l.out, rewrite+printable.Shortened(text, Width(l.out)-1))
		l.shown = true
	}
}

// Clear leaves no line.
func (l *Line) Clear() {
	if l != nil && l.shown {
		_, _ = io.WriteString(l.out, rewrite)
		l.shown = false
	}
}
