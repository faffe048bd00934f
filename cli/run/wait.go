package run

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"google.golang.org/grpc/status"

	"github.com/locket-service/locket/cli/exit"
	"github.com/locket-service/locket/models"
)

// awaitTurn returns when the claim is active. Otherwise the claim has ended, and the error has
// the exit status.
func (k *kept) awaitTurn() error {
	var late <-chan time.Time
	if !k.Forever {
		late = time.After(k.Wait)
	}
	var queued <-chan struct{} // nil as long as there is time
	silent := time.After(k.Timeout)
	for {
		select {
		case <-k.process.Ready():
			return nil
		case err := <-k.ended:
			return k.neverActive(err)
		case sig := <-k.signals:
			if deadly(sig) {
				return k.withdraw(signalled(sig))
			}
		case <-queued:
			return k.withdraw(k.tooLate())
		case <-late: // but the first answer is awaited, which may be that it is active
			if late, queued = nil, k.observed.isQueued; silent == nil && !isClosed(queued) {
				return k.withdraw(k.unreachable())
			}
		case <-silent:
			silent = nil
			if queued != nil {
				return k.withdraw(k.unreachable())
			}
			if !isClosed(k.observed.isAnswered) {
				k.say("%v; still trying", k.unreachable())
			}
		}
	}
}

// withdraw withdraws a claim that waits, and returns err.
func (k *kept) withdraw(err error) error {
	if stop := k.release(); stop != nil {
		return stop
	}
	return err
}

// tooLate returns the error for a claim that waits and is not to.
func (k *kept) tooLate() error {
	text := strconv.Quote(k.Name) + " was not acquired"
	if k.Wait > 0 {
		text += fmt.Sprintf(" within %s", k.Wait)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	queue, _ := k.GetQueue(ctx, &models.GetQueueRequest{Resource: k.Name})
	if holders := queue.GetHolders(); len(holders) > 0 {
		text += ": held by " + strconv.Quote(holders[0].GetOwner())
		if len(holders) > 1 {
			text += fmt.Sprintf(" and %d more", len(holders)-1)
		}
	}
	return exit.With(NotAcquired, errors.New(text))
}

// unreachable returns why no server has answered.
func (k *kept) unreachable() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if _, err := k.GetQueue(ctx, &models.GetQueueRequest{Resource: k.Name}); err != nil {
		return k.Explain(err)
	}
	return fmt.Errorf("no answer from %s within %s", k.Address(), k.Timeout)
}

// neverActive returns the error for a runner that has ended before its claim was active.
func (k *kept) neverActive(err error) error {
	if wire := wireError(err); wire != nil {
		return k.Explain(wire)
	}
	if last := k.observed.lastAnswer(); last != nil {
		return exit.With(NotAcquired, fmt.Errorf("the claim %s while it waited", fateOf(last)))
	}
	return err
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
