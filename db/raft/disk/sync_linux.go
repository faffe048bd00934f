package disk

import (
	"os"

	"golang.org/x/sys/unix"
)

// syncData makes the data of a file durable, and its length if it has changed.
func syncData(f *os.File) error {
	for {
		err := unix.Fdatasync(int(f.Fd()))
		if err != unix.EINTR {
			return os.NewSyscallError("fdatasync", err)
		}
	}
}
