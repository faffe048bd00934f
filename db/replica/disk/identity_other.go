//go:build !linux

package disk

import (
	"fmt"
	"os"
	"syscall"
)

// Identity returns a text that is the same for a file for as long as it exists, and another one for its copies: its inode.
func Identity(f *os.File) (string, error) {
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	stat, is := info.Sys().(*syscall.Stat_t)
	if !is {
		return "", nil
	}
	return fmt.Sprint(stat.Ino), nil
}
