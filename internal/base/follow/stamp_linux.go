package follow

import (
	"fmt"
	"os"
	"syscall"
)

// stampOf returns a stamp that changes when a file is written or replaced.
func stampOf(info os.FileInfo) string {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return portableStamp(info)
	}
	return fmt.Sprintf("%s %d %d %d ", portableStamp(info), stat.Dev, stat.Ino, stat.Ctim.Nano())
}
