package models

import (
	"encoding/json"
	"errors"

	"google.golang.org/grpc/status"
)

// CircleError is an error of reason ReasonCircle, as FromWire returns it, and as connections and sessions of package lock
// do: what was asked for would have to wait, and so close a circle in which each waits for the next. It was not done.
type CircleError struct {
	// Members wait in the circle, each for the next, from the refused one on: as many as the error had
	// room for, without those that the caller may not see.
	Members []CircleMember
	err     error
}

// CircleMember is a claim that waits in a circle.
type CircleMember struct {
	Owner    string `json:"owner,omitempty"`
	Session  string `json:"session,omitempty"`
	Claim    string `json:"claim"`
	Resource string `json:"resource"`
}

// CircleKey is the name of the metadata that have the members of a circle, in JSON.
const CircleKey = "circle"

func (e *CircleError) Error() string { return e.err.Error() }

// Unwrap returns the error of the call.
func (e *CircleError) Unwrap() error { return e.err }

// GRPCStatus returns the status of the call.
func (e *CircleError) GRPCStatus() *status.Status { return status.Convert(e.err) }

// circleOf returns an error of reason ReasonCircle as what it is.
func circleOf(err error) error {
	if known := (*CircleError)(nil); errors.As(err, &known) {
		return err
	}
	e := &CircleError{err: err}
	if json.Unmarshal([]byte(ErrorInfoOf(err).GetMetadata()[CircleKey]), &e.Members) != nil {
		e.Members = nil // of another version
	}
	return e
}
