package hold

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/locket-service/locket/internal/program/cli/connect"
	"github.com/locket-service/locket/models"
)

// refusing is a client whose waits are refused, until they are not.
type refusing struct {
	models.LocketClient
	refusals []error
}

func (c *refusing) AwaitClaim(context.Context, *models.AwaitClaimRequest, ...grpc.CallOption) (*models.Claim, error) {
	if len(c.refusals) > 0 {
		err := c.refusals[0]
		c.refusals = c.refusals[1:]
		return nil, err
	}
	return &models.Claim{Status: models.Status_STATUS_ACTIVE}, nil
}

// A wait keeps its place while servers have too much to do, cannot be reached, or fail. It ends with a refusal.
func TestAwaitBesideOverload(t *testing.T) {
	t.Parallel()
	busy, gone, denied := status.Error(codes.ResourceExhausted, "busy"), status.Error(codes.Unavailable, "gone"), status.Error(codes.PermissionDenied, "no")
	silent, reset, bug := status.Error(codes.DeadlineExceeded, "silent"), status.Error(codes.Canceled, "reset"), status.Error(codes.Internal, "a bug")
	for _, test := range []struct {
		refusals []error
		want     codes.Code
	}{
		{[]error{busy, gone, busy, busy}, codes.OK},
		{[]error{busy, busy, busy, busy, busy, busy, busy}, codes.OK}, // until its time is up
		{[]error{busy, denied}, codes.PermissionDenied},
		{[]error{silent, reset, bug}, codes.OK},
		{[]error{busy, busy, busy, busy, busy, busy, busy, busy}, codes.ResourceExhausted}, // for longer than it may wait
	} {
		synctest.Test(t, func(t *testing.T) {
			c := &connect.Connection{LocketClient: &refusing{refusals: test.refusals}, Settings: connect.Settings{Timeout: time.Second}}
			claim, err := Await(t.Context(), c, &models.Claim{Status: models.Status_STATUS_WAITING}, 5*time.Second)
			if status.Code(err) != test.want || (err == nil) != (claim.GetStatus() == models.Status_STATUS_ACTIVE) {
				t.Errorf("%v: %v, %v", test.refusals, claim, err)
			}
		})
	}
}

// prompt is a client whose wait ends when somebody has asked for the queue.
type prompt struct {
	models.LocketClient
	asked func()
	once  chan struct{}
}

func (c *prompt) AwaitClaim(context.Context, *models.AwaitClaimRequest, ...grpc.CallOption) (*models.Claim, error) {
	<-c.once
	return &models.Claim{Status: models.Status_STATUS_ACTIVE}, nil
}

func (c *prompt) GetQueue(context.Context, *models.GetQueueRequest, ...grpc.CallOption) (*models.Queue, error) {
	c.asked()
	return &models.Queue{}, nil
}

// A server that has answered is not reported as silent, even if this process stood still for the whole timeout.
func TestWatchAfterPause(t *testing.T) {
	t.Parallel()
	for range 64 { // the order of two events is by chance
		client := &prompt{once: make(chan struct{})}
		client.asked = sync.OnceFunc(func() { close(client.once) })
		c := &connect.Connection{LocketClient: client} // its timeout is over at once
		var stderr strings.Builder
		claim, err := Watch(t.Context(), c, &stderr, &models.Claim{Status: models.Status_STATUS_WAITING}, time.Minute)
		if err != nil || claim.GetStatus() != models.Status_STATUS_ACTIVE || stderr.Len() > 0 {
			t.Fatalf("%v, %v, %s", claim, err, stderr.String())
		}
	}
}
