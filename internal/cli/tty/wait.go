package tty

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/locket-service/locket/internal/cli/printable"
	"github.com/locket-service/locket/models"
)

// WaitInterval is how often the text of a wait is made anew, and how long it may take.
const WaitInterval = time.Second

// Wait says in one line, for a person who watches, what a claim waits for and for how long it has, who holds that, since
// when, and at which place the claim is: as far as a server says so at once.
func Wait(ctx context.Context, client models.LocketClient, resource, id string, waited time.Duration) string {
	ctx, cancel := context.WithTimeout(ctx, WaitInterval)
	defer cancel()
	text := fmt.Sprintf("waiting for %s for %s", printable.Quoted(resource), printable.Duration(waited, 2))
	queue, err := client.GetQueue(ctx, &models.GetQueueRequest{Resource: resource, Limit: proto.Uint32(1)})
	if err != nil {
		return text + ": no server says who holds it"
	}
	if holders := queue.GetHolders(); len(holders) > 0 {
		held := time.Duration(holders[0].GetActiveDuration() * float64(time.Second))
		text += fmt.Sprintf(", held by %s for %s", holderName(holders[0]), printable.Duration(held, 2))
		if len(holders) > 1 {
			text += fmt.Sprintf(" and %d more", len(holders)-1)
		}
	}
	claim, err := client.GetClaim(ctx, &models.GetClaimRequest{Id: id})
	switch {
	case err != nil || claim.GetStatus() != models.Status_STATUS_WAITING:
		return text
	case claim.Position == nil:
		return text + ", far back in the line"
	}
	return text + fmt.Sprintf(", place %d in the line", claim.GetPosition())
}

func holderName(holder *models.Claim) string {
	switch {
	case holder.GetOwner() != "":
		return printable.Quoted(holder.GetOwner())
	case holder.GetSession() != "":
		return "session " + printable.Quoted(holder.GetSession())
	}
	return "claim " + holder.GetId()
}
