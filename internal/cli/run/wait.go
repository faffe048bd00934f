package run

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/locket-service/locket/internal/cli/connect"
	"github.com/locket-service/locket/internal/cli/exit"
	"github.com/locket-service/locket/internal/cli/printable"
	"github.com/locket-service/locket/internal/cli/tty"
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
	inLine := (<-chan struct{})(l.queued)
	look := time.NewTicker(lookInterval)
	defer look.Stop()
	looks := (<-chan time.Time)(nil)
	place, since := "", time.Time{}
	defer k.line.Clear()
	silent := time.After(k.Timeout)
	for {
		select {
		case <-l.process.Ready():
			<-l.leased // which is told before
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
			if queued != nil {
				continue
			}
			if err := k.selfWait(l); err != nil {
				return k.withdraw(err)
			}
			switch since = time.Now(); {
			case k.line != nil:
				looks = look.C
				k.showWait(l, since)
			case k.Verbose || tty.Is(k.stderr): // what runs unattended says only what went wrong
				looks, place = look.C, k.place(l)
				k.say("%q: %s; waiting for its turn; to see the queue: locket resource %s", l.name, place, printable.ShellQuoted(l.name))
			}
		case <-looks:
			if k.line != nil {
				k.showWait(l, since)
			} else if now := k.place(l); now != "" && now != place {
				place = now
				k.say("%q: %s", l.name, place)
			}
		case <-queued:
			return k.withdraw(k.tooLate(l))
		case <-late: // but the first answer is awaited, which may be that it is active
			if late, queued = nil, l.queued; silent == nil && !isClosed(queued) {
				return k.withdraw(k.unreachable(l))
			}
		case <-silent:
			silent = nil
			if queued != nil {
				return k.withdraw(k.unreachable(l))
			}
			if !l.hasAnswered() {
				k.say("%v; still trying", k.unreachable(l))
			}
		}
	}
}

// lookInterval is how often the holder of a lock, and the place of the waiting claim, are read.
const lookInterval = tty.WaitInterval

// showWait rewrites the line that says for whom a claim has waited since a moment.
func (k *kept) showWait(l *keptLock, since time.Time) {
	k.line.Show("locket run: " + tty.Wait(context.Background(), k, l.name, l.id(), time.Since(since)))
}

// place says for whom a claim waits, and at which place of the line; "" if no server says so at once.
func (k *kept) place(l *keptLock) string {
	claim := k.lastOf(l)
	if claim.GetStatus() != models.Status_STATUS_WAITING {
		return ""
	}
	if claim.Position == nil {
		return k.holders(l) + ", far back in the line"
	}
	return fmt.Sprintf("%s, place %d in the line", k.holders(l), claim.GetPosition())
}

// selfWait returns an error if a lock is held by a locket run of which this one is the command, or a part of it:
// that waits for the end of this one.
func (k *kept) selfWait(l *keptLock) error {
	queue, _ := k.queueOf(l) // it is a help, no more
	around := strings.Fields(os.Getenv(aroundVariable))
	for _, holder := range queue.GetHolders() {
		if slices.Contains(around, holder.GetId()) {
			return k.conflict(fmt.Errorf("%q is held by a locket run that this one runs under, which waits for its end", l.name))
		}
	}
	return nil
}

// withdraw withdraws or releases all claims, and returns err.
func (k *kept) withdraw(err error) error {
	if stop := k.release(); stop != nil {
		return stop
	}
	return err
}

// conflict returns an error that ends the run with the status for locks that are not acquired.
func (k *kept) conflict(err error) error { return conflictError{exit.With(k.ConflictStatus, err)} }

// conflictError is an error whose status counts whatever number it is.
type conflictError struct{ error }

func (e conflictError) Unwrap() error { return e.error }

// tooLate returns the error for a lock whose claim waits and is not to.
func (k *kept) tooLate(l *keptLock) error {
	within := ""
	if k.Wait > 0 {
		within = fmt.Sprintf(" within %s", k.Wait)
	}
	return k.conflict(fmt.Errorf("%q was not acquired%s: %s", l.name, within, k.holders(l)))
}

// holders returns the holders of a lock, as far as the server names them at once.
func (k *kept) holders(l *keptLock) string {
	queue, _ := k.queueOf(l)
	switch holders := queue.GetHolders(); len(holders) {
	case 0:
		return "others came first"
	case 1:
		return "held by " + nameOf(holders[0])
	default:
		return fmt.Sprintf("held by %s and %d more", nameOf(holders[0]), len(holders)-1)
	}
}

// nameOf returns by what a holder is known: its owner, or the id of its claim if it has none.
func nameOf(holder *models.Claim) string {
	if holder.GetOwner() == "" {
		return "the claim " + holder.GetId()
	}
	return strconv.Quote(holder.GetOwner())
}

// unreachable returns why no server has made the claim.
func (k *kept) unreachable(l *keptLock) error {
	if _, err := k.queueOf(l); err != nil {
		return k.Explain(err)
	}
	if refusal := l.refusal.Load(); refusal != nil {
		return k.Explain(*refusal)
	}
	return fmt.Errorf("no answer from %s within %s", k.Address(), k.Timeout)
}

// queueOf returns the queue of a lock, if a server answers at once.
func (k *kept) queueOf(l *keptLock) (*models.Queue, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	return k.GetQueue(ctx, &models.GetQueueRequest{Resource: l.name})
}

// notAcquired returns the error for a runner that has ended before all locks were held, while
// another one was awaited.
func (k *kept) notAcquired(end ending, awaited *keptLock) error {
	wire := connect.ErrorOfCall(end.err)
	switch {
	case end.lock != awaited:
		return k.conflict(fmt.Errorf("the lock %q was lost while %q was awaited: %w", end.lock.name, awaited.name, end.err))
	case errors.Is(end.err, models.ErrLockCollision), models.ReasonOf(wire) == models.ReasonLockCollision: // it was to be free at once
		return k.tooLate(end.lock)
	case wire != nil:
		return k.Explain(wire)
	case end.lock.hasAnswered():
		return k.conflict(fmt.Errorf("the claim %s while it waited", fateOf(k.lastOf(end.lock))))
	}
	return end.err
}

// lastOf returns the claim as it is or has ended, nil if no server says so at once.
func (k *kept) lastOf(l *keptLock) *models.Claim {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	claim, _ := k.GetClaim(ctx, &models.GetClaimRequest{Id: l.id()})
	return claim
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
