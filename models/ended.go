package models

import (
	"fmt"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// ClaimEndedError says that somebody else than its client has ended a claim, and how.
type ClaimEndedError struct {
	// Status is STATUS_UNSPECIFIED if the servers no longer know how the claim has ended.
	Status Status
	// Reason and EndedBy come from the Claim; each may be empty.
	Reason, EndedBy string
}

// ClaimEnded returns how a Claim has ended, or the claim of a SessionStatus: a ClaimEndedError, or a *DeadlockError without
// members.
func ClaimEnded(c interface {
	GetStatus() Status
	GetReason() string
	GetEndedBy() string
},
) error {
	e := ClaimEndedError{Status: c.GetStatus(), Reason: c.GetReason(), EndedBy: c.GetEndedBy()}
	if e.Status == Status_STATUS_ABORTED && strings.HasPrefix(e.Reason, DeadlockReason) {
		return deadlockOf(WithInfo(status.New(codes.Aborted, e.Error()), ReasonDeadlock, nil))
	}
	return e
}

func (e ClaimEndedError) Error() string {
	text := "the claim has ended"
	switch e.Status {
	case Status_STATUS_UNSPECIFIED:
	case Status_STATUS_EXPIRED:
		text = "the claim expired"
	default:
		text = "the claim was " + strings.ToLower(strings.TrimPrefix(e.Status.String(), "STATUS_"))
		if e.EndedBy != "" {
			text += fmt.Sprintf(" by %q", e.EndedBy)
		}
	}
	if e.Reason != "" {
		text += " (" + e.Reason + ")"
	}
	return text
}
