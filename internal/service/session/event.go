package session

import (
	"time"

	"github.com/locket-service/locket/internal/rules/claim"
)

// Holding is the relation of a session to a resource: nothing, waiting or holding.
type Holding uint8

// The numbers are the protocol's.
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

// Standing is the relation of a session to a resource, and the relation before.
type Standing struct {
	Resource          string
	Previous, Current Holding
	// Claim and Status are the id and the status of the claim that this is about, "" and 0 if there is none.
	Claim  string
	Status claim.Status
	Units  claim.Units
	// Token is the fencing token of the grant; 0 unless Current is Held.
	Token           uint64
	Reason, EndedBy string
	Version         uint64
	// Renewed says, in the answer to a Lock, that its commit has renewed the session: even if this server fails, the
	// session lives for its TTL from then.
	Renewed bool
	// SessionEnds says that the claim has ended because somebody ends its session.
	SessionEnds bool
	// Holder is a claim that holds the resource, for a Try that was not granted; or nil.
	Holder *claim.Claim
}

func standing(previous Holding, c *claim.Claim) Standing {
	s := Standing{
		Resource: c.Resource, Previous: previous, Current: holdingOf(c.Status),
		Claim: c.ID, Status: c.Status, Units: c.Units, Reason: c.Reason, EndedBy: c.EndedBy, Version: c.Version,
	}
	if s.Current == Held {
		s.Token = c.Token
	}
	s.SessionEnds = c.Status == claim.Revoked && (c.Reason == resetReason || c.Reason == endReason)
	return s
}

// Event is a message to the client of a session.
type Event struct {
	// Sequence is the number of the answered command; 0 for an event that the client did not ask for.
	Sequence uint64
	// One of these is set. A Beat answers a heartbeat; Done answers UnlockAll and Close.
	Opened, Beat, Done bool
	Standing           *Standing
	// Err is why a command was refused. The command changed nothing.
	Err error
	// Resumed is set with Opened: the session existed before.
	Resumed bool

	answers bool      // it answers a command, and so makes room for another one
	granted time.Time // when this server learned of the grant that the event tells; zero for another event
}
