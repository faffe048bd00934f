package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/tedsuo/ifrit"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/locket-service/locket/internal/cli/connect"
	"github.com/locket-service/locket/internal/cli/exit"
	"github.com/locket-service/locket/internal/cli/printable"
	locklib "github.com/locket-service/locket/lock"
	"github.com/locket-service/locket/models"
)

// holdHelp is the part of --help that the commands with --hold share.
const holdHelp = `With --hold the command keeps it, renewing it, until it gets INT (Ctrl-C), TERM or HUP:
then it is released, and the status is 0. If it is lost, the command ends with status 5.`

// holding is what --hold keeps.
type holding struct {
	*connection
	stderr io.Writer
	name   string
	ttl    time.Duration
	// newRunner returns the runner that takes it again, and keeps it.
	newRunner func(...locklib.Option) *locklib.Runner
	// show prints the grant with a token when it is held.
	show func(ctx context.Context, token uint64) error
	// giveUp ends what was taken before there was a runner.
	giveUp func(ctx context.Context) error
	// wait is how long to wait for it; 0 is for ever.
	wait time.Duration
	// waiting is the claim that waits for it, nil if none does.
	waiting *models.Claim
}

// hold returns when what is kept was released because the command was interrupted, or was lost,
// which is an error with exit.Lost.
func (h *holding) hold(ctx context.Context) error {
	ctx, stop := keeping(ctx)
	defer stop()
	if h.waiting != nil {
		h.say("%q is held by others; the claim %s waits for its turn; Ctrl-C withdraws it", h.name, h.waiting.GetId())
	}
	runner := h.newRunner(locklib.WithCallbacks(locklib.Callbacks{
		Unverifiable: func(err error) {
			h.say("%q could not be renewed, and is held for %s more at most; still trying: %v", h.name, h.ttl, h.failure(err))
		},
		Verified: func() { h.say("%q is renewed again", h.name) },
	}))
	process := ifrit.Background(runner)
	if err := h.begin(ctx, process); err != nil {
		return err
	}
	token, _ := runner.Held()
	if err := h.show(ctx, token); err != nil {
		return errors.Join(err, h.release(process, token))
	}
	h.say("%q is held, with token %d; Ctrl-C releases it", h.name, token)
	select {
	case <-ctx.Done():
		return h.release(process, token)
	case err := <-process.Wait():
		return exit.With(exit.Lost, fmt.Errorf("%q is lost: %w; to see who holds it: locket resource %s", h.name, h.cause(err), printable.ShellQuoted(h.name)))
	}
}

// keeping returns the context of a process that keeps something until it is told to end, by HUP, too. From then on a line that nobody reads is lost, and does not end the process before it has released what it keeps.
func keeping(ctx context.Context) (context.Context, context.CancelFunc) {
	signal.Ignore(syscall.SIGPIPE)
	return untilHangUp(ctx)
}

// untilHangUp returns a context that HUP ends, too, unless that is ignored, as under nohup.
func untilHangUp(ctx context.Context) (context.Context, context.CancelFunc) {
	if signal.Ignored(syscall.SIGHUP) {
		return context.WithCancel(ctx)
	}
	return signal.NotifyContext(ctx, syscall.SIGHUP)
}

// begin returns when the runner holds what it is to keep.
func (h *holding) begin(ctx context.Context, process ifrit.Process) error {
	defer h.showWait(ctx, h.stderr, h.waiting)()
	var late <-chan time.Time
	if h.wait > 0 {
		late = time.After(h.wait)
	}
	var err error
	ended := false
	select {
	case <-process.Ready():
		return nil
	case refused := <-process.Wait():
		err, ended = endOf(h.Explain(refused)), true
	case <-late:
		err = exit.With(exit.Held, fmt.Errorf("%q was not acquired within %s, and is not waited for any more; to see who holds it: locket resource %s",
			h.name, h.wait, printable.ShellQuoted(h.name)))
	case <-ctx.Done():
		err = exit.With(exit.Interrupted, fmt.Errorf("interrupted before %q was held", h.name))
	}
	if !ended {
		process.Signal(os.Interrupt)
		err = errors.Join(err, <-process.Wait())
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), answerTime)
	defer cancel()
	if unclear(h.giveUp(ctx)) { // the runner has done it, unless it ended before it had asked for anything
		err = errors.Join(err, fmt.Errorf("its claim may stay until its TTL, or its wait TTL, has passed; to see it: locket resource %s", printable.ShellQuoted(h.name)))
	}
	return err
}

// cause returns why what was held is lost.
func (h *holding) cause(err error) error {
	if errors.Is(err, locklib.ErrTimeUp) {
		return fmt.Errorf("no renewal succeeded in time: %w", h.failure(err))
	}
	return endOf(err)
}

// endOf returns how a claim has ended, if an error tells that, and otherwise the error.
func endOf(err error) error {
	if ended := (models.ClaimEndedError{}); errors.As(err, &ended) {
		return ended
	}
	return err
}

// failure returns why a renewal failed.
func (h *holding) failure(err error) error {
	wire := connect.ErrorOfCall(err)
	switch status.Code(wire) {
	case codes.OK:
		return locklib.ErrTimeUp
	case codes.DeadlineExceeded, codes.Unavailable: // a runner's attempts have timeouts that nobody has given
		return fmt.Errorf("no answer from %s: does the server run?", h.Address())
	default:
		return h.Explain(wire)
	}
}

// release ends the runner, which releases or withdraws what it keeps, and checks that it did.
func (h *holding) release(process ifrit.Process, token uint64) error {
	process.Signal(os.Interrupt)
	if err := <-process.Wait(); err != nil {
		return h.Explain(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), h.Timeout)
	defer cancel()
	if _, err := h.holder(ctx, h.name, token); !errors.Is(err, errNoHolder) {
		return fmt.Errorf("%q may not be released: then it is free when its TTL of %s has passed", h.name, h.ttl)
	}
	h.say("%q is released", h.name)
	return nil
}

var errNoHolder = errors.New("it is not held any more")

// holder returns the claim that holds with a token, or errNoHolder.
func (c *connection) holder(ctx context.Context, name string, token uint64) (*models.Claim, error) {
	queue, err := c.GetQueue(ctx, &models.GetQueueRequest{Resource: name})
	if err != nil {
		return nil, err
	}
	for _, holder := range queue.GetHolders() {
		if holder.GetToken() == token {
			return holder, nil
		}
	}
	return nil, errNoHolder
}

// say writes one line about what happens.
func (h *holding) say(format string, args ...any) {
	fmt.Fprintln(h.stderr, "locket:", printable.OneLine(fmt.Sprintf(format, args...)))
}
