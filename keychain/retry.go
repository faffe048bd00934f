package keychain

import (
	"errors"
	"fmt"
	"time"

	"github.com/locket-service/locket/internal/base/lease"
)

// Backoff sets the pauses between attempts. A field that is 0 has its default.
type Backoff struct {
	// First is the pause after the first attempt, Max the longest.
	First, Max time.Duration
	// Factor is by how much each pause is longer than the one before: 2 unless it is set.
	Factor float64
	// Jitter is by how much of itself a pause is shortened at random, 0 to 1: 0.3 unless it is
	// set, and none when it is negative.
	Jitter float64
}

// Retries sets the pauses before each kind of request is repeated after no answer or a 5xx. To prevent a lease from
// ending during a pause, pauses of Renew are at most a tenth of the TTL, pauses of Activate and Poll a quarter.
type Retries struct {
	// Register is for POST: 250 ms to 5 s.
	Register Backoff
	// Activate is for PATCH with status=active: 250 ms to 5 s.
	Activate Backoff
	// Renew is for PATCH with a ttl: 250 ms to 5 s.
	Renew Backoff
	// Release is for PATCH with status=released: 100 ms to 1 s.
	Release Backoff
	// Withdraw is for PATCH with status=withdrawn: 100 ms to 1 s.
	Withdraw Backoff
	// Abort is for PATCH with status=aborted: 50 ms to 250 ms, because the client is failing.
	Abort Backoff
	// Poll is for asking again whether the claim may be active, where the server does not
	// hold its answer until it is: 200 ms to 5 s, by 1.5.
	Poll Backoff
}

// withDefaults replaces zeros by the defaults.
func (r Retries) withDefaults() Retries {
	slow := Backoff{First: 250 * time.Millisecond, Max: 5 * time.Second, Factor: 2, Jitter: 0.3}
	brisk := Backoff{First: 100 * time.Millisecond, Max: time.Second, Factor: 2, Jitter: 0.3}
	return Retries{
		Register: r.Register.or(slow),
		Activate: r.Activate.or(slow),
		Renew:    r.Renew.or(slow),
		Release:  r.Release.or(brisk),
		Withdraw: r.Withdraw.or(brisk),
		Abort:    r.Abort.or(Backoff{First: 50 * time.Millisecond, Max: 250 * time.Millisecond, Factor: 2, Jitter: 0.3}),
		Poll:     r.Poll.or(Backoff{First: 200 * time.Millisecond, Max: 5 * time.Second, Factor: 1.5, Jitter: 0.3}),
	}
}

func (r Retries) validate() error {
	var wrong []error
	for name, b := range map[string]Backoff{
		"Register": r.Register, "Activate": r.Activate, "Renew": r.Renew, "Release": r.Release,
		"Withdraw": r.Withdraw, "Abort": r.Abort, "Poll": r.Poll,
	} {
		if b.First < 0 || b.Max < b.First || !(b.Factor >= 1) || !(b.Jitter < 1) {
			wrong = append(wrong, fmt.Errorf("the retries of %s: %+v", name, b))
		}
	}
	return errors.Join(wrong...)
}

// of returns the parameters of a kind of request.
func (r *Retries) of(kind action) Backoff {
	switch kind {
	case sendRegister:
		return r.Register
	case sendActivate:
		return r.Activate
	case sendRelease:
		return r.Release
	case sendWithdraw:
		return r.Withdraw
	case sendAbort:
		return r.Abort
	default:
		return r.Renew
	}
}

// or replaces zero fields by defaults. A Max that was left out is not below a given First.
func (b Backoff) or(defaults Backoff) Backoff {
	if b.First == 0 {
		b.First = defaults.First
		if b.Max != 0 {
			b.First = min(b.First, b.Max)
		}
	}
	if b.Max == 0 {
		b.Max = max(defaults.Max, b.First)
	}
	if b.Factor == 0 {
		b.Factor = defaults.Factor
	}
	if b.Jitter == 0 {
		b.Jitter = defaults.Jitter
	}
	return b
}

// pause returns how long to pause after a number of attempts, 1 or more, at most limit.
func (b Backoff) pause(attempts int, limit time.Duration) time.Duration {
	return lease.Backoff(b).Pause(attempts, limit)
}
