// Package quota holds identities to their quotas of claims, before a claim reaches the committer. For each identity
// with a quota that makes claims it counts the live claims in the store, at most every two seconds, and adds this
// server's changes since.
package quota

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/rules/access"
	"github.com/locket-service/locket/internal/rules/claim"
)

// Store is the part of a store that a Guard needs.
type Store interface {
	db.Getter
	db.Usages
	Queue(ctx context.Context, resource string, limit int) (db.Snapshot, claim.Instant, error)
}

// Error is returned for a claim beyond the quota of its caller.
type Error struct {
	Identity string
	// Status is Active for the limit of active claims, and Waiting for the limit of waiting claims.
	Status claim.Status
	Limit  int
}

func (e *Error) Error() string {
	return fmt.Sprintf("%s may have at most %d claims that are %s", e.Identity, e.Limit, e.Status)
}

// Guard is a committer.Guard.
type Guard struct {
	store   Store
	refused func(resource string)

	mu     sync.Mutex
	usages map[string]*usage // by identity
	swept  time.Time         // when unused usages were last dropped
}

// New returns a guard. refused is called for each claim that is refused, with its resource.
func New(store Store, refused func(resource string)) *Guard {
	return &Guard{store: store, refused: refused, usages: make(map[string]*usage)}
}

// newClaim is a claim that a command may make.
type newClaim struct {
	access.Caller
	id, resource string
	units        claim.Units
	// mayWait says that the claim may wait, and mayExist that an earlier attempt may have made it.
	mayWait, mayExist bool
}

// newClaimOf returns the claim that a command may make, or nil.
func newClaimOf(caller access.Caller, cmd claim.Command) *newClaim {
	switch cmd := cmd.(type) {
	case claim.Create:
		return &newClaim{Caller: caller, id: cmd.ID, resource: cmd.Resource, units: cmd.Units, mayWait: !cmd.NoWait, mayExist: !cmd.New}
	case claim.Acquire:
		return &newClaim{Caller: caller, id: cmd.ID, resource: cmd.Resource}
	default:
		return nil
	}
}

// Admit implements committer.Guard. A claim is admitted at once if its identity has room for one more active claim and
// for one more waiting claim. Otherwise the guard reads whether the claim exists already, and whether it would wait.
func (g *Guard) Admit(caller access.Caller, cmd claim.Command) (read func(context.Context) error, release func()) {
	if !caller.Quota.OfClaims() {
		return nil, nil
	}
	n := newClaimOf(caller, cmd)
	if n == nil {
		return nil, nil
	}
	release = func() { g.release(n) }
	if g.admit(n) {
		return nil, release
	}
	return func(ctx context.Context) error { return g.check(ctx, n) }, release
}

// check reads the identity's usage and admits a claim, or returns an Error.
func (g *Guard) check(ctx context.Context, n *newClaim) error {
	if err := g.count(ctx, n.Name); err != nil || g.admit(n) {
		return err
	}
	if n.mayExist {
		if _, _, _, err := g.store.Get(ctx, n.id, 0); !errors.Is(err, claim.ErrNotFound) {
			return err
		}
	}
	queue, now, err := g.store.Queue(ctx, n.resource, 1)
	if err != nil {
		return err
	}
	waits := now.Quarantined() || !n.granted(&queue, now)
	if waits && !n.mayWait { // a renewal, or refused by the rules
		return nil
	}
	admitted, err := g.admitAs(n, waits)
	switch {
	case err != nil:
		g.refused(n.resource)
		return err
	case !admitted:
		return g.check(ctx, n)
	}
	return nil
}

// granted reports whether a claim would be granted at once. A holder whose lease has run out is in nobody's way.
func (n *newClaim) granted(queue *db.Snapshot, now claim.Instant) bool {
	switch {
	case queue.Waiting > 0:
		return false
	case queue.Shared <= 1 && len(queue.Holders) == 1 && queue.Holders[0].Due(now):
		return true
	default:
		return queue.Admits(n.units)
	}
}
