package claim

import "strings"

// Wait says that a claim waits for another one before it in the queue of its resource. Both are ids.
type Wait struct{ Waiter, Blocker string }

// EndDeadlock aborts the first Waiter of a deadlock. If the deadlock is over, it changes nothing and returns no
// error. The Blocker of each wait has the same owner as the Waiter of the next wait, and the last Blocker the same
// owner as the first Waiter. A claim never returns to an earlier status, so a deadlock lasts while each Waiter waits
// and each Blocker is live.
type EndDeadlock struct{ Waits []Wait }

// Targets implements Command.
func (cmd EndDeadlock) Targets() []Target {
	targets := make([]Target, 0, 2*len(cmd.Waits))
	for _, w := range cmd.Waits {
		targets = append(targets, Target{ID: w.Waiter}, Target{ID: w.Blocker})
	}
	return targets
}

//nolint:unparam // that the deadlock is over is no error
func (cmd EndDeadlock) apply(qs *Queues) (*member, error) {
	q := qs.targets[0]
	m := q.find(cmd.Waits[0].Waiter)
	for _, w := range cmd.Waits {
		if qs.status(w.Waiter) != Waiting || !qs.status(w.Blocker).Live() {
			return m, nil
		}
	}
	q.finish(m, Aborted, deadlockReason(cmd.Waits), qs.Now)
	return m, nil
}

// status returns the status of a claim that is known.
func (qs *Queues) status(id string) Status { return qs.byID[id].find(id).Status }

const (
	// ReasonDeadlock is the beginning of the reason of a claim that was aborted to end a deadlock. The ids of the claims that
	// waited follow, each waiting for the next, the aborted one first.
	ReasonDeadlock = "deadlock: these claims waited for each other: "
	// maxReason is how long a reason may be. The ids that would make it longer are left out.
	maxReason = 1024
)

func deadlockReason(waits []Wait) string {
	reason, separator := ReasonDeadlock, ""
	for _, w := range waits {
		if len(reason)+len(separator)+len(w.Waiter) > maxReason {
			break
		}
		reason, separator = reason+separator+w.Waiter, ", "
	}
	return reason
}

// Deadlock returns the ids of the claims in the deadlock that a claim was aborted for, nil if it was not.
func Deadlock(s Status, reason string) []string {
	ids, found := strings.CutPrefix(reason, ReasonDeadlock)
	if s != Aborted || !found {
		return nil
	}
	return strings.Split(ids, ", ")
}
