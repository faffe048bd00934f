package session

import (
	"time"

	"github.com/locket-service/locket/internal/claim"
)

// Holding is how a session stands to a resource.
type Holding uint8

// The numbers are those of the wire.
const (
	None    Holding = 0
	Waiting Holding = 1
	Held    Holding = 2
)

func holdingOf(s claim.Status) Holding {
	switch s {
	case claim.Waiting:
		return Waiting
	case claim.Active:
		return Held
	default:
		return None
	}
}

// Standing is how a session stands to a resource, and how it stood before.
type Standing struct {
	Resource          string
	Previous, Current Holding
	// Claim is the id of the claim that says so, "" if there is none, Status its status.
	Claim  string
	Status claim.Status
	Mode   claim.Mode
	// Token is that of the hold; 0 unless Current is Held.
	Token   uint64
	Reason  string
	Version uint64
	// Holder is a claim that holds the resource, for a try that was not granted; or nil.
	Holder *claim.Claim
}

func standing(previous Holding, c *claim.Claim) Standing {
	s := Standing{
		Resource: c.Resource, Previous: previous, Current: holdingOf(c.Status),
		Claim: c.ID, Status: c.Status, Mode: c.Mode, Reason: c.Reason, Version: c.Version,
	}
	if s.Current == Held {
		s.Token = c.Token
	}
	return s
}

// Event is something to tell a session's client.
type Event struct {
	// Sequence is that of the command that it answers, or belongs to; 0 for an event that the client did not ask for.
	Sequence uint64
	// One of these is set. A Beat answers a heartbeat; Done answers UnlockAll and Close.
	Opened, Beat, Done bool
	Standing           *Standing
	// Err is why a command was refused. Nothing of it was done.
	Err error
	// Resumed goes with Opened: the session was there before.
	Resumed bool

	answers bool      // it makes room for another command
	granted time.Time // when this server heard of the grant that it tells; zero for another event
}
