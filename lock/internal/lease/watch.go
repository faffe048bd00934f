package lease

import (
	"context"
	"time"

	"github.com/locket-service/locket/lock/internal/base"
	"github.com/locket-service/locket/lock/internal/feed"
	"github.com/locket-service/locket/models"
)

// watchGrant follows the claims of an owner, and returns how the one with the token has ended. It returns nil when
// the context is done, or if Watch is missing or denied. It calls look if the claim is not there at the start: a
// renewal finds out why.
func watchGrant(ctx context.Context, client any, resource, owner string, ttl time.Duration, meant func(*models.Claim) bool, look func()) (ended error) {
	watcher, ok := client.(feed.Client)
	if !ok {
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var seen bool
	request := &models.WatchRequest{Resource: &resource, Owner: &owner}
	f := &feed.Feed{
		Client:  func() (feed.Client, error) { return watcher, nil },
		Request: request,
		Started: func() { seen = seen && request.GetCursor() != "" }, // it may have missed the end
		// If watching is refused for now, retries cost about as much as renewals.
		Longest: min(max(ttl/3, feed.MaxPause), base.MaxAttempt),
		Take: func(_ context.Context, m *models.WatchResponse) error {
			for _, c := range feed.ClaimsOf(m) {
				if !meant(c) {
					continue
				}
				if seen = true; !feed.IsLive(c.GetStatus()) {
					ended = models.ClaimEnded(c)
					cancel()
				}
			}
			if m.GetSynced() && !seen {
				look()
			}
			return nil
		},
	}
	_ = f.Run(ctx) // ended says
	return ended
}
