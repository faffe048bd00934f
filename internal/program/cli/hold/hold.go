package hold

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/signal"
	"syscall"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/locket-service/locket/internal/program/cli/connect"
	"github.com/locket-service/locket/internal/program/cli/exit"
	"github.com/locket-service/locket/internal/program/cli/printable"
	locklib "github.com/locket-service/locket/lock"
	"github.com/locket-service/locket/models"
)

// Help is the part of --help that the commands with --hold share.
const Help = `With --hold the command keeps it and renews it until it gets INT (Ctrl-C), TERM or HUP. Then it releases it, and the status is 0. If it
is lost, the status is 5.`

// KeepClaim keeps a claim that has just been made by a request, and waits at most so long (0: for ever) for its turn. show is called when the claim is
// active. KeepClaim returns when the claim was released because ctx or HUP interrupted the command, or was lost, which is an error with exit.Lost.
func KeepClaim(ctx context.Context, c *connect.Connection, stderr io.Writer, req *models.CreateClaimRequest, claim *models.Claim, wait time.Duration, show func(*models.Claim) error) error {
	s := NewSet(c, NewMessages(stderr), 1)
	k := s.Made(req, claim, s.renewals(claim.GetResource(), seconds(req.GetTtl())))
	return s.keep(ctx, k, wait, func(ctx context.Context, token uint64) error {
		ctx, cancel := c.Request(ctx)
		defer cancel()
		queue, err := c.GetQueue(ctx, &models.GetQueueRequest{Resource: k.Name})
		for _, holder := range queue.GetHolders() {
			if err == nil && holder.GetToken() == token {
				return show(holder)
			}
		}
		return nil // the runner keeps it, or says why not
	})
}

// KeepLock is KeepClaim for a lock that a request has just taken, with a token.
func KeepLock(ctx context.Context, c *connect.Connection, stderr io.Writer, req *models.LockRequest, token uint64, show func(token uint64) error) error {
	s, ttl := NewSet(c, NewMessages(stderr), 1), time.Duration(req.GetTtlInSeconds())*time.Second
	k := s.Taken(req, token, s.renewals(req.GetResource().GetKey(), ttl))
	return s.keep(ctx, k, ttl, func(_ context.Context, token uint64) error { return show(token) })
}

// renewals returns the callbacks that say how renewals fare.
func (s *Set) renewals(name string, ttl time.Duration) locklib.Callbacks {
	return locklib.Callbacks{
		Unverifiable: func(err error) {
			s.Say("%q could not be renewed, and is held for %s more at most; still trying: %v", name, ttl, s.failure(err))
		},
		Verified: func() { s.Say("%q is renewed again", name) },
	}
}

// keep waits for a claim of the set, shows it, and holds it until ctx ends.
func (s *Set) keep(ctx context.Context, k *Kept, wait time.Duration, show func(ctx context.Context, token uint64) error) error {
	after := context.WithoutCancel(ctx)
	ctx, stop := keeping(ctx)
	defer stop()
	late, cancel := context.WithCancel(after)
	defer cancel()
	if wait > 0 {
		time.AfterFunc(wait, cancel)
	}
	if err := s.Await(ctx, k, Wait{Late: late.Done(), For: wait, Tell: Once}); err != nil {
		return errors.Join(err, s.Release(after))
	}
	token, _ := k.Runner.Held()
	if err := show(ctx, token); err != nil {
		return errors.Join(err, s.Release(after))
	}
	s.Say("%q is held, with token %d; Ctrl-C releases it", k.Name, token)
	select {
	case <-ctx.Done():
		if err := s.Release(after); err != nil {
			return err
		}
		s.Say("%q is released", k.Name)
		return nil
	case end := <-s.Ended:
		end.End()
		_ = s.Release(after)
		return exit.With(exit.Lost, fmt.Errorf("%q is lost: %w; to see who holds it: locket resource %s", k.Name, s.cause(end.Err), printable.ShellQuoted(k.Name)))
	}
}

// keeping returns a context that INT, TERM and HUP end. From then on the end of standard error does not end the process before it has released what it
// keeps.
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

// cause returns why a claim that was held is lost.
func (s *Set) cause(err error) error {
	if errors.Is(err, locklib.ErrTimeUp) {
		return fmt.Errorf("no renewal succeeded in time: %w", s.failure(err))
	}
	return endOf(err)
}

// failure returns why a renewal failed.
func (s *Set) failure(err error) error {
	wire := connect.ErrorOfCall(err)
	switch status.Code(wire) {
	case codes.OK:
		return locklib.ErrTimeUp
	case codes.DeadlineExceeded, codes.Unavailable: // a runner's attempts have timeouts that nobody has given
		return fmt.Errorf("no answer from %s: does the server run?", s.Address())
	default:
		return s.Explain(wire)
	}
}
