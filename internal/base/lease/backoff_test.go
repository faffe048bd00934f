package lease_test

import (
	"testing"
	"time"

	"github.com/locket-service/locket/internal/base/lease"
)

// The pauses grow from the first to the longest, and a limit holds.
func TestBackoff(t *testing.T) {
	b := lease.Backoff{First: time.Second, Max: 10 * time.Second, Factor: 3, Jitter: -1}
	for attempts, want := range map[int]time.Duration{1: time.Second, 2: 3 * time.Second, 3: 9 * time.Second, 4: 10 * time.Second, 1000: 10 * time.Second} {
		if got := b.Pause(attempts, time.Hour); got != want {
			t.Errorf("after %d: %s, want %s", attempts, got, want)
		}
	}
	if got := b.Pause(3, 4*time.Second); got != 4*time.Second {
		t.Errorf("with a limit: %s", got)
	}
	b.Jitter = 0.5
	for range 1000 {
		if got := b.Pause(1, time.Hour); got > time.Second || got < time.Second/2 {
			t.Fatalf("with jitter: %s", got)
		}
	}
}
