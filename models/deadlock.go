package models

import (
	"encoding/json"
	"errors"

	"google.golang.org/grpc/status"
)

// DeadlockError is an error of reason ReasonDeadlock, as FromWire and the connections and sessions of package lock
// return it: the claim waited in a deadlock, and was aborted to end it.
type DeadlockError struct {
	// Members are the members of the deadlock, each waiting for the next, beginning with the aborted one. Members that
	// the error has no room for, or that the caller may not see, are missing.
	Members []DeadlockMember
	err     error
}

// DeadlockMember is a waiting claim of a deadlock.
type DeadlockMember struct {
	Owner    string `json:"owner,omitempty"`
	Session  string `json:"session,omitempty"`
	Claim    string `json:"claim"`
	Resource string `json:"resource"`
}

// DeadlockKey is the metadata key of the members of a deadlock, in JSON.
const DeadlockKey = "deadlock"

func (e *DeadlockError) Error() string { return e.err.Error() }

// Unwrap returns the error of the call.
func (e *DeadlockError) Unwrap() error { return e.err }

// GRPCStatus returns the status of the call.
func (e *DeadlockError) GRPCStatus() *status.Status { return status.Convert(e.err) }

// deadlockOf returns an error of reason ReasonDeadlock as a DeadlockError.
func deadlockOf(err error) error {
	if known := (*DeadlockError)(nil); errors.As(err, &known) {
		return err
	}
	e := &DeadlockError{err: err}
	if json.Unmarshal([]byte(ErrorInfoOf(err).GetMetadata()[DeadlockKey]), &e.Members) != nil {
		e.Members = nil // of an unknown format
	}
	return e
}
