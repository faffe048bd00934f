package cli

import (
	"context"
	"io"
	"time"

	"github.com/locket-service/locket/internal/cli/tty"
	"github.com/locket-service/locket/models"
)

// showWait says on a terminal, on one line that is rewritten, for whom a claim waits, at which place and for how long. The
// function that it returns ends that, and leaves no line. Elsewhere nothing is said.
func (c *connection) showWait(ctx context.Context, out io.Writer, claim *models.Claim) (stop func()) {
	line := tty.NewLine(out)
	if claim.GetStatus() != models.Status_STATUS_WAITING || line == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	begun, done := time.Now(), make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			text := tty.Wait(ctx, c, claim.GetResource(), claim.GetId(), time.Since(begun))
			if ctx.Err() == nil {
				line.Show("locket: " + text)
			}
			_ = pause(ctx, tty.WaitInterval)
		}
	}()
	return func() {
		cancel()
		<-done
		line.Clear()
	}
}
