package disk

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Identity returns a text that stays the same for a file for as long as it exists, and differs for its copies: its
// inode, and the time when that was made, if the file system has it.
func Identity(f *os.File) (string, error) {
	var stat unix.Statx_t
	if err := unix.Statx(int(f.Fd()), "", unix.AT_EMPTY_PATH, unix.STATX_INO|unix.STATX_BTIME, &stat); err != nil {
		return "", &os.PathError{Op: "statx", Path: f.Name(), Err: err}
	}
	if stat.Mask&unix.STATX_BTIME == 0 {
		return fmt.Sprint(stat.Ino), nil
	}
	return fmt.Sprintf("%d/%d.%09d", stat.Ino, stat.Btime.Sec, stat.Btime.Nsec), nil
}
