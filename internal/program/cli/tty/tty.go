// Package tty is about terminals: what a command writes to while a person watches.
package tty

import (
	"io"
	"os"
	"strconv"

	"golang.org/x/term"

	"github.com/locket-service/locket/internal/program/cli/printable"
)

// Is reports whether what is written goes to a terminal.
func Is(out io.Writer) bool {
	file, ok := out.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// Rewrites reports whether out is a terminal that can rewrite a line.
func Rewrites(out io.Writer) bool {
	kind := os.Getenv("TERM")
	return Is(out) && kind != "" && kind != "dumb"
}

// defaultWidth is the width of a terminal that does not report one.
const defaultWidth = 80

// Width returns how many columns fit on a terminal: $COLUMNS, or the width that it reports. Without $COLUMNS a pipe or a file has room for
// any text: 0.
func Width(out io.Writer) int {
	if n, err := strconv.Atoi(os.Getenv("COLUMNS")); err == nil && n > 0 {
		return n
	}
	if file, ok := out.(*os.File); ok {
		if columns, _, err := term.GetSize(int(file.Fd())); err == nil && columns > 0 {
			return columns
		}
	}
	if Is(out) {
		return defaultWidth
	}
	return 0
}

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
