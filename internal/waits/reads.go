package waits

import (
	"context"
	"slices"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/claim"
)

// reads are the reads of one look, each of which is made once.
type reads struct {
	Store
	queues map[string]queueRead
	waits  map[claim.OwnerKey][]claim.Claim
}

type queueRead struct {
	queue db.Snapshot
	now   claim.Instant
}

func newReads(store Store) *reads {
	return &reads{Store: store, queues: make(map[string]queueRead), waits: make(map[claim.OwnerKey][]claim.Claim)}
}

// Queue implements Store.
func (r *reads) Queue(ctx context.Context, resource string, _ int) (db.Snapshot, claim.Instant, error) {
	known, ok := r.queues[resource]
	if !ok {
		var err error
		if known.queue, known.now, err = r.Store.Queue(ctx, resource, maxAhead); err != nil {
			return db.Snapshot{}, known.now, err
		}
		r.queues[resource] = known
	}
	return known.queue, known.now, nil
}

// WaitsOf implements Store.
func (r *reads) WaitsOf(ctx context.Context, owners []claim.OwnerKey, limit int) (all []claim.Claim, err error) {
	unknown := slices.DeleteFunc(slices.Clone(owners), func(p claim.OwnerKey) bool { _, known := r.waits[p]; return known })
	if len(unknown) > 0 {
		claims, err := r.Store.WaitsOf(ctx, unknown, MaxRead)
		if err != nil {
			return nil, err
		}
		for _, p := range unknown {
			r.waits[p] = nil
		}
		for _, c := range claims {
			r.waits[c.OwnerKey()] = append(r.waits[c.OwnerKey()], c)
		}
	}
	for _, p := range owners {
		all = append(all, r.waits[p]...)
	}
	return all[:min(limit, len(all))], nil
}
