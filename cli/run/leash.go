package run

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/models/jsonview"
)

// leash listens to what the server answers to a runner of one claim. It knows until when the
// claim is held at least, by a clock that the guard shares.
type leash struct {
	models.LocketClient

	// answered is closed when a server has answered, queued when the claim had to wait.
	answered, queued func()
	isAnswered       <-chan struct{}
	isQueued         <-chan struct{}

	mu    sync.Mutex
	last  *models.Claim
	end   time.Duration
	moved func(end time.Duration)
}

func newLeash(client models.LocketClient) *leash {
	answered, queued := make(chan struct{}), make(chan struct{})
	return &leash{
		LocketClient: client, isAnswered: answered, isQueued: queued,
		answered: sync.OnceFunc(func() { close(answered) }), queued: sync.OnceFunc(func() { close(queued) }),
	}
}

// CreateClaim implements models.LocketClient.
func (l *leash) CreateClaim(ctx context.Context, in *models.CreateClaimRequest, opts ...grpc.CallOption) (*models.Claim, error) {
	sent := sinceBoot()
	claim, err := l.LocketClient.CreateClaim(ctx, in, opts...)
	return l.heed(sent, claim, err)
}

// AwaitClaim implements models.LocketClient.
func (l *leash) AwaitClaim(ctx context.Context, in *models.AwaitClaimRequest, opts ...grpc.CallOption) (*models.Claim, error) {
	sent := sinceBoot()
	claim, err := l.LocketClient.AwaitClaim(ctx, in, opts...)
	return l.heed(sent, claim, err)
}

// UpdateClaim implements models.LocketClient.
func (l *leash) UpdateClaim(ctx context.Context, in *models.UpdateClaimRequest, opts ...grpc.CallOption) (*models.Claim, error) {
	sent := sinceBoot()
	claim, err := l.LocketClient.UpdateClaim(ctx, in, opts...)
	return l.heed(sent, claim, err)
}

// heed passes an answer on. An active claim is held for as long as its answer says, counted
// from when the request was sent: the server has read it later.
func (l *leash) heed(sent time.Duration, claim *models.Claim, err error) (*models.Claim, error) {
	if err != nil {
		return claim, err
	}
	l.answered()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last = claim
	switch claim.GetStatus() {
	case models.Status_STATUS_WAITING:
		l.queued()
	case models.Status_STATUS_ACTIVE:
		if end := sent + jsonview.Seconds(claim.GetTtl()).Duration(); end > l.end {
			l.end = end
			if l.moved != nil {
				l.moved(end)
			}
		}
	}
	return claim, err
}

// follow calls moved with the end of the lease, now and whenever it moves.
func (l *leash) follow(moved func(end time.Duration)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.moved = moved
	moved(l.end)
}

// lastAnswer returns the claim as it was told last, nil if it never was.
func (l *leash) lastAnswer() *models.Claim {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
