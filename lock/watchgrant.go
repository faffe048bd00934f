package lock

import (
	"context"
	"time"

	"google.golang.org/grpc"

	"github.com/locket-service/locket/models"
)

// watchClient is what a runner's client may have besides: with it the runner hears at once how its grant has ended.
type watchClient interface {
	Watch(ctx context.Context, in *models.WatchRequest, opts ...grpc.CallOption) (grpc.ServerStreamingClient[models.WatchResponse], error)
}

// watchGrant follows the claims of an owner, and returns how the one that is meant has ended. It returns nil when
// the context is done, or the client or its servers have no Watch, or do not let the caller watch. It calls look when the claim is
// not there as it begins: a renewal finds out why.
func watchGrant(ctx context.Context, client any, resource, owner string, ttl time.Duration, meant func(*models.Claim) bool, look func()) (ended error) {
	watcher, ok := client.(watchClient)
	if !ok {
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var seen bool
	f := &feed{
		watch:   func() (watchClient, error) { return watcher, nil },
		request: &models.WatchRequest{Resource: &resource, Owner: &owner},
		longest: max(ttl/3, maxFollowPause), // watching that is refused for now costs no more than renewals do
		take: func(_ context.Context, m *models.WatchResponse) error {
			for _, c := range claimsOf(m) {
				if !meant(c) {
					continue
				}
				if seen = true; !isLive(c.GetStatus()) {
					ended = claimEndedError{c.GetStatus(), c.GetReason()}
					cancel()
				}
			}
			if m.GetSynced() && !seen {
				look()
			}
			return nil
		},
	}
	_ = f.run(ctx) // ended says
	return ended
}
