package lock

import (
	"fmt"

	"github.com/locket-service/locket/lock/internal/stream"
)

// State is a session's relation to a resource.
type State int

// The states.
const (
	// None: the session neither holds the resource nor waits for it.
	None State = iota
	// Waiting: the session is in the queue of the resource.
	Waiting
	// Holding: the session holds the resource.
	Holding
)

func (s State) String() string {
	switch s {
	case None:
		return "NONE"
	case Waiting:
		return "WAITING"
	case Holding:
		return "HOLDING"
	default:
		return fmt.Sprintf("state %d", int(s))
	}
}

// Status is a session's state for a resource, and the state before.
type Status struct {
	Resource          string
	Previous, Current State
	// Token is the fencing token of the hold; 0 unless Current is Holding.
	Token uint64
	// Shared is set for a claim that shares its resource.
	Shared bool
	// Claim is the id of the session's current or last claim.
	Claim string
	// Cause is why the session no longer holds or waits: nil if it gave the resource up. It
	// wraps ErrLost if it held, and a models.ClaimEndedError if somebody else ended the claim.
	Cause error
	// Holder, HolderSession and HolderToken name a holder of a resource that TryLock did not get.
	Holder, HolderSession string
	HolderToken           uint64
}

// statusOf converts a status of package stream, whose states are in the same order.
func statusOf(s stream.Status) Status {
	return Status{
		Resource: s.Resource, Previous: State(s.Previous), Current: State(s.Current), Token: s.Token, Shared: s.Shared, Claim: s.Claim,
		Cause: s.Cause, Holder: s.Holder, HolderSession: s.HolderSession, HolderToken: s.HolderToken,
	}
}
