package waits

import (
	"cmp"
	"context"
	"slices"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/claim"
)

const (
	// MaxRead is how many claims one search reads at most.
	MaxRead = 1000
	// maxAhead is how many claims of one line, and how many holders of one resource, a search reads.
	maxAhead = 32
)

// Store is the part of a store that a search needs.
type Store interface {
	Queue(ctx context.Context, resource string, limit int) (db.Snapshot, claim.Instant, error)
	WaitsOf(ctx context.Context, owners []claim.OwnerKey, limit int) ([]claim.Claim, error)
}

// search is a breadth-first search from waiting claims to the claims that they wait for. From a claim it follows two
// kinds of edges: along the line, to the waiting claims before it; and from a claim in the way to its owner, and to what
// that owner waits for elsewhere, which it reads from the store.
type search struct {
	store  Store
	owners map[claim.OwnerKey]bool // where it began; a way back there is a deadlock
	last   *claim.Claim            // unless it is nil, younger claims are left out
	left   int                     // how many claims it may still read

	queues   map[string]*db.Snapshot
	seen     map[string]span         // the waiting claims that were found, by id
	asked    map[claim.OwnerKey]span // the owners that the store was asked for, or is to be
	found    []wait
	deadlock []Link
	now      claim.Instant

	questions []question             // for the store
	about     map[claim.OwnerKey]int // the index of the question about an owner
}

// wait is a claim that waits, and how it was found.
type wait struct {
	claim claim.Claim
	// from is the index of the wait before it in the search, -1 at the beginning. by is the claim that connects the two:
	// the claim of the same owner that from waits for, or this claim itself.
	from int
	by   claim.Claim
	// span is the set of what the path to it visits, and root where the path begins.
	span span
	root int
	// own says whether it waits for a holder with the same owner: a search from it reports no deadlock.
	own bool
}

// question is an owner whose waits are to be read. It was found where a wait, by its index, waits for a claim of that
// owner.
type question struct {
	owner claim.OwnerKey
	from  int
	by    claim.Claim
}

// span says what a path visits beside its beginning: a deadlock needs both another owner and another resource.
type span uint8

const (
	otherOwner span = 1 << iota
	otherResource
)

// Link is a part of a deadlock: a waiting claim, and a claim that it waits for, which is of the owner of the next link.
type Link struct{ Waiter, Holder claim.Claim }

func newSearch(store Store, owners ...claim.OwnerKey) *search {
	s := &search{
		store: store, left: MaxRead, owners: make(map[claim.OwnerKey]bool),
		queues: make(map[string]*db.Snapshot), seen: make(map[string]span), asked: make(map[claim.OwnerKey]span),
		about: make(map[claim.OwnerKey]int),
	}
	for _, p := range owners {
		if p != (claim.OwnerKey{}) {
			s.owners[p] = true
		}
	}
	return s
}

// deadlockOf returns a deadlock of which a waiting claim is the youngest, this claim first, nil if there is none.
func deadlockOf(ctx context.Context, store Store, c claim.Claim) ([]Link, error) {
	s := newSearch(store, c.OwnerKey())
	s.last = &c
	s.begin(c)
	err := s.run(ctx, true)
	return s.deadlock, err
}

// begin adds a claim from which the search begins.
func (s *search) begin(c claim.Claim) { s.add(c, -1, c) }

// run searches until everything is found, or MaxRead claims are read, or, with until, a deadlock is found.
func (s *search) run(ctx context.Context, until bool) error {
	for visited := 0; visited < len(s.found); {
		for ; visited < len(s.found); visited++ { // which may find more
			if err := s.visit(ctx, visited); err != nil {
				return err
			}
			if until && s.deadlock != nil {
				return nil
			}
		}
		if err := s.ask(ctx); err != nil {
			return err
		}
	}
	return nil
}

// visit follows the edges of a wait along the line. It notes the owners to ask about, and the first deadlock.
func (s *search) visit(ctx context.Context, at int) error {
	c := s.found[at].claim
	blockers, err := s.blockers(ctx, &c)
	if err != nil {
		return err
	}
	for _, b := range blockers {
		if b.Status == claim.Active && b.OwnerKey() == c.OwnerKey() {
			s.found[at].own = true
		}
		if s.deadlock == nil && s.closes(at, &b) {
			s.deadlock = s.path(at, b)
		}
		// What stands before an exclusive claim has nothing else before it.
		if b.Status == claim.Waiting && !c.Units.All() {
			s.add(b, at, b)
		}
		s.question(at, b)
	}
	return nil
}

