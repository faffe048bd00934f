package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/locket-service/locket/internal/cli/printable"
	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/models/jsonview"
)

const (
	// waitInterval is how often the line is rewritten that says for whom a claim waits.
	waitInterval = time.Second
	// rewriteLine begins a line anew, which is empty then.
	rewriteLine = "\r\x1b[K"
)

// showWait says on a terminal, on one line that is rewritten, for whom a claim waits, at which place and for how long. The
// function that it returns ends that, and leaves no line. Elsewhere nothing is said.
func (c *connection) showWait(ctx context.Context, out io.Writer, claim *models.Claim) (stop func()) {
	if term := os.Getenv("TERM"); claim.GetStatus() != models.Status_STATUS_WAITING || !isTerminal(out) || term == "" || term == "dumb" {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	begun, done := time.Now(), make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			text := c.waitText(ctx, claim, time.Since(begun))
			if ctx.Err() == nil {
				_, _ = io.WriteString(out, rewriteLine+printable.Shortened(text, widthOf(out)-1))
			}
			_ = pause(ctx, waitInterval)
		}
	}()
	return func() {
		cancel()
		<-done
		_, _ = io.WriteString(out, rewriteLine)
	}
}

// waitText is the line of a claim that waits. It says only what a server says at once.
func (c *connection) waitText(ctx context.Context, claim *models.Claim, waited time.Duration) string {
	ctx, cancel := context.WithTimeout(ctx, waitInterval)
	defer cancel()
	text := fmt.Sprintf("locket: waiting for %s for %s", printable.Quoted(claim.GetResource()), brief(waited, 2))
	queue, err := c.GetQueue(ctx, &models.GetQueueRequest{Resource: claim.GetResource(), Limit: proto.Uint32(1)})
	if err != nil {
		return text + ": no server says who holds it"
	}
	switch holders := queue.GetHolders(); len(holders) {
	case 0:
	case 1:
		text += ", held by " + nameOf(refOf(holders[0]))
	default:
		text += fmt.Sprintf(", held by %s and %d more", nameOf(refOf(holders[0])), len(holders)-1)
	}
	now, err := c.GetClaim(ctx, &models.GetClaimRequest{Id: claim.GetId()})
	if err != nil || jsonview.Status(now.GetStatus()) != waiting || now.Position == nil {
		return text
	}
	return text + fmt.Sprintf(", place %d in the line", now.GetPosition())
}
