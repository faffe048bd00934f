package handlers

import (
	"context"
	"log/slog"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/grpc/metadata"

	"github.com/locket-service/locket/internal/rules/claim"
	"github.com/locket-service/locket/models"
)

// LevelGrant is the level of the log lines for each grant and each release of a lock. It is below debug because these
// lines contain the names of locks and owners. Only the log in Cloud Foundry's format has them.
const LevelGrant = slog.LevelDebug - 4

// newRenewals limits the log lines of renewals, which are most of all requests.
func newRenewals() rate.Sometimes { return rate.Sometimes{First: 20, Interval: time.Second} }

// logRenewal logs a renewal whose caller gave it a request id, so that the id is found in the log: the first few, then
// at most one a second.
func (h *handler) logRenewal(ctx context.Context, c *claim.Claim) {
	if len(metadata.ValueFromIncomingContext(ctx, models.RequestIDKey)) > 0 {
		h.renewals.Do(func() { h.logGrant(ctx, "renewed lock", c) })
	}
}

// logGrant logs a grant, renewal or release of a lock.
func (h *handler) logGrant(ctx context.Context, what string, c *claim.Claim) {
	if !h.Log.Enabled(ctx, LevelGrant) {
		return
	}
	resource := encodeResource(c)
	h.Log.LogAttrs(ctx, LevelGrant, what, slog.String("key", c.Resource), slog.String("owner", c.Owner),
		slog.String("type", resource.GetType()), slog.Int("type_code", int(resource.GetTypeCode())), slog.Uint64("token", c.Token))
}
