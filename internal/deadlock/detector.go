package deadlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/locket-service/locket/internal/claim"
	"github.com/locket-service/locket/internal/committer"
	"github.com/locket-service/locket/internal/waits"
)

const (
	// lookTimeout is how long a search may take, and endTimeout the withdrawal of a claim that is in a deadlock.
	lookTimeout = time.Second
	endTimeout  = 10 * time.Second
	// attempts is how many searches the answer to a claim that has begun to wait may wait for: nobody looks later.
	attempts = 3
	// confirmations is how often a search is repeated that has found a deadlock.
	confirmations = 5
	// turn is for how many times the longest search a claim waits for the withdrawal of each claim that joined the deadlock
	// after it. pause is the time between two searches meanwhile.
	turn  = 2
	pause = 20 * time.Millisecond
	// retryPause is the time between two attempts to withdraw a claim.
	retryPause = 100 * time.Millisecond
)

// Detector finds the deadlocks that new claims cause.
type Detector struct {
	store waits.Store
	do    func(context.Context, claim.Command) (committer.Result, error)
	log   *slog.Logger
	// lookTimeout is how long a search may take.
	lookTimeout time.Duration
	// Refused, unless it is nil, is called for each claim that is refused, with its resource.
	Refused func(resource string)
}

// NewDetector returns a detector that searches in a store. do makes and withdraws claims.
func NewDetector(store waits.Store, do func(context.Context, claim.Command) (committer.Result, error), log *slog.Logger) *Detector {
	return &Detector{store: store, do: do, log: log, lookTimeout: lookTimeout}
}

// Error is returned for a claim that is refused because it would cause a deadlock.
type Error struct {
	// Members are the claims of the deadlock, each waiting for the owner of the next, the refused one first. It is empty
	// for a claim that was withdrawn earlier.
	Members []claim.Claim
}

func (e *Error) Error() string {
	if len(e.Members) == 0 {
		return "the claim would cause a deadlock, in which each waits for the next"
	}
	const most = 5
	var links []string
	for _, m := range e.Members[:min(most, len(e.Members))] {
		links = append(links, fmt.Sprintf("%s waits for %s", brief(cmp.Or(m.Owner, m.Session)), brief(m.Resource)))
	}
	text := "the claim would cause a deadlock: " + strings.Join(links, ", ")
	if more := len(e.Members) - most; more > 0 {
		text += fmt.Sprintf(", and %d more", more)
	}
	return text
}

// brief quotes a name, which may be long.
func brief(name string) string {
	const most = 100
	if len(name) > most {
		name = strings.ToValidUTF8(name[:most], "") + "…"
	}
	return strconv.Quote(name)
}

// Create makes a claim that causes no deadlock, unless it allows one. It returns an Error for one that would.
func (d *Detector) Create(ctx context.Context, cmd claim.Create) (committer.Result, error) {
	if cmd.LookFirst = !cmd.AllowDeadlock; !cmd.LookFirst {
		return d.do(ctx, cmd)
	}
	result, err := d.do(ctx, cmd)
	var would *claim.WouldWaitError
	if errors.As(err, &would) {
		if err := d.Look(ctx, would); err != nil {
			return committer.Result{}, err
		}
		cmd.LookFirst = false
		result, err = d.do(ctx, cmd)
	}
	switch c := &result.Claim; {
	case err != nil:
		return committer.Result{}, err
	case c.Status == claim.Waiting:
		return result, d.Check(ctx, &result)
	case withdrawn(c): // by the request that this one repeats
		return committer.Result{}, &Error{}
	}
	return result, nil
}

// Look searches for a deadlock that a claim would cause if it waited. It returns an Error if it finds one. It returns
// nil if there is none, and if the search failed.
func (d *Detector) Look(ctx context.Context, would *claim.WouldWaitError) error {
	deadlock, err := d.find(ctx, would.Claim, would.Holder)
	if err != nil {
		d.log.DebugContext(ctx, "a deadlock may not have been found yet", "error", err)
	}
	if len(deadlock) > 0 {
		return d.refuse(would.Claim, deadlock)
	}
	return nil
}

// Check searches for a deadlock that a claim causes which has begun to wait, together with claims that were made
// meanwhile. It returns an Error if the claim has been withdrawn. It returns nil if it found no deadlock, if the search
// failed, and if a claim that joined later was withdrawn instead.
func (d *Detector) Check(ctx context.Context, result *committer.Result) error {
	c := &result.Claim
	deadlock, _ := d.search(ctx, c, result.Holder)
	others := after(c, deadlock)
	last := time.Now().Add(turn * d.lookTimeout * time.Duration(others))
	for late := others == 0; len(deadlock) > 0 && !late; {
		select {
		case <-time.After(pause):
			late = !time.Now().Before(last) // and then searches: if this process stood still, it may be over
			deadlock, _ = d.search(ctx, c, nil)
		case <-ctx.Done(): // its caller has left, but the others in the deadlock wait
			ctx = context.WithoutCancel(ctx)
		}
	}
	return d.withdrawWhile(context.WithoutCancel(ctx), c, deadlock)
}

