package lock

import (
	"errors"
	"fmt"

	"google.golang.org/grpc/status"

	"github.com/locket-service/locket/models"
)

var (
	// ErrLost is what a LockRunner ends with when its lock is lost, wrapped around the cause.
	ErrLost = errors.New("the lock was lost")
	// ErrTimeUp is the cause of a loss: no renewal came through while the lease lasted. It is
	// wrapped around the error of the last attempt.
	ErrTimeUp = errors.New("the lease was not renewed in time")
	// ErrTokenChanged is the cause of a loss: the grant had ended, and the lock was granted to
	// the same owner anew.
	ErrTokenChanged = errors.New("the grant had ended")
)

// wireErrors are the errors of the service that a caller may want to distinguish. Those from
// the wire carry details besides, so errors.Is does not find them equal.
var wireErrors = []error{
	models.ErrLockCollision, models.ErrResourceNotFound, models.ErrInvalidTTL, models.ErrInvalidOwner, models.ErrInvalidType,
}

// known returns the error of package models that an error from the wire is, or nil.
func known(err error) error {
	s := status.Convert(err)
	for _, wire := range wireErrors {
		if k := status.Convert(wire); k.Code() == s.Code() && k.Message() == s.Message() {
			return wire
		}
	}
	return nil
}

// plain returns an error so that errors.Is finds what it is, and that says who holds the
// lock if it says so.
func plain(err error) error {
	wire := known(err)
	if wire == nil {
		return err
	}
	if holder := models.ErrorInfoOf(err).GetMetadata()["holder"]; holder != "" {
		return fmt.Errorf("%w: held by %q", wire, holder)
	}
	return wire
}
