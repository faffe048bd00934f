package handlers

import (
	"context"

	"google.golang.org/protobuf/proto"

	"github.com/locket-service/locket/internal/rules/access"
	"github.com/locket-service/locket/internal/service/session"
	"github.com/locket-service/locket/models"
)

// The commands of a stream that wait because of their caller's quota are counted in units of so many bytes.
const (
	pacedUnit  = 4 << 10
	pacedUnits = 1024
)

// pacing returns a function that executes or refuses a command of a stream after Room was taken for it, and a
// function to call after the last command. Commands beyond the caller's quota are answered later, in their order. The
// stream is still read, so that a delayed client counts as alive.
func (h *handler) pacing(ctx context.Context, attached *session.Attached) (carryOut func(received) error, end func()) {
	pace := access.PaceOf(ctx)
	if pace == nil {
		return func(command received) error { return h.command(ctx, command, attached) }, func() {}
	}
	waiting, room := make(chan received, pacedUnits), make(chan struct{}, pacedUnits)
	go h.beside(ctx, attached, func() {
		for command := range waiting {
			err := pace(ctx)
			if err == nil {
				err = h.command(ctx, command, attached)
			}
			if err != nil {
				attached.End(err)
				return
			}
			for range unitsOf(command.request) {
				<-room
			}
		}
	})
	carryOut = func(command received) error {
		for range unitsOf(command.request) {
			select {
			case room <- struct{}{}:
			case <-attached.Ended():
				return nil
			case <-ctx.Done():
				return nil
			}
		}
		attached.Received() // the client's silence while there was no room does not count
		waiting <- command
		return nil
	}
	return carryOut, func() { close(waiting) }
}

func unitsOf(request *models.SessionRequest) int {
	return min(1+proto.Size(request)/pacedUnit, pacedUnits)
}
