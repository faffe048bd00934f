package lock

import (
	"context"
	"maps"
	"math/rand/v2"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/locket-service/locket/models"
)

// follower keeps the claims that match a request of Watch as they are, over any number of streams.
type follower struct {
	client  *Client
	request *models.WatchRequest
	// changed gets the live claims whenever they have changed, for the first time when all are
	// known. It must not keep the map.
	changed func(claims map[string]*models.Claim)

	claims map[string]*models.Claim // by id
	// fresh are those of a snapshot that is not complete; nil outside of one.
	fresh map[string]*models.Claim
}

// maxFollowPause is the longest pause between two streams.
const maxFollowPause = time.Second

// run follows until the context is done, or the servers refuse; its error is never nil. While none can be
// reached, the claims stay as they were.
func (f *follower) run(ctx context.Context) error {
	pause := firstPause
	for {
		healthy, err := f.stream(ctx)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case models.ReasonOf(err) == models.ReasonCursorTooOld:
			f.request.Cursor = ""
		case classify(err) == permanent, classify(err) == denied:
			return err
		}
		if healthy {
			pause = firstPause
		}
		select {
		case <-time.After(pause - time.Duration(rand.Float64()*float64(pause)/2)):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		pause = min(2*pause, maxFollowPause)
	}
}

// stream follows over one stream, and reports whether anything came.
func (f *follower) stream(ctx context.Context) (healthy bool, err error) {
	rpc, err := f.client.rpc()
	if err != nil {
		return false, status.Error(codes.InvalidArgument, err.Error())
	}
	ctx, cancel := context.WithCancel(withRequestID(ctx))
	defer cancel()
	stream, err := rpc.Watch(ctx, f.request)
	if err != nil {
		return false, err
	}
	f.fresh = nil
	if f.request.GetCursor() == "" {
		f.fresh = make(map[string]*models.Claim)
	}
	for {
		m, err := stream.Recv()
		if err != nil {
			return healthy, err
		}
		healthy = true
		f.take(m)
	}
}

// take takes a message whole.
func (f *follower) take(m *models.WatchResponse) {
	for _, c := range m.GetSnapshot() {
		f.fresh[c.GetId()] = c
	}
	changed := len(m.GetTransitions()) > 0
	if m.GetSynced() && f.fresh != nil {
		changed = true
		f.claims, f.fresh = f.fresh, nil
	}
	for _, t := range m.GetTransitions() {
		c := t.GetClaim()
		if known := f.claims[c.GetId()]; known.GetVersion() > c.GetVersion() {
			continue
		}
		if isLive(c.GetStatus()) {
			f.claims[c.GetId()] = c
		} else {
			delete(f.claims, c.GetId())
		}
	}
	if m.GetCursor() != "" {
		f.request.Cursor = m.GetCursor()
	}
	if changed {
		f.changed(maps.Clone(f.claims))
	}
}

func isLive(s models.Status) bool {
	return s == models.Status_STATUS_WAITING || s == models.Status_STATUS_ACTIVE
}
