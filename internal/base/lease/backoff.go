package lease

import (
	"math"
	"math/rand/v2"
	"time"
)

// Jitter is the largest fraction taken off a pause before a renewal or a retry, so that clients that started together
// do not come back together.
const Jitter = 0.2

// Backoff is how long to pause between consecutive attempts.
type Backoff struct {
	// First is the pause after the first attempt, Max the longest.
	First, Max time.Duration
	// Factor is how much longer each pause is than the one before.
	Factor float64
	// Jitter is the largest fraction taken off a pause, at random, 0 to 1; a negative one is 0.
	Jitter float64
}

// Pause returns how long to pause after a number of attempts, 1 or more. It is never longer than limit.
func (b Backoff) Pause(attempts int, limit time.Duration) time.Duration {
	pause := min(float64(b.First)*math.Pow(b.Factor, float64(attempts-1)), float64(b.Max), float64(limit))
	return Jittered(time.Duration(pause), b.Jitter)
}

// Jittered returns a pause that is shortened at random, by a fraction of itself at most.
func Jittered(pause time.Duration, fraction float64) time.Duration {
	return pause - time.Duration(rand.Float64()*max(0, fraction)*float64(pause))
}
