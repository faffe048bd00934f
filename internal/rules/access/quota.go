package access

import (
	"context"
	"time"
)

// Quota is how much one identity may do at one server, except for its claims, which are counted over all
// servers. A zero field sets no limit. The tags are the names in a file, which package auth reads.
type Quota struct {
	// Requests is how many requests a second are answered, and Burst how many at once after a pause; Requests if it
	// is 0.
	Requests float64 `yaml:"requests_per_second,omitempty"`
	Burst    int     `yaml:"burst,omitempty"`
	// Waiting is how many calls may wait for a claim, Watches how many watches, and Sessions how
	// many streams of sessions there may be at once.
	Waiting  int `yaml:"waiting_calls,omitempty"`
	Watches  int `yaml:"watches,omitempty"`
	Sessions int `yaml:"sessions,omitempty"`
	// Held and WaitingClaims are how many claims may be active and may wait, at all servers together.
	Held          int `yaml:"claims_held,omitempty"`
	WaitingClaims int `yaml:"claims_waiting,omitempty"`
	// UserData is the largest size of user data, in bytes, and of a value.
	UserData int `yaml:"user_data_bytes,omitempty"`
	// LongestTTL is the longest TTL of a claim, a lock or a session.
	LongestTTL time.Duration `yaml:"-"`
}

// OfClaims reports whether the quota limits the number of claims. q may be nil.
func (q *Quota) OfClaims() bool { return q != nil && (q.Held > 0 || q.WaitingClaims > 0) }

type paceKey struct{}

// WithPace returns a context for a stream with a limited rate of commands. pace waits until one more is allowed, and
// returns ctx's error.
func WithPace(ctx context.Context, pace func(ctx context.Context) error) context.Context {
	return context.WithValue(ctx, paceKey{}, pace)
}

// PaceOf returns the function of WithPace, nil for a caller who does not have to wait.
func PaceOf(ctx context.Context) func(ctx context.Context) error {
	pace, _ := ctx.Value(paceKey{}).(func(context.Context) error)
	return pace
}
