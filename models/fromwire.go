package models

import (
	"errors"

	"google.golang.org/grpc/status"
)

// sentinels are the errors that FromWire recognizes.
var sentinels = []error{ErrLockCollision, ErrInvalidTTL, ErrInvalidOwner, ErrResourceNotFound, ErrInvalidType}

// FromWire returns an error of a call such that errors.Is finds the error of this package that
// it is: errors.Is(FromWire(err), ErrLockCollision), and errors.As its *DeadlockError. Text, code, details and everything that err
// wraps stay as they are; any other error, and nil, is returned unchanged.
//
// It is needed because gRPC compares status errors whole (status.Error.Is): an error that
// carries an ErrorInfo, as those of Locket do, is not equal to one that does not, and nothing
// in the other one can change that. Connections of package lock call FromWire for every call;
// who dials by other means calls it.
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

// Is reports whether target is the sentinel.
func (e *recognized) Is(target error) bool { return target == e.sentinel }

// Unwrap returns the error as gRPC returned it.
func (e *recognized) Unwrap() error { return e.error }

// GRPCStatus returns the status as it came, with its details.
func (e *recognized) GRPCStatus() *status.Status { return status.Convert(e.error) }