// question notes that the owner of a claim is to be asked about. If several waits lead to the owner, the last one
// counts.
func (s *search) question(at int, by claim.Claim) {
	p := by.OwnerKey()
	way := s.found[at].span | otherOwner // with the owner itself
	if p == (claim.OwnerKey{}) || s.owners[p] || !isNew(s.asked, p, way) {
		return
	}
	q := question{owner: p, from: at, by: by}
	if i, again := s.about[p]; again {
		s.questions[i] = q
		return
	}
	s.about[p] = len(s.questions)
	s.questions = append(s.questions, q)
}

// ask reads the answers to all questions at once, and adds what the owners wait for: in the order of the questions, so
// that holders come before claims in the line.
func (s *search) ask(ctx context.Context) error {
	if len(s.questions) == 0 || s.left <= 0 {
		return nil
	}
	owners := make([]claim.OwnerKey, len(s.questions))
	for i, q := range s.questions {
		owners[i] = q.owner
	}
	claims, err := s.store.WaitsOf(ctx, owners, s.left)
	if err != nil {
		return err
	}
	s.left -= len(claims)
	slices.SortStableFunc(claims, func(a, b claim.Claim) int { return cmp.Compare(s.about[a.OwnerKey()], s.about[b.OwnerKey()]) })
	for _, c := range claims {
		if q := s.questions[s.about[c.OwnerKey()]]; q.by.ID != c.ID { // else it was seen in its line
			s.add(c, q.from, q.by)
		}
	}
	s.questions = nil
	clear(s.about)
	return nil
}

func (s *search) add(c claim.Claim, from int, by claim.Claim) {
	if s.last != nil && younger(&c, s.last) {
		return
	}
	w := wait{claim: c, from: from, by: by, root: len(s.found)}
	if from >= 0 {
		root := &s.found[s.found[from].root].claim
		w.span, w.root = s.found[from].span, s.found[from].root
		if p := c.OwnerKey(); p != (claim.OwnerKey{}) && p != root.OwnerKey() {
			w.span |= otherOwner
		}
		if c.Resource != root.Resource {
			w.span |= otherResource
		}
	}
	if isNew(s.seen, c.ID, w.span) {
		s.found = append(s.found, w)
	}
}

// younger reports whether a claim has begun to wait after another one. Of two claims that have begun at the same time one is
// the younger.
func younger(a, b *claim.Claim) bool {
	return cmp.Or(cmp.Compare(a.Created, b.Created), cmp.Compare(a.Enqueued, b.Enqueued), cmp.Compare(a.ID, b.ID)) > 0
}

// isNew notes a path to something, and reports whether its span is larger than those before.
func isNew[K comparable](known map[K]span, key K, way span) bool {
	before, again := known[key]
	if again && before|way == before {
		return false
	}
	known[key] = before | way
	return true
}

// blockers returns the claims that a waiting claim waits for: holders first, then those before it.
func (s *search) blockers(ctx context.Context, c *claim.Claim) (blockers []claim.Claim, err error) {
	queue := s.queues[c.Resource]
	if queue == nil {
		if s.left <= 0 {
			return nil, nil
		}
		read, now, err := s.store.Queue(ctx, c.Resource, min(maxAhead, s.left))
		if err != nil {
			return nil, err
		}
		queue, s.now = &read, now
		s.left -= len(queue.Holders) + len(queue.Waiters)
		s.queues[c.Resource] = queue
	}
	for i := range queue.Holders {
		if queue.Holders[i].ID == c.ID { // its turn has come meanwhile
			return nil, nil
		}
	}
	for _, list := range [][]claim.Claim{queue.Holders, queue.Waiters} {
		for i := range list {
			if b := &list[i]; b.ID != c.ID && b.Enqueued < c.Enqueued && b.Conflicts(c) {
				blockers = append(blockers, *b)
			}
		}
	}
	return blockers, nil
}

// closes reports whether a claim that a wait waits for is of an owner with which the search began, over at least two
// owners and two resources: then there is a deadlock.
func (s *search) closes(at int, blocker *claim.Claim) bool {
	w := &s.found[at]
	return w.span == otherOwner|otherResource && !s.found[w.root].own && blocker.OwnerKey() == s.found[w.root].claim.OwnerKey() && s.owners[blocker.OwnerKey()]
}

// path returns the deadlock that ends with a wait and the claim that it waits for, in order.
func (s *search) path(at int, last claim.Claim) (deadlock []Link) {
	for i := at; i >= 0; i = s.found[i].from {
		deadlock = append(deadlock, Link{s.found[i].claim, last})
		last = s.found[i].by
	}
	slices.Reverse(deadlock)
	return deadlock
}
