package lock

import (
	"errors"
	"fmt"

	"github.com/locket-service/locket/models"
)

var (
	// ErrLost is what a runner ends with when its lock is lost, wrapped around the cause.
	ErrLost = errors.New("the lock was lost")
	// ErrTimeUp is the cause of a loss: no renewal succeeded within the trust window. It is
	// wrapped around the error of the last attempt.
	ErrTimeUp = errors.New("the lease was not renewed in time")
	// ErrTokenChanged is the cause of a loss: the grant had ended, and the lock was granted to
	// the same owner anew.
	ErrTokenChanged = errors.New("the grant had ended")
)

// withHolder returns an error such that errors.Is finds what it is, and whose text names the
// holder if the server did.
func withHolder(err error) error {
	if holder := models.ErrorInfoOf(err).GetMetadata()["holder"]; holder != "" {
		return fmt.Errorf("%w: held by %q", models.FromWire(err), holder)
	}
	return models.FromWire(err)
}
