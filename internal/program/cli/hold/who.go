package hold

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/locket-service/locket/internal/program/cli/printable"
	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/models/jsonview"
)

// Who says who holds a resource, "" if nobody does: held by "me" (build 17) and 2 more. when is what to say of a holder's
// time; the holder's value is asked for, as a queue has none.
func Who(ctx context.Context, client models.LocketClient, queue *models.Queue, when func(*models.Claim) string) string {
	holders := queue.GetHolders()
	if len(holders) == 0 {
		return ""
	}
	text := heldBy(ctx, client, holders[0]) + when(holders[0])
	if more := len(holders) - 1; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// whoHolds is Who for a resource that others hold.
func whoHolds(ctx context.Context, client models.LocketClient, resource string) string {
	ctx, cancel := context.WithTimeout(ctx, LineInterval)
	defer cancel()
	queue, _ := client.GetQueue(ctx, &models.GetQueueRequest{Resource: resource, Limit: proto.Uint32(1)})
	return cmp.Or(Who(ctx, client, queue, Untimed), "held by others")
}

func heldBy(ctx context.Context, client models.LocketClient, holder *models.Claim) string {
	text := "held by " + name(holder)
	if value := ValueOf(ctx, client, holder); value != "" {
		text += " (" + value + ")"
	}
	return text
}

// maxValue is how many columns of a value fit into a sentence.
const maxValue = 60

// ValueOf returns the value of a claim, as much of it as fits into a sentence; "" if it has none, or no server says.
func ValueOf(ctx context.Context, client models.LocketClient, c *models.Claim) string {
	whole, err := client.GetClaim(ctx, &models.GetClaimRequest{Id: c.GetId()})
	if err != nil || whole.GetValue() == "" {
		return ""
	}
	return printable.Shortened(printable.Quoted(whole.GetValue()), maxValue)
}

// name returns the owner of a claim, or what else it is known by.
func name(c *models.Claim) string {
	switch {
	case c.GetOwner() != "":
		return strconv.Quote(c.GetOwner())
	case c.GetSession() != "":
		return "the session " + printable.Quoted(c.GetSession())
	}
	return "the claim " + c.GetId()
}

// Untimed says nothing of a holder's time.
func Untimed(*models.Claim) string { return "" }

// heldFor is for how long a claim has held.
func heldFor(c *models.Claim) string {
	return " for " + printable.Duration(jsonview.Seconds(c.GetActiveDuration()).Duration(), 2)
}

// heldSince is since when a claim has held, by the server's clock.
func heldSince(c *models.Claim) string {
	at := time.Time(jsonview.OfClaim(c).Since())
	return fmt.Sprintf(" since %s (%s ago)", at.Format(jsonview.TimeFormat), printable.Duration(jsonview.Seconds(c.GetActiveDuration()).Duration(), 1))
}
