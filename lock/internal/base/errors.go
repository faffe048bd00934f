package base

import (
	"errors"
	"fmt"

	"github.com/locket-service/locket/models"
)

// The errors of package lock, which documents them.
var (
	ErrLost         = errors.New("the lock was lost")
	ErrTimeUp       = errors.New("the lease was not renewed in time")
	ErrTokenChanged = errors.New("the grant had ended")
	ErrReleased     = errors.New("the lock was released")
	ErrSessionEnded = errors.New("the session has ended")
	ErrClosed       = errors.New("closed by its user")
	ErrTimeout      = errors.New("the command was not answered in time")
)

// lossError is the loss of a lock that was held; it wraps ErrLost and the cause.
type lossError struct {
	resource string
	cause    error
}

func (e *lossError) Error() string {
	return fmt.Sprintf("lock %q: %v: %v", e.resource, ErrLost, e.cause)
}
func (e *lossError) Unwrap() []error { return []error{ErrLost, e.cause} }

// Lost returns the error of the loss of a resource.
func Lost(resource string, cause error) error { return &lossError{resource, cause} }

// TimeUp returns the error of the end of a trust window, with the error of the last attempt to renew it, if there is one.
func TimeUp(failure error) error {
	if failure == nil {
		return ErrTimeUp
	}
	return fmt.Errorf("%w: %w", ErrTimeUp, failure)
}

// WithHolder adds the name of the holder, if the server sent it, to the error's text. errors.Is still finds the cause.
func WithHolder(err error) error {
	if holder := models.ErrorInfoOf(err).GetMetadata()["holder"]; holder != "" {
		return fmt.Errorf("%w: held by %q", models.FromWire(err), holder)
	}
	return models.FromWire(err)
}
