package waits

import (
	"context"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/rules/claim"
)

// Chain has the claims that owners wait for, directly and indirectly.
type Chain struct {
	// Waits has the direct waits first.
	Waits []Wait
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

// ChainOf returns the chain of the first maxAhead owners, without their waits for the resource except.
func ChainOf(ctx context.Context, store db.Reader, owners []claim.OwnerKey, except string) (Chain, error) {
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
	err = s.run(ctx)
	return s.chain(), err
}

// chain shows the result of a search: each wait that an owner got into, without claims that are only ahead of one in a
// shown queue.
func (s *search) chain() Chain {
	chain := Chain{Now: s.now}
	for _, f := range s.found {
		if f.by == f.claim {
			continue
		}
		w := Wait{Waiter: *f.claim}
		for _, b := range f.blockers {
			switch {
			case b.Status == claim.Active:
				w.Holders = append(w.Holders, *b)
			case len(w.Ahead) < shownAhead:
				w.Ahead = append(w.Ahead, *b)
			}
		}
		chain.Waits = append(chain.Waits, w)
	}
	return chain
}
