package lease

import (
	"context"
	"fmt"
	"sync"

	"github.com/locket-service/locket/lock/internal/base"
)

// Calls holds by calls: each time with a keeper. It is for one goroutine, but for ClaimID.
type Calls struct {
	base.Settings
	key, owner string
	// grantor is that of the next keeper, last the one before, and left what it left to be released.
	grantor grantor
	last    *keeper
	left    base.Leftover

	idMu sync.Mutex
	id   string
}

func newCalls(settings base.Settings, key, owner string, grantor grantor) *Calls {
	return &Calls{Settings: settings, key: key, owner: owner, grantor: grantor}
}

// Acquire implements base.Holder.
func (h *Calls) Acquire(ctx context.Context, o base.Observer) (base.Grant, error) {
	if h.last != nil {
		select {
		case <-h.last.gone:
			h.grantor = h.last.grantor.next()
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	select {
	case <-h.left.Pending():
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	k := newKeeper(h, o)
	h.last = k
	go k.run()
	select {
	case <-k.acquired:
		return k, nil
	case <-k.gone:
		if k.held { // and lost at once
			return k, nil
		}
		return nil, fmt.Errorf("lock %q: %w", h.key, k.err)
	case <-ctx.Done():
		k.leave()
		<-k.gone
		return nil, ctx.Err()
	}
}

// ClaimID implements base.Holder.
func (h *Calls) ClaimID() string {
	h.idMu.Lock()
	defer h.idMu.Unlock()
	return h.id
}

// setClaimID sets what ClaimID returns.
func (h *Calls) setClaimID(id string) {
	h.idMu.Lock()
	defer h.idMu.Unlock()
	h.id = id
}
