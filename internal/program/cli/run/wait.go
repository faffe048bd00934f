package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/locket-service/locket/internal/program/cli/connect"
	"github.com/locket-service/locket/internal/program/cli/exit"
	"github.com/locket-service/locket/internal/program/cli/hold"
	"github.com/locket-service/locket/internal/program/cli/printable"
	"github.com/locket-service/locket/internal/program/cli/tty"
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
	tells := k.line == nil && (k.Verbose || tty.Is(k.stderr)) // what runs unattended says only what went wrong
	known, place, since := false, "", time.Time{}
	// atLook says for whom it waits, as far as a server says so at once; what it does not say comes with the next look.
	atLook := func() (err error) {
		if !known {
			if known, err = k.selfWait(l); err != nil {
				return err
			}
		}
		switch {
		case k.line != nil:
			k.showWait(l, since)
		case tells:
			place = k.sayPlace(l, place)
		case known:
			looks = nil
		}
		return nil
	}
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
			looks, since = look.C, time.Now()
			if err := atLook(); err != nil {
				return k.withdraw(err)
			}
		case <-looks:
			if err := atLook(); err != nil {
				return k.withdraw(err)
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
const lookInterval = hold.LineInterval

// showWait rewrites the line that says for whom a claim has waited since a moment.
func (k *kept) showWait(l *keptLock, since time.Time) {
	k.line.Show("locket: " + hold.Line(context.Background(), k, l.name, l.id(), time.Since(since)))
}

// sayPlace says for whom a claim waits, and at which place, unless that was the last that was said; the first time with what else helps. It
// returns what was said last.
func (k *kept) sayPlace(l *keptLock, last string) string {
	place, help := k.place(l), ""
	if place == "" || place == last {
		return last
	}
	if last == "" {
		help = "; waiting for its turn; to see the queue: locket resource " + printable.ShellQuoted(l.name)
	}
	k.say("%q: %s%s", l.name, place, help)
	return place
}

// place says for whom a claim waits, and at which place of the line; "" if no server says so at once.
func (k *kept) place(l *keptLock) string {
	claim := k.lastOf(l, atOnce)
	if claim.GetStatus() != models.Status_STATUS_WAITING {
		return ""
	}
	queue, err := k.queueOf(l, atOnce)
	if isUnanswered(err) {
		return ""
	}
	return k.who(queue) + ", " + hold.Place(claim)
}

// selfWait returns an error if a lock is held by a locket run of which this one is the command, or a part of it:
// that waits for the end of this one. It reports whether that is known: a server that does not answer at once is to be asked again.
func (k *kept) selfWait(l *keptLock) (known bool, err error) {
	queue, err := k.queueOf(l, atOnce)
	around := strings.Fields(os.Getenv(aroundVariable))
	for _, holder := range queue.GetHolders() {
		if slices.Contains(around, holder.GetId()) {
			return true, k.conflict(fmt.Errorf("%q is held by a locket run that this one runs under, which waits for its end", l.name))
		}
	}
	return !isUnanswered(err), nil
}

// isUnanswered reports whether a call may have another answer when it is made again.
func isUnanswered(err error) bool {
	return status.Code(err) == codes.DeadlineExceeded || status.Code(err) == codes.Unavailable
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
	queue, _ := k.queueOf(l, k.Timeout)
	return k.conflict(fmt.Errorf("%q was not acquired%s: %s", l.name, within, k.who(queue)))
}

// who names the holders of a lock by its queue, which may be nil.
func (k *kept) who(queue *models.Queue) string {
	return cmp.Or(hold.Who(queue, hold.Untimed), "others came first")
}

// unreachable returns why no server has made the claim.
func (k *kept) unreachable(l *keptLock) error {
	if _, err := k.queueOf(l, atOnce); err != nil {
		return k.Explain(err)
	}
	if refusal := l.refusal.Load(); refusal != nil {
		return k.Explain(*refusal)
	}
	return fmt.Errorf("no answer from %s within %s", k.Address(), k.Timeout)
}

// atOnce is how long an answer is awaited that is asked for while something else is waited for.
const atOnce = time.Second

// queueOf returns the queue of a lock, if a server answers in time.
func (k *kept) queueOf(l *keptLock, within time.Duration) (*models.Queue, error) {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	return k.GetQueue(ctx, &models.GetQueueRequest{Resource: l.name})
}

// notAcquired returns the error for a runner that has ended before all locks were held, while
// another one was awaited.
func (k *kept) notAcquired(end ending, awaited *keptLock) error {
	wire, err, ended := connect.ErrorOfCall(end.err), end.err, models.ClaimEndedError{}
	if deadlock := (*models.DeadlockError)(nil); errors.As(err, &deadlock) {
		return k.conflict(fmt.Errorf("%q was not acquired: %s", end.lock.name, status.Convert(deadlock).Message()))
	}
	if errors.As(err, &ended) {
		err = fmt.Errorf("%w while %q was awaited", ended, awaited.name)
	}
	switch {
	case end.lock != awaited:
		return k.conflict(fmt.Errorf("the lock %q is lost: %w", end.lock.name, err))
	case errors.Is(end.err, models.ErrLockCollision), models.ReasonOf(wire) == models.ReasonLockCollision: // it was to be free at once
		return k.tooLate(end.lock)
	case ended != models.ClaimEndedError{}:
		return k.conflict(err)
	case wire != nil:
		return k.Explain(wire)
	}
	return err
}

// lastOf returns the claim as it is or has ended, nil if no server says so in time.
func (k *kept) lastOf(l *keptLock, within time.Duration) *models.Claim {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	claim, _ := k.GetClaim(ctx, &models.GetClaimRequest{Id: l.id()})
	return claim
}
