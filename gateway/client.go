package gateway

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/locket-service/locket/models"
)

// maxWait is how long one request may wait at most.
const maxWait = time.Hour

// preferredWait returns how long a client prefers to wait (RFC 7240, section 4.3), 0 if it gives no valid preference.
func preferredWait(header http.Header) time.Duration {
	for _, line := range header.Values("Prefer") {
		for preference := range strings.SplitSeq(line, ",") {
			preference, _, _ = strings.Cut(preference, ";")
			name, value, _ := strings.Cut(preference, "=")
			if !strings.EqualFold(strings.TrimSpace(name), "wait") {
				continue
			}
			seconds, err := strconv.ParseUint(strings.Trim(strings.TrimSpace(value), `"`), 10, 31)
			if err != nil {
				return 0
			}
			return min(time.Duration(seconds)*time.Second, maxWait)
		}
	}
	return 0
}

// tellApplied sets the header that reports an applied preference. If the server had no room for the wait, it sets
// Retry-After.
func (r *request) tellApplied(header http.Header) {
	if r.retryAfter {
		header.Set("Retry-After", "1")
	}
	if r.waited {
		header.Set("Preference-Applied", "wait="+strconv.Itoa(int(r.wait/time.Second)))
	}
}

// client is a client of the service that adds what only REST has: answers about a claim wait, if the caller prefers
// that, until the claim no longer waits; and presences have a path of their own.
type client struct{ models.LocketClient }

// CreateClaim implements models.LocketClient.
func (c client) CreateClaim(ctx context.Context, in *models.CreateClaimRequest, opts ...grpc.CallOption) (*models.Claim, error) {
	claim, err := c.LocketClient.CreateClaim(ctx, in, opts...)
	return c.await(ctx, claim, err)
}

func (c client) GetClaim(ctx context.Context, in *models.GetClaimRequest, opts ...grpc.CallOption) (*models.Claim, error) {
	claim, err := c.LocketClient.GetClaim(ctx, in, opts...)
	return c.await(ctx, claim, err)
}

// UpdateClaim implements models.LocketClient. If a claim cannot be activated yet, it waits for the claim and tries
// again.
func (c client) UpdateClaim(ctx context.Context, in *models.UpdateClaimRequest, opts ...grpc.CallOption) (*models.Claim, error) {
	claim, err := c.LocketClient.UpdateClaim(ctx, in, opts...)
	if requestOf(ctx).wait == 0 || in.GetStatus() != models.Status_STATUS_ACTIVE {
		return claim, err
	}
	if status.Code(err) != codes.Aborted {
		requestOf(ctx).waited = true
		return claim, err
	}
	awaited, awaitErr := c.await(ctx, &models.Claim{Id: in.GetId(), Status: models.Status_STATUS_WAITING}, nil)
	switch {
	case awaitErr != nil:
		return nil, awaitErr
	case awaited.GetStatus() == models.Status_STATUS_WAITING:
		return claim, err
	}
	// The claim had the caller's version. The grant has given it a new one; if nothing else has changed it, the
	// change still applies.
	if in.IfVersion != nil && awaited.GetVersion() == awaited.GetToken() {
		in = proto.CloneOf(in)
		in.IfVersion = proto.Uint64(awaited.GetVersion())
	}
	return c.LocketClient.UpdateClaim(ctx, in, opts...)
}

// await waits until a claim no longer waits or the time is up, and returns it. If that fails (for example because the
// server shuts down), it returns the claim that was read before. It returns the error of a claim that was aborted to end a
// deadlock.
func (c client) await(ctx context.Context, claim *models.Claim, err error) (*models.Claim, error) {
	r := requestOf(ctx)
	if err != nil || r.wait == 0 {
		return claim, err
	}
	if claim.GetStatus() != models.Status_STATUS_WAITING {
		r.waited = true
		return claim, nil
	}
	r.extendDeadline(r.wait)
	awaited, err := c.AwaitClaim(ctx, &models.AwaitClaimRequest{Id: claim.GetId(), Timeout: durationpb.New(r.wait)})
	switch {
	case err == nil:
		r.waited = true
		return awaited, nil
	case models.ReasonOf(err) == models.ReasonDeadlock:
		return nil, err
	case status.Code(err) == codes.ResourceExhausted:
		r.retryAfter = true
	}
	return claim, nil //nolint:nilerr // waiting is optional
}

func (c client) Fetch(ctx context.Context, in *models.FetchRequest, opts ...grpc.CallOption) (*models.FetchResponse, error) {
	found, err := c.LocketClient.Fetch(ctx, in, opts...)
	if err != nil || listOf(found.GetResource()) == requestOf(ctx).list() {
		return found, err
	}
	return nil, models.ErrResourceNotFound
}
