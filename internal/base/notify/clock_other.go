//go:build !linux

package notify

import "time"

// monotonic is for systemd, which runs only on Linux.
func monotonic() time.Duration { return 0 }