// withdrawWhile withdraws a claim while there is the deadlock that it causes. Nobody tries later, so what is refused for the moment, the withdrawal
// or the search after it, is repeated.
func (d *Detector) withdrawWhile(ctx context.Context, c *claim.Claim, deadlock []waits.Link) error {
	var failed error
	for last := time.Now().Add(endTimeout); len(deadlock) > 0 || failed != nil; deadlock, failed = d.search(ctx, c, nil) {
		err := failed
		if failed == nil {
			var ended claim.Claim
			ended, err = d.withdraw(c.ID)
			switch {
			case err == nil && withdrawn(&ended):
				return d.refuse(c, deadlock)
			case err == nil:
				return nil
			}
		}
		if errors.Is(err, committer.ErrStopping) || !time.Now().Before(last) {
			d.log.WarnContext(ctx, "a claim that causes a deadlock cannot be withdrawn", "claim", c.ID, "error", err)
			return nil
		}
		time.Sleep(retryPause)
	}
	return nil
}

// after returns how many claims of a deadlock have joined it after c.
func after(c *claim.Claim, deadlock []waits.Link) (n int) {
	for i := range deadlock {
		other := &deadlock[i].Waiter
		if cmp.Or(cmp.Compare(other.Enqueued, c.Enqueued), cmp.Compare(other.ID, c.ID)) > 0 {
			n++
		}
	}
	return n
}

// search is find for a claim that has begun to wait. A search that fails, because the database or this process stood still
// or the caller has left, is repeated; after one that the database has refused, when it might have taken its time.
func (d *Detector) search(ctx context.Context, c, holder *claim.Claim) (deadlock []waits.Link, err error) {
	for n := range attempts {
		begin := time.Now()
		if deadlock, err = d.find(ctx, c, holder); err == nil {
			return deadlock, nil
		}
		if ctx.Err() == nil && n < attempts-1 {
			time.Sleep(time.Until(begin.Add(d.lookTimeout)))
		}
		ctx, holder = context.WithoutCancel(ctx), nil
	}
	d.log.DebugContext(ctx, "a deadlock may not have been found", "error", err)
	return nil, err
}

// find returns the deadlock that a claim causes, nil if there is none. All of its claims waited at one moment,
// between two searches with the same result, because a claim never returns to an earlier status.
func (d *Detector) find(ctx context.Context, c *claim.Claim, holder *claim.Claim) ([]waits.Link, error) {
	if c.OwnerKey() == (claim.OwnerKey{}) {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, d.lookTimeout)
	defer cancel()
	before, err := waits.Deadlock(ctx, d.store, *c, holder)
	for range confirmations {
		if err != nil || len(before) == 0 {
			break
		}
		var again []waits.Link
		if again, err = waits.Deadlock(ctx, d.store, *c, nil); err == nil && slices.EqualFunc(before, again, sameLink) {
			return again, nil
		}
		before = again
	}
	return nil, err
}

func sameLink(a, b waits.Link) bool {
	return a.Waiter.ID == b.Waiter.ID && a.Holder.ID == b.Holder.ID && a.Holder.Status == b.Holder.Status
}

// withdraw withdraws a claim if it still waits, and returns it. It does not depend on the caller's context: the other claims of
// the deadlock wait even if the caller has left.
func (d *Detector) withdraw(id string) (claim.Claim, error) {
	ctx, cancel := context.WithTimeout(context.Background(), endTimeout)
	defer cancel()
	ended, err := d.do(ctx, claim.Withdraw{ID: id, Reason: Reason})
	return ended.Claim, err
}

// Reason is the reason of a claim that was withdrawn because it caused a deadlock.
const Reason = "it caused a deadlock, in which each waits for the next"

// withdrawn reports whether a claim was withdrawn because it caused a deadlock.
func withdrawn(c *claim.Claim) bool { return c.Status == claim.Withdrawn && c.Reason == Reason }

// refuse returns the error for a claim that would cause a deadlock.
func (d *Detector) refuse(c *claim.Claim, deadlock []waits.Link) *Error {
	if d.Refused != nil {
		d.Refused(c.Resource)
	}
	e := &Error{}
	for _, l := range deadlock {
		e.Members = append(e.Members, l.Waiter)
	}
	return e
}
