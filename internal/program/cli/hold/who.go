package hold

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"time"

	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/locket-service/locket/internal/program/cli/exit"
	"github.com/locket-service/locket/internal/program/cli/printable"
	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/models/jsonview"
)

// nobody is said of a resource that was not granted though nobody holds it.
const nobody = "held by nobody now (after a restore nothing is granted for a time: locket status)"

// Holders names the holders of a resource: held by "me" (build 17) and 2 more. It returns "" if nobody holds it or waits for it.
// when returns the words about the holder's time.
func Holders(queue *models.Queue, when func(*models.Claim) string) string {
	holders := queue.GetHolders()
	switch {
	case len(holders) == 0 && queue.GetWaiting() > 0:
		return nobody
	case len(holders) == 0:
		return ""
	}
	text := heldBy(holders[0]) + when(holders[0])
	if more := len(holders) - 1; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

func heldBy(holder *models.Claim) string {
	text := "held by " + name(holder)
	if value := ValueOf(holder); value != "" {
		text += " (" + value + ")"
	}
	return text
}

// maxValue is how many columns of a value fit into a sentence.
const maxValue = 60

// ValueOf returns the beginning of a claim's value that fits into a sentence, "" if the claim has none.
func ValueOf(c *models.Claim) string {
	if c.GetValue() == "" {
		return ""
	}
	return printable.Shortened(printable.Quoted(c.GetValue()), maxValue)
}

// name returns the owner of a claim, or its session or id.
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

func heldFor(c *models.Claim) string {
	return " for " + printable.Duration(jsonview.Seconds(c.GetActiveDuration()).Duration(), 2)
}

// heldSince is since when a claim has held, by the server's clock.
func heldSince(c *models.Claim) string {
	at := time.Time(jsonview.OfClaim(c).Since())
	return fmt.Sprintf(" since %s (%s ago)", at.Format(time.RFC3339), printable.Duration(jsonview.Seconds(c.GetActiveDuration()).Duration(), 1))
}

// Free returns the error for a lock that is not held, or not by the grant with this token (0: by any), if err is that.
func Free(err error, name string, token uint64) error {
	switch models.ReasonOf(err) {
	case models.ReasonResourceNotFound:
	case models.ReasonRolledBack:
		return exit.With(exit.NotFound, fmt.Errorf("%q has not come to token %d yet: it is another lock's token, or the database was rolled back to an older state", name, token))
	default:
		return err
	}
	what := fmt.Sprintf("nobody holds %q", name)
	if token != 0 {
		what = fmt.Sprintf("the grant of %q with token %d is over; to see who holds it: locket resource %s", name, token, printable.ShellQuoted(name))
	}
	return exit.With(exit.NotFound, fmt.Errorf("%s: %s", status.Convert(err).Message(), what))
}

// Taken returns the error for a resource that others hold if err is a collision, and err otherwise. It asks the server for the time
// of the grant and the value.
func Taken(ctx context.Context, client models.LocketClient, err error, resource string) error {
	if models.ReasonOf(err) != models.ReasonLockCollision {
		return err
	}
	by, told := "held by others", models.ErrorInfoOf(err).GetMetadata() // nothing is told of a holder that the caller may not see
	if holder, known := told["holder"]; known {
		by = "held by " + strconv.Quote(holder)
	} else if _, known := told["mode"]; known {
		by += ", in shared mode"
	}
	queue, _ := client.GetQueue(ctx, &models.GetQueueRequest{Resource: resource, Limit: proto.Uint32(1)})
	by = cmp.Or(Holders(queue, heldSince), by)
	if queue.GetWaiting() > 0 {
		by += fmt.Sprintf(", %d wait", queue.GetWaiting())
	}
	return exit.With(exit.Held, fmt.Errorf("%s: %q is %s; to see the queue: locket resource %s",
		status.Convert(err).Message(), resource, by, printable.ShellQuoted(resource)))
}
