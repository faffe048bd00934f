package cli

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"google.golang.org/grpc/status"

	"github.com/locket-service/locket/internal/cli/exit"
	"github.com/locket-service/locket/internal/cli/printable"
	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/models/jsonview"
)

// free returns the error for a lock that is not held, or not by the grant with this token (0:
// by any), if err is that.
func free(err error, name string, token uint64) error {
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

// held returns the error for a lock that another owner holds, if err is that. It asks the
// server since when.
func (c *connection) held(ctx context.Context, err error, name string) error {
	if models.ReasonOf(err) != models.ReasonLockCollision {
		return err
	}
	by, told := "others", models.ErrorInfoOf(err).GetMetadata() // nothing is told of a holder that the caller may not see
	if holder, known := told["holder"]; known {
		by = strconv.Quote(holder)
	} else if _, known := told["mode"]; known {
		by += ", in shared mode"
	}
	queue, _ := c.GetQueue(ctx, &models.GetQueueRequest{Resource: name})
	for _, holder := range queue.GetHolders() {
		if holder.GetId() == told["claim_id"] {
			v := viewClaim(holder)
			by += fmt.Sprintf(" since %s (%s)", time.Time(v.since().at).Format(jsonview.TimeFormat), look{now: time.Now()}.ago(v.since()))
		}
	}
	if queue.GetWaiting() > 0 {
		by += fmt.Sprintf(", %d wait", queue.GetWaiting())
	}
	return exit.With(exit.Held, fmt.Errorf("%s: %s is held by %s; to see the queue: locket resource %s",
		status.Convert(err).Message(), strconv.Quote(name), by, printable.ShellQuoted(name)))
}
