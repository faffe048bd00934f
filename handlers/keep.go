package handlers

import (
	"context"
	"time"

	"github.com/locket-service/locket/internal/claim"
)

// keepTimeout is how long an answer may wait for the write that keeps its claim waiting.
const keepTimeout = time.Second

// keepWaiting keeps a claim waiting that somebody asks about, if half of its WaitTTL has passed: a
// question seldom writes. The answer does not depend on it; if the write fails, the next question
// finds more than half passed, too.
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
