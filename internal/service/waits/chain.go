package waits

import (
	"context"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/rules/claim"
)

// Chain has the claims that an owner waits for, directly and indirectly.
type Chain struct {
	// Waits has the direct waits first.
	Waits []Wait
	// Deadlock says whether the chain leads back to its beginning.
	Deadlock bool
	// Now is the time of a read.
	Now claim.Instant
}

// Wait is a claim that waits, and the claims that it waits for.
type Wait struct {
	Waiter claim.Claim
	// Holders are the holders of the resource, Ahead the first claims before it in the queue; both only as far as they
	// conflict with it.
	Holders, Ahead []claim.Claim
}

const (
	// shown is how many Waits a chain has at most, and shownAhead how many claims Ahead has.
	shown      = 100
	shownAhead = 10
)

// OfClaim returns the chain of a claim; it has no Waits if the claim does not wait.
func OfClaim(ctx context.Context, store db.Reader, c claim.Claim) (Chain, error) {
	s := newSearch(newReads(store), shown, c.OwnerKey())
	if c.Status == claim.Waiting {
		s.add(&c, -1, nil)
	}
	return s.chain(ctx)
}

// OfOwners returns the chain of the first maxAhead owners, without their waits for the resource except.
func OfOwners(ctx context.Context, store db.Reader, except string, owners ...claim.OwnerKey) (Chain, error) {
	owners = owners[:min(len(owners), maxAhead)]
	waits, err := store.WaitsOf(ctx, owners, shown)
	if err != nil {
		return Chain{}, err
	}
	s := newSearch(newReads(store), shown, owners...)
	for i := range waits {
		if waits[i].Resource != except {
			s.add(&waits[i], -1, nil)
		}
	}
	return s.chain(ctx)
}

// chain shows the result of a search: each wait that an owner got into, without claims that are only ahead of one in a
// shown queue.
func (s *search) chain(ctx context.Context) (Chain, error) {
	err := s.run(ctx)
	chain := Chain{Deadlock: s.deadlock != nil, Now: s.now}
	for _, f := range s.found {
		if _, known := s.queues[f.claim.Resource]; !known || f.by == f.claim {
			continue
		}
		w := Wait{Waiter: *f.claim}
		blockers, _ := s.blockers(ctx, f.claim)
		for _, b := range blockers {
			switch {
			case b.Status == claim.Active:
				w.Holders = append(w.Holders, *b)
			case len(w.Ahead) < shownAhead:
				w.Ahead = append(w.Ahead, *b)
			}
		}
		chain.Waits = append(chain.Waits, w)
	}
	return chain, err
}
