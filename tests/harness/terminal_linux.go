package harness

import (
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// OpenTerminal returns the two ends of a terminal.
func OpenTerminal(t *testing.T) (outside, inside *os.File) {
	t.Helper()
	outside, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	Must(t, err)
	t.Cleanup(func() { outside.Close() })
	Must(t, unix.IoctlSetPointerInt(int(outside.Fd()), unix.TIOCSPTLCK, 0))
	number, err := unix.IoctlGetInt(int(outside.Fd()), unix.TIOCGPTN)
	Must(t, err)
	inside, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	Must(t, err)
	t.Cleanup(func() { inside.Close() })
	return outside, inside
}
