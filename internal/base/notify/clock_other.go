//go:build !linux

package notify

import "time"

// monotonic is for systemd, which runs on Linux alone.
func monotonic() time.Duration { return 0 }
