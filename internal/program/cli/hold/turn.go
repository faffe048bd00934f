package hold

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/locket-service/locket/internal/base/periodic"
	"github.com/locket-service/locket/internal/program/cli/connect"
	"github.com/locket-service/locket/internal/program/cli/exit"
	"github.com/locket-service/locket/internal/program/cli/printable"
	"github.com/locket-service/locket/internal/program/cli/tty"
	"github.com/locket-service/locket/models"
)

// Telling is how much a wait tells where its line cannot be rewritten.
type Telling int

const (
	Nothing Telling = iota
	Once            // the holder and the place in the queue
	Changes         // the same, again after each change
)

// Wait says how long a command waits for a turn, and what it tells.
type Wait struct {
	// Late is closed when the time is up. It is nil for a wait without end.
	Late <-chan struct{}
	// For is the same time, for a message; 0 is not at all.
	For  time.Duration
	Tell Telling
}

// turn is a wait for the turn of a claim.
type turn struct {
	*connect.Connection
	*Messages
	Wait
	resource string
	id       func() string // of the claim, "" if it is not known
	// queued is closed when a server has answered that the claim waits, active when the claim no longer does.
	queued, active <-chan struct{}
	ended          <-chan *EndedError
	// refusal is the last one of a server, nil for a claim that is queued from the beginning.
	refusal *atomic.Pointer[error]

	since time.Time // the claim has waited
	said  string
}

// errLate says that the time of a wait is up.
var errLate = errors.New("the time is up")

// await returns nil when the claim is active. It returns an EndedError, errLate, the error of ctx, the reason why no server can be reached,
// or a NotAcquiredError for a claim that would wait for ever.
func (t *turn) await(ctx context.Context) (err error) {
	defer t.line.Clear()
	ticker := time.NewTicker(lookInterval)
	defer ticker.Stop()
	var looks <-chan time.Time
	queued, late, silent := t.queued, t.Late, time.After(t.Timeout)
	for isLate := false; ; {
		select {
		case <-t.active:
			return nil
		case end := <-t.ended:
			return end
		case <-ctx.Done():
			return ctx.Err()
		case <-queued:
			if isLate {
				return errLate
			}
			queued, silent, t.since = nil, nil, time.Now()
			if looks, err = t.look(ctx, ticker.C); err != nil {
				return err
			}
		case <-looks:
			if looks, err = t.look(ctx, looks); err != nil {
				return err
			}
		case <-late:
			late, isLate = nil, true
			switch {
			case queued == nil:
				return errLate
			case silent == nil:
				return t.unreachable(ctx)
			} // the first answer may be that the claim is active
		case <-silent:
			switch silent = nil; {
			case periodic.IsClosed(t.queued): // this process stood still meanwhile
			case isLate:
				return t.unreachable(ctx)
			default:
				t.Say("%v; still trying", t.unreachable(ctx))
			}
		}
	}
}

// lookInterval is how often the queue is read, and the timeout of the calls for it.
const lookInterval = time.Second

// look reads the queue and describes the wait. It returns next, or nil if another look can tell no more, and an error if the claim would wait for ever.
func (t *turn) look(ctx context.Context, next <-chan time.Time) (<-chan time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, lookInterval)
	defer cancel()
	queue, err := t.GetQueue(ctx, &models.GetQueueRequest{Resource: t.resource, Limit: proto.Uint32(1)})
	if err := selfWait(queue); err != nil {
		return nil, err
	}
	answered := !slices.Contains([]codes.Code{codes.DeadlineExceeded, codes.Unavailable, codes.Canceled}, status.Code(err))
	switch {
	case t.line != nil:
		t.line.Show("locket: " + t.text(ctx, queue, err))
		return next, nil
	case answered && t.Tell != Nothing:
		t.sayPlace(ctx, queue)
	}
	if answered && t.Tell == Nothing || t.Tell == Once && t.said != "" {
		return nil, nil
	}
	return next, nil
}

// RunsVariable has the ids of the claims of all `locket run` that a process runs under, which wait for its end.
const RunsVariable = "LOCKET_RUNS"

// selfWait returns an error if the resource is held by a `locket run` that is an ancestor of this process.
func selfWait(queue *models.Queue) error {
	around := strings.Fields(os.Getenv(RunsVariable))
	for _, holder := range queue.GetHolders() {
		if slices.Contains(around, holder.GetId()) {
			return notAcquired(exit.Held, "%q is held by a locket run that this command runs under, which waits for its end", queue.GetResource())
		}
	}
	return nil
}

