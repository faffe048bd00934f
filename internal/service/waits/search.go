package waits

import (
	"cmp"
	"context"
	"slices"

	"github.com/locket-service/locket/internal/rules/claim"
)

// MaxRead is how many claims one search reads, and how many waits it visits, at most. The last queue may exceed it.
const MaxRead = 1000

// search is a breadth-first search from waiting claims to the claims that they wait for. From a claim it follows two
// kinds of edges: along the queue, to the waiting claims before it; and from a blocking claim to its owner, and to that
// owner's waits elsewhere, which it reads from the store.
type search struct {
	*reads
	owners map[claim.OwnerKey]bool // of the claims where it began
	last   *claim.Claim            // unless it is nil, younger claims are left out, and the first deadlock ends the search

	seen     map[string]bool         // the waits that were found, by the claim's id: whether elsewhere
	asked    map[claim.OwnerKey]bool // the owners whose waits were added: whether elsewhere
	found    []wait
	deadlock []link
}

// link is one claim of a deadlock.
type link struct {
	claim.Wait
	resource string // that the waiter waits for
}

// wait is a claim that waits, and how it was found.
type wait struct {
	claim *claim.Claim
	way
	root int // where the path to it begins
	// elsewhere says whether the path visits another resource than the root's, and so another owner: a deadlock needs both.
	elsewhere bool
	// own says whether it waits for a holder with the same owner: a search from it reports no deadlock.
	own bool
}

// way connects a wait with the next one.
type way struct {
	// from is the index of the wait before it in the search, -1 at the beginning.
	from int
	// by is the claim that from waits for: a claim of the owner of the next wait, or the next wait itself.
	by *claim.Claim
}

func newSearch(r *reads, owners ...claim.OwnerKey) *search {
	r.begin()
	s := &search{reads: r, owners: make(map[claim.OwnerKey]bool), seen: make(map[string]bool), asked: make(map[claim.OwnerKey]bool)}
	for _, p := range owners {
		if p != (claim.OwnerKey{}) {
			s.owners[p] = true
		}
	}
	return s
}

// deadlockOf returns a deadlock whose youngest claim is c, with c first, nil if there is none.
func deadlockOf(ctx context.Context, r *reads, c claim.Claim) ([]link, error) {
	s := newSearch(r, c.OwnerKey())
	s.last = &c
	s.begin(&c)
	err := s.run(ctx)
	return s.deadlock, err
}

func (s *search) begin(c *claim.Claim) { s.add(c, way{-1, c}) }

// run searches until there is no more to find, or to read, or, with last, until it finds a deadlock.
func (s *search) run(ctx context.Context) error {
	for visited := 0; visited < len(s.found); {
		var ways []way                            // to owners
		for ; visited < len(s.found); visited++ { // which may find more
			more, err := s.visit(ctx, visited)
			if err != nil || s.last != nil && s.deadlock != nil {
				return err
			}
			ways = append(ways, more...)
		}
		if err := s.follow(ctx, ways); err != nil {
			return err
		}
	}
	return nil
}

// visit follows the edges of a wait along the queue, and notes the first deadlock. It returns the ways to owners.
func (s *search) visit(ctx context.Context, at int) (ways []way, err error) {
	c := s.found[at].claim
	blockers, err := s.blockers(ctx, c)
	if err != nil {
		return nil, err
	}
	for _, b := range blockers {
		if b.Status == claim.Active && b.OwnerKey() == c.OwnerKey() && b.OwnerKey() != (claim.OwnerKey{}) {
			s.found[at].own = true
		}
	}
	if s.found[at].own && s.last != nil { // to abort last would not end this wait
		return nil, nil
	}
	for _, b := range blockers {
		if s.deadlock == nil && s.closes(at, b) {
			s.deadlock = s.path(at, b.ID)
		}
		// A claim before an exclusive one has nothing else before it.
		if b.Status == claim.Waiting && !c.Units.All() {
			s.add(b, way{at, b})
		}
		if p := b.OwnerKey(); p != (claim.OwnerKey{}) && !s.owners[p] && isNew(s.asked, p, s.found[at].elsewhere) {
			ways = append(ways, way{at, b})
		}
	}
	return ways, nil
}

// follow adds what owners wait for.
func (s *search) follow(ctx context.Context, ways []way) error {
	owners := make([]claim.OwnerKey, len(ways))
	for i := range ways {
		owners[i] = ways[i].by.OwnerKey()
	}
	if err := s.ask(ctx, owners); err != nil {
		return err
	}
	for i, w := range ways {
		for j := range s.waits[owners[i]] {
			if c := &s.waits[owners[i]][j]; c.ID != w.by.ID { // otherwise it was seen in its queue
				s.add(c, w)
			}
		}
	}
	return nil
}

func (s *search) add(c *claim.Claim, by way) {
	if s.last != nil && younger(c, s.last) || len(s.found) == MaxRead {
		return
	}
	w := wait{claim: c, way: by, root: len(s.found)}
	if by.from >= 0 {
		from := &s.found[by.from]
		w.root, w.own = from.root, from.own
		w.elsewhere = from.elsewhere || c.Resource != s.found[w.root].claim.Resource
	}
	if isNew(s.seen, c.ID, w.elsewhere) {
		s.found = append(s.found, w)
	}
}

// younger reports whether a claim has started to wait after another one. Of two claims that have started at the same time one is
// the younger.
func younger(a, b *claim.Claim) bool {
	return cmp.Or(cmp.Compare(a.Created, b.Created), cmp.Compare(a.Enqueued, b.Enqueued), cmp.Compare(a.ID, b.ID)) > 0
}

// isNew notes a path to something, and reports whether it is the first one, or the first from elsewhere.
func isNew[K comparable](known map[K]bool, key K, elsewhere bool) bool {
	before, again := known[key]
	if again && (before || !elsewhere) {
		return false
	}
	known[key] = elsewhere
	return true
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

// closes reports whether a claim that a wait waits for belongs to the owner at the start of its path, over at least two
// owners and two resources: then there is a deadlock.
func (s *search) closes(at int, blocker *claim.Claim) bool {
	w := &s.found[at]
	root, p := &s.found[w.root], blocker.OwnerKey()
	return w.elsewhere && !w.own && p == root.claim.OwnerKey() && s.owners[p]
}

// path returns the deadlock that ends with a wait and the id of the claim that it waits for, in order.
func (s *search) path(at int, last string) (deadlock []link) {
	for i := at; i >= 0; i = s.found[i].from {
		deadlock = append(deadlock, link{claim.Wait{Waiter: s.found[i].claim.ID, Blocker: last}, s.found[i].claim.Resource})
		last = s.found[i].by.ID
	}
	slices.Reverse(deadlock)
	return deadlock
}
