package models

import (
	"encoding/json"
	"errors"

	"google.golang.org/grpc/status"
)

// DeadlockError is an error of reason ReasonDeadlock, as FromWire returns it, and as connections and sessions of package lock
// do: what was asked for would have to wait, and so cause a deadlock in which each waits for the next. It was not done.
type DeadlockError struct {
	// Members wait in the deadlock, each for the next, from the refused one on: as many as the error had
	// room for, without those that the caller may not see.
	Members []DeadlockMember
	err     error
}

// DeadlockMember is a claim that waits in a circle.
type DeadlockMember struct {
	Owner    string `json:"owner,omitempty"`
	Session  string `json:"session,omitempty"`
	Claim    string `json:"claim"`
	Resource string `json:"resource"`
}

// DeadlockKey is the name of the metadata that have the members of a deadlock, in JSON.
const DeadlockKey = "deadlock"

func (e *DeadlockError) Error() string { return e.err.Error() }

// Unwrap returns the error of the call.
func (e *DeadlockError) Unwrap() error { return e.err }

// GRPCStatus returns the status of the call.
func (e *DeadlockError) GRPCStatus() *status.Status { return status.Convert(e.err) }

// deadlockOf returns an error of reason ReasonDeadlock as what it is.
func deadlockOf(err error) error {
	if known := (*DeadlockError)(nil); errors.As(err, &known) {
		return err
	}
	e := &DeadlockError{err: err}
	if json.Unmarshal([]byte(ErrorInfoOf(err).GetMetadata()[DeadlockKey]), &e.Members) != nil {
		e.Members = nil // of another version
	}
	return e
}
