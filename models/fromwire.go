package models

import (
	"errors"

	"google.golang.org/grpc/status"
)

// sentinels are the errors that FromWire recognizes.
var sentinels = []error{ErrLockCollision, ErrInvalidTTL, ErrInvalidOwner, ErrResourceNotFound, ErrInvalidType, ErrRolledBack}

// FromWire wraps an error of a call so that errors.Is finds the matching error of this package, as in
// errors.Is(FromWire(err), ErrLockCollision), and errors.As a *DeadlockError. The text, code, details and wrapped
// errors stay the same. Any other error, and nil, is returned unchanged.
//
// gRPC compares complete status errors (status.Error.Is), so an error with an ErrorInfo, as Locket's are, is not equal
// to one without. Connections of package lock/conn call FromWire for every call; clients with other connections must
// call it themselves.
func FromWire(err error) error {
	var wire interface{ GRPCStatus() *status.Status }
	if !errors.As(err, &wire) {
		return err
	}
	if ReasonOf(err) == ReasonDeadlock {
		return deadlockOf(err)
	}
	got := wire.GRPCStatus()
	for _, sentinel := range sentinels {
		if want := status.Convert(sentinel); got.Code() != want.Code() || got.Message() != want.Message() {
			continue
		}
		if errors.Is(err, sentinel) {
			return err
		}
		return &recognized{err, sentinel}
	}
	return err
}

// recognized is an error of a call that is one of the sentinels, with details.
type recognized struct {
	error
	sentinel error
}

func (e *recognized) Is(target error) bool { return target == e.sentinel }

// Unwrap returns the error as gRPC returned it.
func (e *recognized) Unwrap() error { return e.error }

// GRPCStatus returns the status of the call, with its details.
func (e *recognized) GRPCStatus() *status.Status { return status.Convert(e.error) }
