//go:build !linux

package follow

import "os"

// stampOf returns a stamp that changes when a file is written.
func stampOf(info os.FileInfo) string { return portableStamp(info) }
