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
	moved func()
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
	if claim.GetStatus() == models.Status_STATUS_WAITING {
		c.queued()
	}
	if moved := c.note(sent, claim); moved != nil {
		moved()
	}
	return claim, nil
}

// note keeps a claim. It returns what to call if the end of its lease has moved.
func (c *observedClient) note(sent time.Duration, claim *models.Claim) (moved func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last = claim
	end := sent + jsonview.Seconds(claim.GetTtl()).Duration()
	if claim.GetStatus() != models.Status_STATUS_ACTIVE || end <= c.end {
		return nil
	}
	c.end = end
	return c.moved
}

// follow calls moved whenever the end of the lease moves from now on.
func (c *observedClient) follow(moved func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.moved = moved
}

// leaseEnd returns until when the claim is held at least, counted from the boot.
func (c *observedClient) leaseEnd() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.end
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
