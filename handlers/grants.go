package handlers

import (
	"context"
	"log/slog"

	"github.com/locket-service/locket/claim"
)

// LevelGrant is the level of the log lines for each grant and each release of a lock. It is below
// debug, since they hold the names of the lock and of its owner, which no log has unless it is
// made to: that in the format of Cloud Foundry is.
const LevelGrant = slog.LevelDebug - 4

// logGrant logs what happened to a lock. Renewals are not logged: they are most of all requests.
func (h *handler) logGrant(ctx context.Context, what string, c *claim.Claim) {
	if !h.log.Enabled(ctx, LevelGrant) {
		return
	}
	resource := encodeResource(c)
	h.log.LogAttrs(ctx, LevelGrant, what, slog.String("key", c.Resource), slog.String("owner", c.Owner),
		slog.String("type", resource.GetType()), slog.Int("type_code", int(resource.GetTypeCode())), slog.Uint64("token", c.Token))
}
