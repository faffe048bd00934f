package handlers

import (
	"context"
	"fmt"
	"time"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/rules/claim"
)

// keepTimeout limits how long an answer may wait for the write that keeps its claim waiting.
const keepTimeout = time.Second

// keepWaiting renews the wait of a claim that a caller asks about, if it is ToKeep, and reports whether it has: then the claim may
// have been granted meanwhile. A question that is not recorded must not be answered: the caller would not ask another server, and
// its claim would be aborted.
func (h *handler) keepWaiting(ctx context.Context, c *claim.Claim, now claim.Instant) (kept bool, err error) {
	if !c.ToKeep(now) {
		return false, nil
	}
	limited, cancel := context.WithTimeout(ctx, keepTimeout)
	defer cancel()
	_, err = h.Committer.Do(limited, claim.KeepWaiting{IDs: []string{c.ID}})
	if err != nil && ctx.Err() == nil && limited.Err() != nil {
		err = fmt.Errorf("%w: the claim is not kept waiting: %w", db.ErrUnavailable, err)
	}
	return err == nil, err
}
