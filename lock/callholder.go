package lock

import (
	"context"
	"fmt"
	"sync"
)

// callHolder holds by calls: each time with a keeper.
type callHolder struct {
	settings
	key, owner string
	// grantor is that of the next keeper, last the one before, and left what it left to be released.
	grantor grantor
	last    *keeper
	left    leftover

	idMu sync.Mutex
	id   string
}

func (h *callHolder) acquire(ctx context.Context, o observer) (*Hold, error) {
	if h.last != nil {
		select {
		case <-h.last.gone:
			h.grantor = h.last.grantor.next()
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	select {
	case <-h.left.pending():
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	k := newKeeper(h, o)
	h.last = k
	go k.run()
	select {
	case <-k.acquired:
		return newHold(ctx, k), nil
	case <-k.gone:
		if k.held { // and lost at once
			return newHold(ctx, k), nil
		}
		return nil, fmt.Errorf("lock %q: %w", h.key, k.err)
	case <-ctx.Done():
		k.leave()
		<-k.gone
		return nil, ctx.Err()
	}
}

func (h *callHolder) claimID() string {
	h.idMu.Lock()
	defer h.idMu.Unlock()
	return h.id
}

// setClaimID sets what claimID returns.
func (h *callHolder) setClaimID(id string) {
	h.idMu.Lock()
	defer h.idMu.Unlock()
	h.id = id
}
