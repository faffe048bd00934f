package feed

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/locket-service/locket/lock/internal/base"
	"github.com/locket-service/locket/models"
)

const (
	// valueCalls is how many values are fetched at once, valueTimeout how long one may take.
	valueCalls   = 8
	valueTimeout = 5 * time.Second
)

// Follower has the current claims that match a request of Watch. It applies the messages up to a cursor together, so
// that messages repeated after a break were not applied before.
type Follower struct {
	client  func() (models.LocketClient, error)
	request *models.WatchRequest
	done    chan struct{}

	// came are the changed claims of messages that no cursor has followed yet.
	came []*models.Claim
	// fresh is set during a snapshot: known claims that are not in it have ended.
	fresh bool
	// fetched has claims whose values have been fetched, so that another attempt need not.
	fetched map[string]*models.Claim

	// mu guards what follows; the goroutine of the follower alone changes it.
	mu     sync.Mutex
	claims map[string]*models.Claim // by id
	// changed is closed, and replaced, with every change.
	changed chan struct{}
	err     error
}

// Follow follows until the context is done, or the servers refuse. While no server can be reached, the claims do not
// change.
func Follow(ctx context.Context, client func() (models.LocketClient, error), request *models.WatchRequest) *Follower {
	f := &Follower{
		client: client, request: request, done: make(chan struct{}),
		fetched: make(map[string]*models.Claim), changed: make(chan struct{}),
	}
	go f.run(ctx)
	return f
}

func (f *Follower) run(ctx context.Context) {
	defer close(f.done)
	err := (&Feed{
		Client:  func() (Client, error) { return f.client() },
		Request: f.request,
		Started: func() { f.came, f.fresh = nil, f.request.GetCursor() == "" },
		Take:    f.take,
		Longest: MaxPause,
	}).Run(ctx)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
}

// Claims returns the live claims, which must not be changed, and a channel that is closed with the next change. The
// claims are nil until all are known.
func (f *Follower) Claims() (claims map[string]*models.Claim, changed <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.claims, f.changed
}

// Done is closed when the follower has ended. Err then returns the reason.
func (f *Follower) Done() <-chan struct{} { return f.done }

// Err returns nil while the claims are followed.
func (f *Follower) Err() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}

// take stores a message. If it has a cursor, take applies it with the messages before it.
func (f *Follower) take(ctx context.Context, m *models.WatchResponse) error {
	f.came = append(f.came, ClaimsOf(m)...)
	if m.GetCursor() == "" || len(f.came) == 0 && !f.fresh {
		return nil
	}
	claims := f.next()
	if err := f.fetch(ctx, claims); err != nil {
		return err
	}
	f.came, f.fresh, f.fetched = nil, false, make(map[string]*models.Claim)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.claims = claims
	close(f.changed)
	f.changed = make(chan struct{})
	return nil
}

// next returns the known claims with the received changes applied; the highest version wins.
func (f *Follower) next() map[string]*models.Claim {
	claims := make(map[string]*models.Claim)
	if !f.fresh {
		maps.Copy(claims, f.claims)
	}
	for _, c := range f.came {
		known := claims[c.GetId()]
		if known == nil {
			known = f.claims[c.GetId()]
		}
		matches := IsLive(c.GetStatus()) && f.hasType(c)
		switch {
		case known.GetVersion() >= c.GetVersion() && matches:
			claims[c.GetId()] = known
		case known.GetVersion() > c.GetVersion():
		case matches:
			claims[c.GetId()] = c
		default:
			delete(claims, c.GetId())
		}
	}
	return claims
}

// hasType reports whether a claim has the type that the request asks for. Watch also reports when a claim gets another type.
func (f *Follower) hasType(c *models.Claim) bool {
	want := f.request.GetTypeCode()
	return want == models.TypeCode_UNKNOWN || c.GetTypeCode() == want
}

// fetch gets the values of holders that are new and have none: Watch leaves long ones out.
func (f *Follower) fetch(ctx context.Context, claims map[string]*models.Claim) error {
	rpc, err := f.client()
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
				whole[i], errs[worker] = f.fetchClaim(ctx, rpc, missing[i])
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

// fetchClaim returns a claim with its value, at the message's version or a later one. Its status is unspecified if it no longer
// matches: the event of that is on its way.
func (f *Follower) fetchClaim(ctx context.Context, rpc models.LocketClient, c *models.Claim) (*models.Claim, error) {
	ctx, cancel := context.WithTimeout(base.WithRequestID(ctx), valueTimeout)
	defer cancel()
	whole, err := rpc.GetClaim(ctx, &models.GetClaimRequest{Id: c.GetId()})
	switch {
	case err == nil && whole.GetVersion() < c.GetVersion():
		return nil, status.Error(codes.Unavailable, "the server does not know yet what another one has reported")
	case status.Code(err) == codes.NotFound, err == nil && !f.hasType(whole):
		ended, _ := proto.Clone(c).(*models.Claim)
		ended.Status = models.Status_STATUS_UNSPECIFIED
		return ended, nil
	}
	return whole, err
}

func IsLive(s models.Status) bool {
	return s == models.Status_STATUS_WAITING || s == models.Status_STATUS_ACTIVE
}
