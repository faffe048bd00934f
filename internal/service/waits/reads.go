package waits

import (
	"cmp"
	"context"
	"slices"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/rules/claim"
)

// maxAhead is how many waiting claims of one queue, and how many holders of one resource, a search reads.
const maxAhead = 32

// reads caches the reads of one search, or of several at the same time.
type reads struct {
	store  db.Reader
	queues map[string]*db.Snapshot
	waits  map[claim.OwnerKey][]claim.Claim
	now    claim.Instant    // of the first read of a queue
	left   int              // how many claims the search may still read
	cut    []claim.OwnerKey // owners whose waits may not all have been read; the next search reads them again
}

func newReads(store db.Reader) *reads {
	return &reads{store: store, left: MaxRead, queues: make(map[string]*db.Snapshot), waits: make(map[claim.OwnerKey][]claim.Claim)}
}

// queue reads the front of a queue. It is empty if there is no more to read.
func (r *reads) queue(ctx context.Context, resource string) (*db.Snapshot, error) {
	if known := r.queues[resource]; known != nil || r.left <= 0 {
		return cmp.Or(known, new(db.Snapshot)), nil
	}
	queue, now, err := r.store.Queue(ctx, resource, maxAhead)
	if err != nil {
		return nil, err
	}
	if len(r.queues) == 0 {
		r.now = now
	}
	r.queues[resource] = &queue
	r.left -= len(queue.Holders) + len(queue.Waiters)
	return &queue, nil
}

// begin begins another search.
func (r *reads) begin() {
	r.left = MaxRead
	for _, p := range r.cut {
		delete(r.waits, p)
	}
	r.cut = nil
}

// askAll returns the waiting claims of owners. Many waits of one owner do not hide the waits of another.
func (r *reads) askAll(ctx context.Context, owners []claim.OwnerKey) (found []claim.Claim, err error) {
	r.begin()
	if err := r.ask(ctx, owners); err != nil {
		return nil, err
	}
	if r.left <= 0 && len(owners) > 1 {
		half := len(owners) / 2
		first, err := r.askAll(ctx, owners[:half])
		if err != nil {
			return nil, err
		}
		second, err := r.askAll(ctx, owners[half:])
		return append(first, second...), err
	}
	for _, p := range owners {
		found = append(found, r.waits[p]...)
	}
	return found, nil
}

// ask reads the waiting claims of owners into waits, all at once.
func (r *reads) ask(ctx context.Context, owners []claim.OwnerKey) error {
	unknown := slices.DeleteFunc(slices.Clone(owners), func(p claim.OwnerKey) bool { _, known := r.waits[p]; return known })
	if len(unknown) == 0 || r.left <= 0 {
		return nil
	}
	claims, err := r.store.WaitsOf(ctx, unknown, r.left)
	if err != nil {
		return err
	}
	if r.left -= len(claims); r.left <= 0 {
		r.cut = append(r.cut, unknown...)
	}
	for _, p := range unknown {
		r.waits[p] = nil
	}
	for _, c := range claims {
		r.waits[c.OwnerKey()] = append(r.waits[c.OwnerKey()], c)
	}
	return nil
}
