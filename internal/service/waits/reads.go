package waits

import (
	"context"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/rules/claim"
)

// maxAhead is how many waiting claims of one queue, and how many holders of one resource, a search reads.
const maxAhead = 32

// reads caches the reads of one search, or of several at the same time.
type reads struct {
	store  db.Reader
	queues map[string]db.Snapshot
	waits  map[claim.OwnerKey][]claim.Claim
	now    claim.Instant // of the last read of a queue
}

func newReads(store db.Reader) *reads {
	return &reads{store: store, queues: make(map[string]db.Snapshot), waits: make(map[claim.OwnerKey][]claim.Claim)}
}

// queue reads the front of a queue.
func (r *reads) queue(ctx context.Context, resource string) (queue db.Snapshot, err error) {
	queue, known := r.queues[resource]
	if !known {
		if queue, r.now, err = r.store.Queue(ctx, resource, maxAhead); err == nil {
			r.queues[resource] = queue
		}
	}
	return queue, err
}

// waitsOf reads the waiting claims of an owner.
func (r *reads) waitsOf(ctx context.Context, owner claim.OwnerKey) (waits []claim.Claim, err error) {
	waits, known := r.waits[owner]
	if !known {
		if waits, err = r.store.WaitsOf(ctx, []claim.OwnerKey{owner}, MaxVisited); err == nil {
			r.waits[owner] = waits
		}
	}
	return waits, err
}
