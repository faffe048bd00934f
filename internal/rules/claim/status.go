package claim

import "fmt"

// Status is the status of a claim. The numbers are stored and sent: they never change their meaning.
type Status uint8

// The seven statuses of a claim (the REST requirements).
const (
	// Waiting: in the queue to become a holder.
	Waiting Status = 1
	// Active: holds its resource.
	Active Status = 2
	// Released: held the resource and gave it up under normal conditions.
	Released Status = 3
	// Expired: was not renewed before its deadline.
	Expired Status = 4
	// Aborted: given up by the client because of an error of its own.
	Aborted Status = 5
	// Withdrawn: no longer wanted by the client.
	Withdrawn Status = 6
	// Revoked: cancelled by an administrator or a monitoring process.
	Revoked Status = 7
)

var statusNames = [...]string{
	Waiting: "waiting", Active: "active", Released: "released", Expired: "expired",
	Aborted: "aborted", Withdrawn: "withdrawn", Revoked: "revoked",
}

// String returns the name of the status as the REST requirements spell it.
func (s Status) String() string {
	if s.Valid() {
		return statusNames[s]
	}
	return fmt.Sprintf("status %d", uint8(s))
}

// Valid reports whether s is one of the seven statuses.
func (s Status) Valid() bool { return s >= Waiting && s <= Revoked }

// Live reports whether the claim is waiting or active.
func (s Status) Live() bool { return s == Waiting || s == Active }

// Final reports whether the claim has ended, and so never changes again.
func (s Status) Final() bool { return s.Valid() && !s.Live() }

// mayEnd reports whether a client may move a claim from status s to the final
// status to (the REST requirements, PATCH). Only the sweep expires claims.
func (s Status) mayEnd(to Status) bool {
	switch to {
	case Released:
		return s == Active
	case Aborted, Withdrawn, Revoked:
		return s.Live()
	default:
		return false
	}
}

// Type is the purpose of a claim (TypeCode in Cloud Foundry's Locket). No rule depends on it.
type Type uint8

// The types of a claim.
const (
	Untyped  Type = 0
	Lock     Type = 1
	Presence Type = 2
)
