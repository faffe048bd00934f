package lock

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/locket-service/locket/models"
)

// State is how a session stands to a resource.
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

// Status is how a session stands to a resource, and how it stood before.
type Status struct {
	Resource          string
	Previous, Current State
	// Token is the fencing token of the hold; 0 unless Current is Holding.
	Token uint64
	// Shared is set for a claim that shares its resource.
	Shared bool
	// Claim is the id of the claim by which the session holds or waits, or did.
	Claim string
	// Cause is why the session no longer holds or waits: nil if it gave the resource up. It
	// wraps ErrLost if it held.
	Cause error
	// Holder, HolderSession and HolderToken name a holder of a resource that TryLock did not get.
	Holder, HolderSession string
	HolderToken           uint64
}

// record is what is known of how a session stands to a resource.
type record struct {
	Status
	// version is that of the last change that is known.
	version uint64
	// ended is when Current became None: the record is kept for a while, so that late news of what was
	// before it are known to be old.
	ended time.Time
	// stream numbers the stream that has last spoken of the resource.
	stream int
}

// statusOf returns the status that a message tells. What it was before is what the session knew,
// so that no listener misses a step.
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
		s.Cause = causeOf(m)
	}
	return s
}

// causeOf returns why a claim ended, nil if the session ended it.
func causeOf(m *models.SessionStatus) error {
	switch m.GetStatus() {
	case models.Status_STATUS_RELEASED, models.Status_STATUS_WITHDRAWN, models.Status_STATUS_UNSPECIFIED:
		return nil
	default:
		return claimEndedError{m.GetStatus(), m.GetReason()}
	}
}

// claimEndedError says that a claim was ended, and not by its session.
type claimEndedError struct {
	status models.Status
	reason string
}

func (e claimEndedError) Error() string {
	text := "the claim was ended: " + strings.ToLower(strings.TrimPrefix(e.status.String(), "STATUS_"))
	if e.reason != "" {
		text += " (" + e.reason + ")"
	}
	return text
}

const (
	maxResource = 1024
	maxValue    = 64 << 10
)

// checkResource returns what is wrong with the name of a resource, or the first part of one. A name
// that is no UTF-8 could not even be sent.
func checkResource(name string) error {
	switch {
	case name == "":
		return errors.New("the resource is missing")
	case len(name) > maxResource:
		return fmt.Errorf("the resource has %d bytes, and at most %d are allowed", len(name), maxResource)
	case !utf8.ValidString(name) || strings.ContainsRune(name, 0):
		return errors.New("the resource is no UTF-8 without NUL")
	default:
		return nil
	}
}
