package waits

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/claim"
)

const (
	// checkTimeout is how long a claim's answer may wait for a check, and endTimeout for the end of
	// the claim of a deadlock that was found.
	checkTimeout = time.Second
	endTimeout   = 10 * time.Second
	// confirmations is how often a deadlock is looked for again that was found.
	confirmations = 5
	// together is how far apart claims may have joined of which two servers cause a deadlock
	// together, by clocks that may differ. A claim that joined before is not taken from its owner.
	together = 10 * time.Second
)

// Finder finds the deadlocks that new claims cause.
type Finder struct {
	store Store
	do    func(context.Context, claim.Command) (claim.Claim, error)
	log   *slog.Logger
}

// NewFinder returns a finder that reads in a store, and withdraws claims by do, which is to return
// the claim that a command is about.
func NewFinder(store Store, do func(context.Context, claim.Command) (claim.Claim, error), log *slog.Logger) *Finder {
	return &Finder{store: store, do: do, log: log}
}

// DeadlockError is returned for a claim that has been withdrawn because it caused a deadlock.
type DeadlockError struct {
	// Members are the claims that wait in the deadlock, each for the owner of the next, from the
	// refused one on. It is empty for a claim that was withdrawn before.
	Members []claim.Claim
}

func (e *DeadlockError) Error() string {
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

// Check looks whether a claim that has just begun to wait causes a deadlock. holder, if it is known,
// is the only claim that stands before it. It returns a DeadlockError if so: the claim has been
// withdrawn. Everything else is nil: no deadlock was found, or none could be looked for, or another
// claim joined it later and has been withdrawn.
func (f *Finder) Check(ctx context.Context, c *claim.Claim, holder *claim.Claim) error {
	if c.OwnerKey() == (claim.OwnerKey{}) {
		return nil
	}
	deadlock, err := f.find(ctx, c, holder)
	if err != nil {
		f.log.DebugContext(ctx, "a deadlock may not have been found", "error", err)
	}
	if len(deadlock) == 0 {
		return nil
	}
	last := slices.MaxFunc(deadlock, func(a, b link) int {
		return cmp.Or(cmp.Compare(a.waiter.Enqueued, b.waiter.Enqueued), cmp.Compare(a.waiter.ID, b.waiter.ID))
	}).waiter
	if c.Created.Sub(last.Created).Abs() > together {
		last = *c
	}
	if !f.withdraw(last.ID) || last.ID != c.ID {
		return nil
	}
	return deadlockError(deadlock)
}

// find returns the deadlock that a claim causes, if it does. The claims were all there in this way
// at one moment: between two searches with the same result. Claims do not come back to a
// status that they had.
func (f *Finder) find(ctx context.Context, c *claim.Claim, holder *claim.Claim) ([]link, error) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	before, err := f.search(ctx, c, holder)
	for range confirmations {
		if err != nil || len(before) == 0 {
			return nil, err
		}
		var again []link
		if again, err = f.search(ctx, c, nil); slices.EqualFunc(before, again, sameLink) {
			return again, err
		}
		before = again
	}
	return nil, err
}

func sameLink(a, b link) bool {
	return a.waiter.ID == b.waiter.ID && a.holder.ID == b.holder.ID && a.holder.Status == b.holder.Status
}

func (f *Finder) search(ctx context.Context, c *claim.Claim, holder *claim.Claim) ([]link, error) {
	s := newSearch(f.store, c.OwnerKey())
	if holder != nil {
		s.know(db.Snapshot{Row: claim.Row{Resource: c.Resource}, Holders: []claim.Claim{*holder}})
	}
	s.begin(*c)
	err := s.run(ctx, true)
	return s.deadlock, err
}

// withdraw ends a claim, whoever its caller was, if it still waits, and reports whether it ended for
// being in a circle. The caller of the check may have left; the others in the deadlock wait.
func (f *Finder) withdraw(id string) bool {
	ctx, cancel := context.WithTimeout(context.Background(), endTimeout)
	defer cancel()
	ended, err := f.do(ctx, claim.Withdraw{ID: id, Reason: ReasonDeadlock})
	if err != nil {
		f.log.Warn("a claim that causes a deadlock cannot be withdrawn", "claim", id, "error", err)
		return false
	}
	return Refused(&ended)
}

// ReasonDeadlock is the reason of a claim that was withdrawn because it caused a deadlock.
const ReasonDeadlock = "it caused a deadlock, in which each waits for the next"

// Refused reports whether a claim was withdrawn because it caused a deadlock.
func Refused(c *claim.Claim) bool { return c.Status == claim.Withdrawn && c.Reason == ReasonDeadlock }

func deadlockError(deadlock []link) *DeadlockError {
	e := &DeadlockError{}
	for _, l := range deadlock {
		e.Members = append(e.Members, l.waiter)
	}
	return e
}
