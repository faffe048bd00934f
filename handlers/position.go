package handlers

import (
	"context"
	"maps"
	"strconv"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/locket-service/locket/internal/rules/access"
	"github.com/locket-service/locket/internal/rules/claim"
	"github.com/locket-service/locket/models"
)

const (
	// maxPosition limits the positions that are counted.
	maxPosition = 1000
	// positionTimeout limits how long an answer may wait for the position.
	positionTimeout = time.Second
)

// answer returns a claim as the answer about it alone: with its position in the queue if it waits. A position that is not
// known (0) is read; one that cannot be read in time is left out.
func (h *handler) answer(ctx context.Context, c *claim.Claim, now claim.Instant, position int) *models.Claim {
	if !claim.SeesUserData(access.CallerOf(ctx), c) {
		c.UserData = nil
	}
	encoded := encodeClaim(c, now)
	if c.Status == claim.Waiting {
		if position == 0 {
			_, position = h.place(ctx, c.ID)
		}
		if position > 0 && position <= maxPosition {
			encoded.Position = proto.Uint32(uint32(position))
		}
	}
	return encoded
}

// place returns a claim that waits, and its position in the queue, 1 for the next, more than maxPosition beyond that. The
// position is 0 if the claim no longer waits, or cannot be read in time.
func (h *handler) place(ctx context.Context, id string) (c claim.Claim, position int) {
	ctx, cancel := context.WithTimeout(ctx, positionTimeout)
	defer cancel()
	c, ahead, _, err := h.Store.Get(ctx, id, maxPosition)
	switch {
	case err != nil:
		h.Log.DebugContext(ctx, "the position of a claim is not known", "error", err)
		return c, 0
	case c.Status != claim.Waiting: // its turn has come since
		return c, 0
	}
	return c, ahead + 1
}

// waitsFor returns, for the metadata of an error, a waiting claim's position and a holder of the resource. It leaves
// out data that cannot be read in time.
func (h *handler) waitsFor(ctx context.Context, id string) map[string]string {
	ctx, cancel := context.WithTimeout(ctx, positionTimeout)
	defer cancel()
	waits := make(map[string]string)
	c, position := h.place(ctx, id)
	if position == 0 {
		return waits
	}
	if position <= maxPosition {
		waits["position"] = strconv.Itoa(position)
	}
	if queue, _, err := h.Store.Queue(ctx, c.Resource, 1); err == nil && len(queue.Holders) > 0 {
		collision := &claim.CollisionError{}
		if queue.Shared == 0 {
			collision.Holder = &queue.Holders[0]
		}
		maps.Copy(waits, holderOf(ctx, c.Resource, collision))
	}
	return waits
}
