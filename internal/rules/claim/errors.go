package claim

import (
	"errors"
	"fmt"
)

var (
	// ErrNotFound is returned if the claim or the lock does not exist.
	ErrNotFound = errors.New("no such claim")
	// ErrIDTaken is returned by Create when the id names a claim that was made by
	// a different request.
	ErrIDTaken = errors.New("the id names another claim")
	// ErrQuarantine is returned for a claim that would be granted at once, during a quarantine (Instant.Quarantine).
	ErrQuarantine = errors.New("the store was restored from a backup, or rolled back, and nothing is granted yet")
	// ErrQueueFull is returned by Create when MaxWaiting claims wait for the resource.
	ErrQueueFull = errors.New("too many claims wait for the resource")
	// ErrContention is returned by Activate while the claim waits for other claims.
	ErrContention = errors.New("the claim waits for other claims")
)

// CollisionError is returned for a claim that must not wait, when others hold the resource or wait for it.
type CollisionError struct {
	// Holder is a claim that holds the resource. It is nil when the holders are
	// shared.
	Holder *Claim
}

func (e *CollisionError) Error() string {
	if e.Holder == nil {
		return "the resource is held by others, in shared mode"
	}
	return fmt.Sprintf("the resource is held by %q", e.Holder.Owner)
}

// Refused reports whether a command that claims a resource was refused because other claims hold the resource or wait
// for it, or because of a quarantine. It returns the resource.
func Refused(cmd Command, err error) (resource string, refused bool) {
	switch cmd := cmd.(type) {
	case Create:
		resource = cmd.Resource
	case Acquire:
		resource = cmd.Resource
	default:
		return "", false
	}
	var collision *CollisionError
	return resource, errors.As(err, &collision) || errors.Is(err, ErrQueueFull) || errors.Is(err, ErrQuarantine)
}

// AheadError is returned for a command with a token, or a version, that is above all that the resource has had: the store was rolled back to
// an older state, or the token is not one of the resource. It changes nothing. It wraps ErrNotFound.
type AheadError struct {
	Resource string
	// Known is the token or the version, and Version the highest of the resource.
	Known, Version uint64
}

func (e *AheadError) Error() string {
	return fmt.Sprintf("%d is higher than any token or version of the resource, which are %d at most", e.Known, e.Version)
}

// Unwrap returns ErrNotFound.
func (e *AheadError) Unwrap() error { return ErrNotFound }

// VersionError is returned by IfVersion for a claim that has another version.
type VersionError struct {
	// Version is the version that the claim has.
	Version uint64
}

func (e *VersionError) Error() string { return "the claim has changed since" }

// TransitionError is returned when a claim's status does not allow the requested change. It changes nothing.
type TransitionError struct {
	From Status
	// To is the requested status; 0 for a renewal.
	To Status
}

func (e *TransitionError) Error() string {
	if e.To == 0 {
		return fmt.Sprintf("a claim that is %s cannot be renewed", e.From)
	}
	return fmt.Sprintf("a claim that is %s cannot become %s", e.From, e.To)
}
