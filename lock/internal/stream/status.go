package stream

import (
	"errors"
	"time"

	"github.com/locket-service/locket/models"
)

// State is a lock.State.
type State int

// The states, in the same order as in package lock.
const (
	None State = iota
	Waiting
	Holding
)

// Status is a lock.Status, which documents it.
type Status struct {
	Resource              string
	Previous, Current     State
	Token                 uint64
	Shared                bool
	Claim                 string
	Cause                 error
	Holder, HolderSession string
	HolderToken           uint64
}

// record is the session's knowledge of its state for one resource.
type record struct {
	Status
	// version belongs to the last known change.
	version uint64
	// ended is when Current became None: the record is kept for a while to recognise late events of earlier states.
	ended time.Time
	// stream is the number of the stream that last reported the resource.
	stream int
	// why is how the claim ended while the session was detached, as a server reported; nil if unknown.
	why error
	// hold is reported to observers if the session holds the lock by its commands; otherwise nil.
	hold *commandHold
}

// statusOf returns the status in a message. Previous comes from the session's own record, so that no listener misses a
// step.
func statusOf(m *models.SessionStatus) Status {
	s := Status{
		Resource: m.GetResource(), Token: m.GetToken(), Claim: m.GetClaim(), Shared: m.GetMode() == models.Mode_MODE_SHARED,
		Holder: m.GetHolder(), HolderSession: m.GetHolderSession(), HolderToken: m.GetHolderToken(),
	}
	switch m.GetCurrent() {
	case models.Holding_HOLDING_HELD:
		s.Current = Holding
	case models.Holding_HOLDING_WAITING:
		s.Current = Waiting
	case models.Holding_HOLDING_NONE:
		s.Token = 0
		switch {
		case m.GetError() != nil:
			s.Cause = errorOf(m.GetError())
		case m.GetStatus() != models.Status_STATUS_UNSPECIFIED:
			s.Cause = models.ClaimEnded(m)
			if m.GetSessionEnds() {
				s.Cause = sessionEndsError{s.Cause}
			}
		}
	}
	return s
}

// sessionEndsError is the end of a claim whose session is about to end.
type sessionEndsError struct{ error }

func (e sessionEndsError) Unwrap() error { return e.error }

// isGivenUp reports whether a claim with this end may have been released by its session.
func isGivenUp(cause error) bool {
	var ended models.ClaimEndedError
	if !errors.As(cause, &ended) {
		return cause == nil
	}
	return ended.Status == models.Status_STATUS_RELEASED || ended.Status == models.Status_STATUS_WITHDRAWN
}
