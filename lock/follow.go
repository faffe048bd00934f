package lock

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/locket-service/locket/models"
)

// feed reads a Watch over any number of streams.
type feed struct {
	watch   func() (watchClient, error)
	request *models.WatchRequest
	// begun, if it is set, is called when a stream begins, which brings again what came after the last cursor.
	begun func()
	// take takes a message. With an error of it the stream ends, and the next one brings the message again.
	take func(context.Context, *models.WatchResponse) error
	// longest is the longest pause between two streams.
	longest time.Duration
}

// maxFollowPause is the longest pause between two streams.
const maxFollowPause = time.Second

const (
	// valueCalls is how many values are fetched at once, valueTimeout how long one may take.
	valueCalls   = 8
	valueTimeout = 5 * time.Second
)

// run follows until the context is done, or the servers refuse; its error is never nil.
func (f *feed) run(ctx context.Context) error {
	var failure error // of the last stream
	pause := firstPause
	for {
		healthy, err := f.stream(ctx)
		switch {
		case ctx.Err() != nil && !healthy && failure != nil:
			return fmt.Errorf("%w: %w", context.Cause(ctx), failure)
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case models.ReasonOf(err) == models.ReasonCursorTooOld:
			f.request.Cursor = ""
		case classify(err) == permanent, classify(err) == denied:
			return err
		}
		if failure = err; healthy {
			pause = firstPause
		}
		select {
		case <-time.After(pause - time.Duration(rand.Float64()*float64(pause)/2)):
		case <-ctx.Done():
		}
		pause = min(2*pause, f.longest)
	}
}

// stream follows over one stream, and reports whether anything was taken.
func (f *feed) stream(ctx context.Context) (healthy bool, err error) {
	watcher, err := f.watch()
	if err != nil {
		return false, status.Error(codes.InvalidArgument, err.Error())
	}
	ctx, cancel := context.WithCancel(withRequestID(ctx))
	defer cancel()
	stream, err := watcher.Watch(ctx, f.request)
	if err != nil {
		return false, err
	}
	if f.begun != nil {
		f.begun()
	}
	for {
		m, err := stream.Recv()
		if err == nil {
			err = f.take(ctx, m)
		}
		if err != nil {
			return healthy, err
		}
		if m.GetCursor() != "" {
			f.request.Cursor, healthy = m.GetCursor(), true
		}
	}
}

// claimsOf returns the claims of a message, as they are after their changes.
func claimsOf(m *models.WatchResponse) []*models.Claim {
	claims := m.GetSnapshot()
	for _, t := range m.GetTransitions() {
		claims = append(claims, t.GetClaim())
	}
	return claims
}

// follower keeps the claims that match a request of Watch as they are. It takes what belongs
// together, up to a cursor, whole: what comes again after a break was not taken before.
type follower struct {
	client  *Client
	request *models.WatchRequest
	// changed gets the live claims whenever they have changed, for the first time when all are
	// known. It must not change the map.
	changed func(claims map[string]*models.Claim)

	claims map[string]*models.Claim // by id
	// came are the claims, as they are after their changes, of messages without a cursor.
	came []*models.Claim
	// fresh is set in a snapshot that is not complete: what is not in it has ended.
	fresh bool
	// fetched are claims of what came that have been fetched, which another attempt need not do again.
	fetched map[string]*models.Claim
}

// run follows until the context is done, or the servers refuse; its error is never nil. While none can be
// reached, the claims stay as they were.
func (f *follower) run(ctx context.Context) error {
	f.fetched = make(map[string]*models.Claim)
	return (&feed{
		watch:   func() (watchClient, error) { return f.client.rpc() },
		request: f.request,
		begun:   func() { f.came, f.fresh = nil, f.request.GetCursor() == "" },
		take:    f.take,
		longest: maxFollowPause,
	}).run(ctx)
}

// take takes a message, and those before it if it has a cursor.
func (f *follower) take(ctx context.Context, m *models.WatchResponse) error {
	f.came = append(f.came, claimsOf(m)...)
	if m.GetCursor() != "" && (len(f.came) > 0 || f.fresh) {
		claims := f.next()
		if err := f.fetch(ctx, claims); err != nil {
			return err
		}
		f.claims, f.came, f.fresh, f.fetched = claims, nil, false, make(map[string]*models.Claim)
		f.changed(claims)
	}
	return nil
}

// next returns the claims with what came: each as it was last, by its version.
func (f *follower) next() map[string]*models.Claim {
	claims := make(map[string]*models.Claim)
	if !f.fresh {
		maps.Copy(claims, f.claims)
	}
	for _, c := range f.came {
		known := claims[c.GetId()]
		if known == nil {
			known = f.claims[c.GetId()]
		}
		switch {
		case known.GetVersion() >= c.GetVersion() && isLive(c.GetStatus()):
			claims[c.GetId()] = known
		case known.GetVersion() > c.GetVersion():
		case isLive(c.GetStatus()):
			claims[c.GetId()] = c
		default:
			delete(claims, c.GetId())
		}
	}
	return claims
}

// fetch gets the values of holders that are new and have none: Watch leaves long ones out.
func (f *follower) fetch(ctx context.Context, claims map[string]*models.Claim) error {
	rpc, err := f.client.rpc()
	if err != nil {
		return err
	}
	var missing []*models.Claim
	for id, c := range claims {
		switch whole := f.fetched[id]; {
		case c == f.claims[id], c.GetStatus() != models.Status_STATUS_ACTIVE, c.GetValue() != "":
		case whole.GetVersion() >= c.GetVersion():
			claims[id] = whole
		default:
			missing = append(missing, c)
		}
	}
	whole, errs := make([]*models.Claim, len(missing)), make([]error, len(missing))
	var all sync.WaitGroup
	for worker := range min(valueCalls, len(missing)) {
		all.Go(func() {
			for i := worker; i < len(missing) && errs[worker] == nil; i += valueCalls {
				whole[i], errs[worker] = fetchClaim(ctx, rpc, missing[i])
			}
		})
	}
	all.Wait()
	for i, c := range missing {
		if whole[i] != nil {
			claims[c.GetId()], f.fetched[c.GetId()] = whole[i], whole[i]
		}
	}
	return errors.Join(errs...)
}

// fetchClaim returns a claim with its value: as it is in the message or later.
func fetchClaim(ctx context.Context, rpc models.LocketClient, c *models.Claim) (*models.Claim, error) {
	ctx, cancel := context.WithTimeout(withRequestID(ctx), valueTimeout)
	defer cancel()
	whole, err := rpc.GetClaim(ctx, &models.GetClaimRequest{Id: c.GetId()})
	switch {
	case status.Code(err) == codes.NotFound:
		ended, _ := proto.Clone(c).(*models.Claim)
		ended.Status = models.Status_STATUS_UNSPECIFIED // the news of its end are on their way
		return ended, nil
	case err == nil && whole.GetVersion() < c.GetVersion():
		return nil, status.Error(codes.Unavailable, "the server does not know yet what another has told")
	}
	return whole, err
}

func isLive(s models.Status) bool {
	return s == models.Status_STATUS_WAITING || s == models.Status_STATUS_ACTIVE
}
