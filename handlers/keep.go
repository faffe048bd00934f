package handlers

import (
	"context"
	"time"

	"github.com/locket-service/locket/internal/rules/claim"
)

// keepTimeout limits how long an answer may wait for the write that keeps its claim waiting.
const keepTimeout = time.Second

// keepWaiting renews the wait of a claim that a caller asks about, if it is ToKeep. A failed write is only logged; the next
// question tries again.
func (h *handler) keepWaiting(ctx context.Context, c *claim.Claim, now claim.Instant) {
	if !c.ToKeep(now) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, keepTimeout)
	defer cancel()
	if _, err := h.committer.Do(ctx, claim.KeepWaiting{IDs: []string{c.ID}}); err != nil {
		h.log.DebugContext(ctx, "a claim that was asked about is not kept waiting", "error", err)
	}
}
