package disk

import (
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// syncData makes the data of a file durable, and its length if it has changed.
func syncData(f *os.File) error {
	for {
		switch err := unix.Fdatasync(int(f.Fd())); err {
		case nil:
			return nil
		case unix.EINTR:
		default:
			return &fs.PathError{Op: "fdatasync", Path: f.Name(), Err: err}
		}
	}
}
