package run

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"google.golang.org/grpc/status"

	"github.com/locket-service/locket/cli/exit"
	"github.com/locket-service/locket/cli/printable"
	"github.com/locket-service/locket/models"
)

// acquire takes all locks, one after the other, each of which is kept meanwhile; or none: then
// the error has the exit status.
func (k *kept) acquire() error {
	late := make(chan struct{})
	if !k.Forever {
		timer := time.AfterFunc(k.Wait, func() { close(late) })
		defer timer.Stop()
	}
	for _, name := range k.Names {
		if err := k.awaitTurn(k.request(name), late); err != nil {
			return err
		}
	}
	return nil
}

// awaitTurn returns when the claim of a lock is active. Otherwise all claims have ended, and the
// error has the exit status.
func (k *kept) awaitTurn(l *keptLock, late <-chan struct{}) error {
	var queued <-chan struct{} // nil as long as there is time
	inLine := l.observed.isQueued
	if !isTerminal(k.stderr) { // what runs unattended says only what went wrong
		inLine = nil
	}
	silent := time.After(k.Timeout)
	for {
		select {
		case <-l.process.Ready():
			return nil
		case end := <-k.ended:
			end.lock.over = true
			return k.withdraw(k.notAcquired(end, l))
		case sig := <-k.signals:
			if deadly(sig) {
				return k.withdraw(signalled(sig))
			}
		case <-inLine:
			inLine = nil
			if queued == nil {
				k.say("%q: %s; waiting for its turn; to see the queue: locket resource %s", l.name, k.holders(l), printable.ShellQuoted(l.name))
			}
		case <-queued:
			return k.withdraw(k.tooLate(l))
		case <-late: // but the first answer is awaited, which may be that it is active
			if late, queued = nil, l.observed.isQueued; silent == nil && !isClosed(queued) {
				return k.withdraw(k.unreachable(l))
			}
		case <-silent:
			silent = nil
			if queued != nil {
				return k.withdraw(k.unreachable(l))
			}
			if !isClosed(l.observed.isAnswered) {
				k.say("%v; still trying", k.unreachable(l))
			}
		}
	}
}

// withdraw withdraws or releases all claims, and returns err.
func (k *kept) withdraw(err error) error {
	if stop := k.release(); stop != nil {
		return stop
	}
	return err
}

// tooLate returns the error for a lock whose claim waits and is not to.
func (k *kept) tooLate(l *keptLock) error {
	within := ""
	if k.Wait > 0 {
		within = fmt.Sprintf(" within %s", k.Wait)
	}
	return exit.With(NotAcquired, fmt.Errorf("%q was not acquired%s: %s", l.name, within, k.holders(l)))
}

// holders returns who holds a lock, as far as the server says so at once.
func (k *kept) holders(l *keptLock) string {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	queue, _ := k.GetQueue(ctx, &models.GetQueueRequest{Resource: l.name})
	switch holders := queue.GetHolders(); len(holders) {
	case 0:
		return "others came first"
	case 1:
		return "held by " + strconv.Quote(holders[0].GetOwner())
	default:
		return fmt.Sprintf("held by %q and %d more", holders[0].GetOwner(), len(holders)-1)
	}
}

// unreachable returns why no server has answered.
func (k *kept) unreachable(l *keptLock) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if _, err := k.GetQueue(ctx, &models.GetQueueRequest{Resource: l.name}); err != nil {
		return k.Explain(err)
	}
	return fmt.Errorf("no answer from %s within %s", k.Address(), k.Timeout)
}

// notAcquired returns the error for a runner that has ended before all locks were held, while
// another one was awaited.
func (k *kept) notAcquired(end ending, awaited *keptLock) error {
	wire, last := wireError(end.err), end.lock.observed.lastAnswer()
	switch {
	case end.lock != awaited:
		return exit.With(NotAcquired, fmt.Errorf("the lock %q was lost while %q was awaited: %w", end.lock.name, awaited.name, end.err))
	case errors.Is(end.err, models.ErrLockCollision), models.ReasonOf(wire) == models.ReasonLockCollision: // it was to be free at once
		return k.tooLate(end.lock)
	case wire != nil:
		return k.Explain(wire)
	case last != nil:
		return exit.With(NotAcquired, fmt.Errorf("the claim %s while it waited", fateOf(last)))
	}
	return end.err
}

// wireError returns the error of a call that an error wraps, nil if none.
func wireError(err error) error {
	var wire interface{ GRPCStatus() *status.Status }
	if !errors.As(err, &wire) {
		return nil
	}
	return wire.GRPCStatus().Err()
}

// fateOf returns how a claim has ended.
func fateOf(claim *models.Claim) string {
	fate := map[models.Status]string{
		models.Status_STATUS_REVOKED:   "was revoked",
		models.Status_STATUS_EXPIRED:   "expired",
		models.Status_STATUS_RELEASED:  "was released by another client",
		models.Status_STATUS_WITHDRAWN: "was withdrawn by another client",
		models.Status_STATUS_ABORTED:   "was aborted",
	}[claim.GetStatus()]
	if fate == "" {
		return "was lost"
	}
	if reason := claim.GetReason(); reason != "" {
		fate += " (" + reason + ")"
	}
	return fate
}
