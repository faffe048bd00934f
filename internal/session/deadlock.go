package session

import (
	"context"

	"github.com/locket-service/locket/internal/claim"
	"github.com/locket-service/locket/internal/committer"
)

// Deadlocks prevents claims that would close a deadlock.
type Deadlocks interface {
	// Look examines a claim that would have to wait, before it is made. It returns an error if the claim must not be
	// made.
	Look(context.Context, *claim.WouldWaitError) error
	// Check examines a claim that has just begun to wait. It returns an error if it has withdrawn the claim.
	Check(context.Context, *committer.Result) error
}

// mayDeadlock reports whether the claim that a Lock makes may close a deadlock: then somebody waits for another claim of
// the session. It is asked before the claim is made, and once it waits: others may have been made meanwhile. There may be more than are counted
// while the outcome of a command is unknown, and after the end.
func (a *Attached) mayDeadlock(allowed bool) bool {
	only := a.holding+a.waiting+a.making <= 1 && !a.unknown && a.err == nil
	return a.deadlocks != nil && !allowed && !only
}

// check examines a claim that has begun to wait, and calls then unless the session has ended here. Its end does not cancel the search: the claim stays
// in the queue.
func (a *Attached) check(result *committer.Result, then func(error)) {
	a.beside(a.caller, func(ctx context.Context) func() {
		err := a.deadlocks.Check(ctx, result)
		return func() { then(err) }
	})
}

// checked answers a Lock after the search for a deadlock. err is why the claim was withdrawn, nil if it was not.
func (a *Attached) checked(r *resource, cmd Lock, c *claim.Claim, err error) {
	if err == nil {
		a.tell(r, cmd, c)
		a.done(r)
		return
	}
	a.omit(r, c) // its claim has already ended
	a.refuse(r, err)
}

// checkOlder examines a claim that an older stream made, for a Lock that may be the same one again: the search that was to follow the claim may have
// been lost, with its server or with the outcome of its commit.
func (a *Attached) checkOlder(r *resource) {
	id := r.id
	a.beside(a.caller, func(ctx context.Context) func() {
		var refused error
		c, err := a.get(ctx, id)
		if err == nil && c != nil && c.Status == claim.Waiting {
			refused = a.deadlocks.Check(ctx, &committer.Result{Claim: *c})
		}
		return func() {
			if err != nil {
				a.refuse(r, err)
				return
			}
			r.older = false
			if refused == nil {
				a.start(r)
				return
			}
			a.look(r, func() { a.refuse(r, refused) }) // the client is told of the end of the claim first
		}
	})
}
