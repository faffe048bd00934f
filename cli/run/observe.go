package run

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/models/jsonview"
)

// observedClient records what the server answers to a runner of one claim: the claim, and until
// when it is held at least, by a clock that the guard shares.
type observedClient struct {
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

func observe(client models.LocketClient) *observedClient {
	answered, queued := make(chan struct{}), make(chan struct{})
	return &observedClient{
		LocketClient: client, isAnswered: answered, isQueued: queued,
		answered: sync.OnceFunc(func() { close(answered) }), queued: sync.OnceFunc(func() { close(queued) }),
	}
}

// CreateClaim implements models.LocketClient.
func (c *observedClient) CreateClaim(ctx context.Context, in *models.CreateClaimRequest, opts ...grpc.CallOption) (*models.Claim, error) {
	sent := sinceBoot()
	claim, err := c.LocketClient.CreateClaim(ctx, in, opts...)
	return c.record(sent, claim, err)
}

// AwaitClaim implements models.LocketClient.
func (c *observedClient) AwaitClaim(ctx context.Context, in *models.AwaitClaimRequest, opts ...grpc.CallOption) (*models.Claim, error) {
	sent := sinceBoot()
	claim, err := c.LocketClient.AwaitClaim(ctx, in, opts...)
	return c.record(sent, claim, err)
}

// UpdateClaim implements models.LocketClient.
func (c *observedClient) UpdateClaim(ctx context.Context, in *models.UpdateClaimRequest, opts ...grpc.CallOption) (*models.Claim, error) {
	sent := sinceBoot()
	claim, err := c.LocketClient.UpdateClaim(ctx, in, opts...)
	return c.record(sent, claim, err)
}

// record keeps an answer, and returns it. An active claim is held for as long as its answer
// says, counted from when the request was sent: the server has read it later.
func (c *observedClient) record(sent time.Duration, claim *models.Claim, err error) (*models.Claim, error) {
	if err != nil {
		return claim, err
	}
	c.answered()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last = claim
	switch claim.GetStatus() {
	case models.Status_STATUS_WAITING:
		c.queued()
	case models.Status_STATUS_ACTIVE:
		if end := sent + jsonview.Seconds(claim.GetTtl()).Duration(); end > c.end {
			c.end = end
			if c.moved != nil {
				c.moved(end)
			}
		}
	}
	return claim, err
}

// follow calls moved with the end of the lease, now and whenever it moves.
func (c *observedClient) follow(moved func(end time.Duration)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.moved = moved
	moved(c.end)
}

// lastAnswer returns the claim as the server described it last, nil if it never has.
func (c *observedClient) lastAnswer() *models.Claim {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