// text describes the wait: the resource, how long the claim has waited, the holder, and the claim's place in the queue. It leaves out whatever no
// server answers in time.
func (t *turn) text(ctx context.Context, queue *models.Queue, failed error) string {
	text := fmt.Sprintf("waiting for %q for %s", t.resource, printable.Duration(time.Since(t.since), 2))
	if failed != nil {
		return text + ": no server says who holds it"
	}
	if who := Holders(queue, heldFor); who != "" {
		text += ", " + who
	}
	if place := t.place(ctx); place != "" {
		text += ", " + place
	}
	return text
}

// sayPlace says who holds the resource and the claim's place in the queue, if either has changed. The first time it adds how to see the queue.
func (t *turn) sayPlace(ctx context.Context, queue *models.Queue) {
	place := t.place(ctx)
	if place == "" {
		return
	}
	place, help := cmp.Or(Holders(queue, Untimed), othersFirst)+", "+place, ""
	if place == t.said {
		return
	}
	if t.said == "" {
		help = "; waiting for its turn (Ctrl-C withdraws it); to see the queue: locket resource " + printable.ShellQuoted(t.resource)
	}
	t.said = place
	t.Say("%q: %s%s", t.resource, place, help)
}

// place returns the claim's place in the queue, "" if it does not wait or no server answers in time.
func (t *turn) place(ctx context.Context) string {
	claim, err := t.GetClaim(ctx, &models.GetClaimRequest{Id: t.id()})
	if err != nil || claim.GetStatus() != models.Status_STATUS_WAITING {
		return ""
	}
	return placeOf(claim) + " in the queue"
}

// placeOf names the place of a waiting claim, as far as the server counts.
func placeOf(claim *models.Claim) string {
	if claim.Position == nil {
		return "a place far back"
	}
	return fmt.Sprintf("place %d", claim.GetPosition())
}

// unreachable returns why no server has answered the request for the claim.
func (t *turn) unreachable(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, lookInterval)
	defer cancel()
	if _, err := t.GetQueue(ctx, &models.GetQueueRequest{Resource: t.resource, Limit: proto.Uint32(1)}); err != nil {
		return t.Explain(err)
	}
	if refusal := t.refusal.Load(); refusal != nil {
		return t.Explain(*refusal)
	}
	return fmt.Errorf("no answer from %s within %s", t.Address(), t.Timeout)
}

// NotAcquiredError says why a claim was not acquired though servers answer: its time is up, or it was ended. It wraps an *exit.Error.
type NotAcquiredError struct{ error }

// Unwrap returns the error with a status.
func (e NotAcquiredError) Unwrap() error { return e.error }

func notAcquired(status int, format string, args ...any) error {
	return NotAcquiredError{exit.With(status, fmt.Errorf(format, args...))}
}

// tooLate returns the error for a claim whose turn did not come in time, or at once if that is 0.
func tooLate(ctx context.Context, c *connect.Connection, resource string, wait time.Duration) error {
	ctx, cancel := c.Request(context.WithoutCancel(ctx))
	defer cancel()
	within := ""
	if wait > 0 {
		within = fmt.Sprintf(" within %s", wait)
	}
	who := othersFirst
	if queue, err := c.GetQueue(ctx, &models.GetQueueRequest{Resource: resource, Limit: proto.Uint32(1)}); err == nil {
		who = cmp.Or(Holders(queue, Untimed), nobody)
	}
	return notAcquired(exit.Held, "%q was not acquired%s: %s; to see the queue: locket resource %s", resource, within, who, printable.ShellQuoted(resource))
}

// othersFirst is said of holders that are not known.
const othersFirst = "others came first"

// interrupted returns the error of a command that was interrupted while it waited.
func interrupted(resource string) error {
	return exit.With(exit.Interrupted, fmt.Errorf("interrupted before %q was held", resource))
}

// Messages writes what happens to standard error, one line each. On a terminal the last line may describe a wait, and be rewritten.
type Messages struct {
	out  io.Writer
	line *tty.Line // nil if a line cannot be rewritten there
}

// NewMessages returns messages that go to standard error.
func NewMessages(stderr io.Writer) *Messages {
	return &Messages{out: stderr, line: tty.NewLine(stderr)}
}

// Say writes a line.
func (m *Messages) Say(format string, args ...any) {
	m.line.Clear()
	fmt.Fprintln(m.out, "locket:", printable.OneLine(fmt.Sprintf(format, args...)))
}

// Watched reports whether a person reads the messages.
func (m *Messages) Watched() bool { return tty.Is(m.out) }
