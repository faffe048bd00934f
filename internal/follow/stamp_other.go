//go:build !linux

package follow

import "os"

// stampOf returns what a write to a file changes.
func stampOf(info os.FileInfo) string { return portableStamp(info) }
