// Package tty is about terminals: what a command writes to while a person watches.
package tty

import (
	"io"
	"os"
	"strconv"

	"github.com/mattn/go-isatty"
	"golang.org/x/sys/unix"
)

// Is reports whether what is written goes to a terminal.
func Is(out io.Writer) bool {
	file, ok := out.(*os.File)
	return ok && (isatty.IsTerminal(file.Fd()) || isatty.IsCygwinTerminal(file.Fd()))
}

// Rewrites reports whether out is a terminal that can rewrite a line.
func Rewrites(out io.Writer) bool {
	term := os.Getenv("TERM")
	return Is(out) && term != "" && term != "dumb"
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
		if size, err := unix.IoctlGetWinsize(int(file.Fd()), unix.TIOCGWINSZ); err == nil && size.Col > 0 {
			return int(size.Col)
		}
	}
	if Is(out) {
		return defaultWidth
	}
	return 0
}
