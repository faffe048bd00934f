package base

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/grpc/metadata"

	"github.com/locket-service/locket/internal/base/ids"
	"github.com/locket-service/locket/internal/base/lease"
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

const (
	MaxResource = 1024
	MaxValue    = 64 << 10
)

// CheckResource returns an error if the name of a resource, or a prefix, is invalid. A name that is not UTF-8 could not
// even be sent.
func CheckResource(name string) error {
	switch {
	case name == "":
		return errors.New("the resource is missing")
	case len(name) > MaxResource:
		return fmt.Errorf("the resource has %d bytes, and at most %d are allowed", len(name), MaxResource)
	case !utf8.ValidString(name) || strings.ContainsRune(name, 0):
		return errors.New("the resource is not UTF-8 without NUL")
	default:
		return nil
	}
}

// Backoff is how long to pause between consecutive attempts.
var Backoff = lease.Backoff{First: 50 * time.Millisecond, Max: MaxAttempt, Factor: 2, Jitter: lease.Jitter}

// Jittered returns a pause that is shortened at random.
func Jittered(pause time.Duration) time.Duration { return lease.Jittered(pause, lease.Jitter) }

// WithRequestID gives a request an id, which the server logs.
func WithRequestID(ctx context.Context) context.Context {
	return metadata.AppendToOutgoingContext(ctx, "uuid", ids.NewRequest())
}
