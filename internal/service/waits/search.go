package waits

import (
	"cmp"
	"context"
	"slices"

	"github.com/locket-service/locket/internal/rules/claim"
)

// MaxVisited is how many waits a search for a deadlock visits at most, and how many owners.
const MaxVisited = 400

// search is a breadth-first search from waiting claims to the claims that they wait for. From a claim it follows two
// kinds of edges: along the queue, to the waiting claims before it; and from a blocking claim to its owner, and to that
// owner's waits elsewhere.
type search struct {
	*reads
	most     int                     // waits to visit, and owners
	asked    map[claim.OwnerKey]bool // the owners whose waits need not be added
	seen     map[string]bool         // the ids of the claims in found
	found    []wait
	youngest *claim.Claim // unless it is nil, the search is for a deadlock with this claim, and leaves out younger ones
	deadlock *deadlock    // the first that was found; it ends the search
}

// deadlock is a cycle of claims: each waits for the owner of the next.
type deadlock struct {
	waits     []claim.Wait
	resources []string // that they wait for
}

// wait is a claim that waits, and how it was found.
type wait struct {
	claim *claim.Claim
	// from is the index of the wait before it on its path, -1 at the beginning.
	from int
	// by is the claim that from waits for: a claim of the same owner, or this one.
	by *claim.Claim
	// blockers are the claims that it waits for.
	blockers []*claim.Claim
}

func newSearch(r *reads, most int, owners ...claim.OwnerKey) *search {
	s := &search{reads: r, most: most, asked: make(map[claim.OwnerKey]bool), seen: make(map[string]bool)}
	for _, p := range owners {
		s.asked[p] = true
	}
	return s
}

// deadlockOf returns a deadlock whose youngest claim is c, with c first, nil if there is none.
func deadlockOf(ctx context.Context, r *reads, c claim.Claim) (*deadlock, error) {
	s := newSearch(r, MaxVisited, c.OwnerKey())
	s.youngest = &c
	s.add(&c, -1, nil)
	err := s.run(ctx)
	return s.deadlock, err
}

// run searches until there is no more to find, or until it finds the deadlock.
func (s *search) run(ctx context.Context) error {
	for at := 0; at < len(s.found) && s.deadlock == nil; at++ {
		if err := s.visit(ctx, at); err != nil {
			s.found = s.found[:at]
			return err
		}
	}
	return nil
}

// visit finds what a wait is blocked by, and follows the edges to it.
func (s *search) visit(ctx context.Context, at int) error {
	w := &s.found[at]
	blockers, err := s.blockers(ctx, w.claim)
	if w.blockers = blockers; err != nil || waitsForItself(w.claim, blockers) { // to abort a claim of another owner does not end this wait
		return err
	}
	for _, b := range blockers {
		if err := s.follow(ctx, at, b); err != nil {
			return err
		}
	}
	return nil
}

func waitsForItself(c *claim.Claim, blockers []*claim.Claim) bool {
	return slices.ContainsFunc(blockers, func(b *claim.Claim) bool {
		return b.Status == claim.Active && b.OwnerKey() == c.OwnerKey() && b.OwnerKey() != (claim.OwnerKey{})
	})
}

// follow follows the edges from a wait to a claim before it, and notes the first deadlock.
func (s *search) follow(ctx context.Context, at int, b *claim.Claim) error {
	p := b.OwnerKey()
	if s.youngest != nil && p == s.youngest.OwnerKey() {
		// A deadlock needs two resources. Where its owner is before it in the same queue, the others do not wait for youngest.
		if b.Resource != s.youngest.Resource && s.deadlock == nil {
			s.deadlock = s.cycle(at, b.ID)
		}
		return nil
	}
	// A claim before an exclusive one has nothing else before it.
	if b.Status == claim.Waiting && !s.found[at].claim.Units.All() {
		s.add(b, at, b)
	}
	if s.asked[p] || p == (claim.OwnerKey{}) || len(s.asked) >= s.most {
		return nil
	}
	s.asked[p] = true
	waits, err := s.waitsOf(ctx, p)
	for i := range waits {
		if waits[i].ID != b.ID { // it was seen in its queue
			s.add(&waits[i], at, b)
		}
	}
	return err
}

// add notes a wait, unless it was found before.
func (s *search) add(c *claim.Claim, from int, by *claim.Claim) {
	if s.seen[c.ID] || s.youngest != nil && younger(c, s.youngest) || len(s.found) == s.most {
		return
	}
	s.seen[c.ID] = true
	s.found = append(s.found, wait{claim: c, from: from, by: by})
}

// younger reports whether a claim has started to wait after another one. Of two claims that have started at the same time one is
// the younger.
func younger(a, b *claim.Claim) bool {
	return cmp.Or(cmp.Compare(a.Created, b.Created), cmp.Compare(a.Enqueued, b.Enqueued), cmp.Compare(a.ID, b.ID)) > 0
}

// blockers returns the claims that a waiting claim waits for: holders first, then those before it.
func (s *search) blockers(ctx context.Context, c *claim.Claim) (blockers []*claim.Claim, err error) {
	queue, err := s.queue(ctx, c.Resource)
	if err != nil {
		return nil, err
	}
	for i := range queue.Holders {
		if queue.Holders[i].ID == c.ID { // its turn has come meanwhile
			return nil, nil
		}
	}
	for _, list := range [][]claim.Claim{queue.Holders, queue.Waiters} {
		for i := range list {
			if b := &list[i]; b.ID != c.ID && b.Enqueued < c.Enqueued && b.Conflicts(c) {
				blockers = append(blockers, b)
			}
		}
	}
	return blockers, nil
}

// cycle returns the deadlock that ends with a wait and the id of the claim that it waits for.
func (s *search) cycle(at int, last string) *deadlock {
	d := &deadlock{}
	for i := at; i >= 0; i = s.found[i].from {
		f := s.found[i]
		d.waits, d.resources = append(d.waits, claim.Wait{Waiter: f.claim.ID, Blocker: last}), append(d.resources, f.claim.Resource)
		if f.by != nil {
			last = f.by.ID
		}
	}
	slices.Reverse(d.waits)
	return d
}
