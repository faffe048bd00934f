package base

import (
	"log/slog"
	"time"
)

// Settings apply to every holder. Package lock has the options that set them, and checks them.
type Settings struct {
	TTL, RetryInterval time.Duration
	// Margin is how long the trust window ends before the TTL has passed.
	Margin         time.Duration
	ReleaseTimeout time.Duration
	WaitTTL        time.Duration
	Owner          string
	Log            *slog.Logger
	// SessionResumed and RenewalFailed come from lock.Observer. They are called with locks held.
	SessionResumed, RenewalFailed func()
	// SessionHeld comes from lock.Observer; nil if none has it. It is called without locks held.
	SessionHeld func(Hold)
}
