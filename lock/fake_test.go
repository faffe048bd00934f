package lock_test

import (
	"context"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tedsuo/ifrit"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/locket-service/locket/lock"
	"github.com/locket-service/locket/models"
)

// fake is a client such as services use in their tests. Locks and presences need two of its methods, claims four. It grants
// everything.
type fake struct {
	mu    sync.Mutex
	calls map[string]int
}

var (
	_ lock.LockClient  = (*fake)(nil)
	_ lock.ClaimClient = (*fake)(nil)
)

func (f *fake) called(method string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.calls == nil {
		f.calls = make(map[string]int)
	}
	f.calls[method]++
}

func (f *fake) count(method string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls[method]
}

// Lock implements lock.LockClient.
func (f *fake) Lock(context.Context, *models.LockRequest, ...grpc.CallOption) (*models.LockResponse, error) {
	f.called("Lock")
	return &models.LockResponse{}, nil
}

// Release implements lock.LockClient.
func (f *fake) Release(context.Context, *models.ReleaseRequest, ...grpc.CallOption) (*models.ReleaseResponse, error) {
	f.called("Release")
	return &models.ReleaseResponse{}, nil
}

// CreateClaim implements lock.ClaimClient.
func (f *fake) CreateClaim(_ context.Context, in *models.CreateClaimRequest, _ ...grpc.CallOption) (*models.Claim, error) {
	f.called("CreateClaim")
	return &models.Claim{Id: in.GetId(), Status: models.Status_STATUS_ACTIVE, Token: 1, Ttl: in.Ttl}, nil
}

// AwaitClaim implements lock.ClaimClient.
func (f *fake) AwaitClaim(_ context.Context, in *models.AwaitClaimRequest, _ ...grpc.CallOption) (*models.Claim, error) {
	f.called("AwaitClaim")
	return &models.Claim{Id: in.GetId(), Status: models.Status_STATUS_ACTIVE, Token: 1}, nil
}

// UpdateClaim implements lock.ClaimClient.
func (f *fake) UpdateClaim(_ context.Context, in *models.UpdateClaimRequest, _ ...grpc.CallOption) (*models.Claim, error) {
	f.called("UpdateClaim")
	return &models.Claim{Id: in.GetId(), Status: models.Status_STATUS_ACTIVE, Token: 1, Ttl: in.Ttl}, nil
}

// EndClaim implements lock.ClaimClient.
func (f *fake) EndClaim(_ context.Context, in *models.EndClaimRequest, _ ...grpc.CallOption) (*models.Claim, error) {
	f.called("EndClaim")
	return &models.Claim{Id: in.GetId(), Status: models.Status_STATUS_RELEASED}, nil
}

// TestFakeClient: runners work with fakes of the methods that they call, and call no others.
func TestFakeClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := new(fake)
		two := struct{ lock.LockClient }{f} // has only these two methods
		four := struct{ lock.ClaimClient }{f}
		for name, r := range map[string]*lock.Runner{
			"Release":      lock.NewLockRunner(two, resource("k", ""), ttl, retry),
			"of presences": lock.NewPresenceRunner(two, resource("k", ""), ttl, retry),
			"EndClaim":     lock.NewClaimRunner(four, &models.CreateClaimRequest{Resource: "k", Ttl: proto.Float64(15)}),
		} {
			p := ifrit.Invoke(r)
			time.Sleep(time.Minute)
			if _, held := r.Held(); !held {
				t.Errorf("%s: not held", name)
			}
			must(t, end(p))
		}
		if f.count("Lock") < 24 || f.count("Release") != 2 || f.count("UpdateClaim") < 12 || f.count("EndClaim") != 1 {
			t.Errorf("called: %v", f.calls)
		}
	})
}

// mad is a server that answers each request about a claim with a TTL that is no duration.
type mad struct {
	fake
	ttl float64
}

// CreateClaim implements lock.ClaimClient.
func (m *mad) CreateClaim(ctx context.Context, in *models.CreateClaimRequest, opts ...grpc.CallOption) (*models.Claim, error) {
	c, err := m.fake.CreateClaim(ctx, in, opts...)
	c.Ttl = &m.ttl
	return c, err
}

// UpdateClaim implements lock.ClaimClient.
func (m *mad) UpdateClaim(ctx context.Context, in *models.UpdateClaimRequest, opts ...grpc.CallOption) (*models.Claim, error) {
	c, err := m.fake.UpdateClaim(ctx, in, opts...)
	c.Ttl = &m.ttl
	if m.count("UpdateClaim") > 1000 { // so that the bubble's time passes
		<-ctx.Done()
	}
	return c, err
}

// TestMadTTLs: whatever TTL a server answers, a claim is never trusted for longer than its own TTL. If nothing can be
// trusted, the claim is renewed again after a pause.
func TestMadTTLs(t *testing.T) {
	for _, left := range []float64{math.NaN(), math.Inf(1), math.Inf(-1), 1e300, -1e300, -1} {
		synctest.Test(t, func(t *testing.T) {
			server := &mad{ttl: left}
			r := lock.NewClaimRunner(server, &models.CreateClaimRequest{Resource: "k", Ttl: proto.Float64(ttl.Seconds())})
			p := ifrit.Background(r)
			time.Sleep(time.Minute)
			if hold := lock.HoldOf(r); hold != nil && time.Until(hold.Deadline()) > ttl {
				t.Errorf("after the TTL %v it is trusted for %s", left, time.Until(hold.Deadline()))
			}
			if asked := server.count("UpdateClaim"); asked > 100 {
				t.Errorf("after the TTL %v it is renewed %d times", left, asked)
			}
			must(t, end(p))
		})
	}
}
