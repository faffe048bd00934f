package models

import (
	"fmt"
	"strings"
)

// ClaimEndedError says that somebody else than its client has ended a claim, and how.
type ClaimEndedError struct {
	// Status is STATUS_UNSPECIFIED if the servers no longer know how the claim has ended.
	Status Status
	// Reason and EndedBy are those of the Claim; each may be empty.
	Reason, EndedBy string
}

// ClaimEnded returns how a Claim has ended, or the claim of a SessionStatus.
func ClaimEnded(c interface {
	GetStatus() Status
	GetReason() string
	GetEndedBy() string
},
) error {
	return ClaimEndedError{Status: c.GetStatus(), Reason: c.GetReason(), EndedBy: c.GetEndedBy()}
}

func (e ClaimEndedError) Error() string {
	text := "the claim has ended"
	switch e.Status {
	case Status_STATUS_UNSPECIFIED:
	case Status_STATUS_EXPIRED:
		text = "the claim expired"
	default:
		text = "the claim was " + strings.ToLower(strings.TrimPrefix(e.Status.String(), "STATUS_")) + e.by()
	}
	if e.Reason != "" {
		text += " (" + e.Reason + ")"
	}
	return text
}

// by returns who has ended the claim, as the end of a text.
func (e ClaimEndedError) by() string {
	switch {
	case e.EndedBy != "":
		return fmt.Sprintf(" by %q", e.EndedBy)
	case e.Reason == "" && (e.Status == Status_STATUS_RELEASED || e.Status == Status_STATUS_WITHDRAWN):
		return " by another client"
	default:
		return ""
	}
}
