package hold

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

	"github.com/locket-service/locket/internal/program/cli/connect"
	"github.com/locket-service/locket/internal/program/cli/exit"
	"github.com/locket-service/locket/internal/program/cli/printable"
	locklib "github.com/locket-service/locket/lock"
	"github.com/locket-service/locket/models"
)

// Help is the part of --help that the commands with --hold share.
const Help = `With --hold the command keeps it, renewing it, until it gets INT (Ctrl-C), TERM or HUP:
then it is released, and the status is 0. If it is lost, the command ends with status 5.`

// holding is a claim or a lock that has been requested, and must be kept.
type holding struct {
	*connect.Connection
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

// KeepClaim keeps a claim that has just been made by a request, and waits at most so long (0: for ever) for its turn. show is called
// when the claim is active. KeepClaim returns when the claim was released because ctx or HUP interrupted the command, or was lost,
// which is an error with exit.Lost.
func KeepClaim(ctx context.Context, c *connect.Connection, stderr io.Writer, req *models.CreateClaimRequest, claim *models.Claim, wait time.Duration, show func(*models.Claim) error) error {
	req.Id, req.Owner = claim.GetId(), claim.GetOwner()
	waitTTL := time.Duration(req.GetWaitTtl() * float64(time.Second))
	h := &holding{
		Connection: c, stderr: stderr, name: claim.GetResource(), ttl: time.Duration(req.GetTtl() * float64(time.Second)), wait: wait,
		newRunner: func(options ...locklib.Option) *locklib.Runner {
			if options = append(options, locklib.WithWaitTTL(waitTTL)); !req.GetAllowDeadlock() {
				options = append(options, locklib.WithoutDeadlock())
			}
			return locklib.NewClaimRunner(c.LocketClient, req, options...)
		},
		giveUp: func(ctx context.Context) error {
			_, err := c.EndClaim(ctx, &models.EndClaimRequest{Id: claim.GetId()})
			return err
		},
		show: func(ctx context.Context, token uint64) error {
			ctx, cancel := context.WithTimeout(ctx, c.Timeout)
			defer cancel()
			held, err := holder(ctx, c, claim.GetResource(), token)
			if err != nil {
				return nil //nolint:nilerr // the runner keeps it, or says why not
			}
			return show(held)
		},
	}
	if claim.GetStatus() == models.Status_STATUS_WAITING {
		h.waiting = claim
	}
	return h.keep(ctx)
}

// KeepLock is KeepClaim for a lock that a request has just taken, with a token.
func KeepLock(ctx context.Context, c *connect.Connection, stderr io.Writer, req *models.LockRequest, token uint64, show func(token uint64) error) error {
	ttl := time.Duration(req.GetTtlInSeconds()) * time.Second
	h := &holding{
		Connection: c, stderr: stderr, name: req.GetResource().GetKey(), ttl: ttl, wait: ttl,
		newRunner: func(options ...locklib.Option) *locklib.Runner {
			return locklib.NewLockRunner(c.LocketClient, req.GetResource(), ttl, 0, options...)
		},
		giveUp: func(ctx context.Context) error {
			_, err := c.Release(ctx, &models.ReleaseRequest{Resource: req.GetResource(), Token: &token})
			return err
		},
		show: func(_ context.Context, token uint64) error { return show(token) },
	}
	return h.keep(ctx)
}

func (h *holding) keep(ctx context.Context) error {
	ctx, stop := keeping(ctx)
	defer stop()
	if h.waiting != nil {
		h.say("%q is %s; the claim %s waits for its turn; Ctrl-C withdraws it", h.name, whoHolds(ctx, h.Connection, h.name), h.waiting.GetId())
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
	return UntilHangUp(ctx)
}

// UntilHangUp returns a context that HUP ends, too, unless that is ignored, as under nohup.
func UntilHangUp(ctx context.Context) (context.Context, context.CancelFunc) {
	if signal.Ignored(syscall.SIGHUP) {
		return context.WithCancel(ctx)
	}
	return signal.NotifyContext(ctx, syscall.SIGHUP)
}

// begin returns when the runner holds what it is to keep.
func (h *holding) begin(ctx context.Context, process ifrit.Process) error {
	defer ShowLine(ctx, h, h.stderr, h.waiting)()
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
		err = tooLate(ctx, h.Connection, h.name, h.wait)
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
		err = errors.Join(err, h.stays())
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
	if _, err := holder(ctx, h, h.name, token); !errors.Is(err, errNoHolder) {
		return h.stays()
	}
	h.say("%q is released", h.name)
	return nil
}

// stays returns the error for a claim whose end no server has confirmed.
func (h *holding) stays() error {
	longest := h.ttl
	if h.waiting != nil {
		longest = max(longest, time.Duration(h.waiting.GetWaitTtl()*float64(time.Second))) // its turn may have come
	}
	return fmt.Errorf("no server has released %q; it ends by itself within %s; to see it: locket resource %s", h.name, printable.Duration(longest, 2), printable.ShellQuoted(h.name))
}

var errNoHolder = errors.New("it is not held any more")

// holder returns the claim that holds with a token, or errNoHolder.
func holder(ctx context.Context, client models.LocketClient, name string, token uint64) (*models.Claim, error) {
	queue, err := client.GetQueue(ctx, &models.GetQueueRequest{Resource: name})
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
