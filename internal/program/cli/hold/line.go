package hold

import (
	"context"
	"fmt"
	"io"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/locket-service/locket/internal/program/cli/printable"
	"github.com/locket-service/locket/internal/program/cli/tty"
	"github.com/locket-service/locket/models"
)

// LineInterval is how often the line about a wait is written, and the timeout of the calls for it.
const LineInterval = time.Second

// Line describes a wait to a person: the resource, how long the claim has waited, the holder, and the claim's place in the queue. It
// leaves out whatever no server answers in time.
func Line(ctx context.Context, client models.LocketClient, resource, id string, waited time.Duration) string {
	ctx, cancel := context.WithTimeout(ctx, LineInterval)
	defer cancel()
	text := fmt.Sprintf("waiting for %q for %s", resource, printable.Duration(waited, 2))
	queue, err := client.GetQueue(ctx, &models.GetQueueRequest{Resource: resource, Limit: proto.Uint32(1)})
	if err != nil {
		return text + ": no server says who holds it"
	}
	if who := Who(queue, heldFor); who != "" {
		text += ", " + who
	}
	claim, err := client.GetClaim(ctx, &models.GetClaimRequest{Id: id})
	if err != nil || claim.GetStatus() != models.Status_STATUS_WAITING {
		return text
	}
	return text + ", " + Place(claim)
}

// Place is the place of a waiting claim in its queue.
func Place(claim *models.Claim) string {
	if claim.Position == nil {
		return "far back in the line"
	}
	return fmt.Sprintf("place %d in the line", claim.GetPosition())
}

// ShowLine rewrites a line on a terminal that describes the wait of a claim. The function that it returns removes the line. It
// does nothing elsewhere, or if the claim does not wait.
func ShowLine(ctx context.Context, client models.LocketClient, out io.Writer, claim *models.Claim) (stop func()) {
	line := tty.NewLine(out)
	if claim.GetStatus() != models.Status_STATUS_WAITING || line == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	begun, done := time.Now(), make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			text := Line(ctx, client, claim.GetResource(), claim.GetId(), time.Since(begun))
			if ctx.Err() == nil {
				line.Show("locket: " + text)
			}
			_ = pause(ctx, LineInterval)
		}
	}()
	return func() {
		cancel()
		<-done
		line.Clear()
	}
}
