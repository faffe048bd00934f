package recorder

import (
	"context"
	"strconv"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/locket-service/locket/internal/rules/claim"
	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/tests/history"
)

// DialOptions make a connection that is recorded.
func (r *Recorder) DialOptions() []grpc.DialOption {
	return []grpc.DialOption{grpc.WithChainUnaryInterceptor(r.unary), grpc.WithChainStreamInterceptor(r.stream)}
}

// Over returns a connection that is recorded.
func (r *Recorder) Over(conn grpc.ClientConnInterface) grpc.ClientConnInterface { return over{conn, r} }

type over struct {
	grpc.ClientConnInterface
	recorder *Recorder
}

// Invoke implements grpc.ClientConnInterface.
func (o over) Invoke(ctx context.Context, method string, request, reply any, opts ...grpc.CallOption) error {
	return o.recorder.unary(ctx, method, request, reply, nil, func(ctx context.Context, method string, request, reply any, _ *grpc.ClientConn, opts ...grpc.CallOption) error {
		return o.ClientConnInterface.Invoke(ctx, method, request, reply, opts...)
	}, opts...)
}

// NewStream implements grpc.ClientConnInterface.
func (o over) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	return o.recorder.stream(ctx, desc, nil, method, func(ctx context.Context, desc *grpc.StreamDesc, _ *grpc.ClientConn, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
		return o.ClientConnInterface.NewStream(ctx, desc, method, opts...)
	}, opts...)
}

func (r *Recorder) unary(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	call := r.now()
	err := invoke(ctx, method, req, reply, cc, opts...)
	request, ok := requestOf(req)
	switch {
	case !ok:
	case err != nil:
		r.add(call, request, refusalOf(err))
	default:
		r.add(call, request, answerOf(reply))
	}
	return err
}

// requestOf returns the recorded form of a call, unless it is about no claim.
func requestOf(req any) (history.Request, bool) {
	switch req := req.(type) {
	case *models.LockRequest:
		return history.Reacquire(req.GetResource().GetKey(), req.GetResource().GetOwner(), req.GetToken(), time.Duration(req.GetTtlInSeconds())*time.Second), true
	case *models.ReleaseRequest:
		return history.Release(req.GetResource().GetKey(), req.GetResource().GetOwner(), req.GetToken()), true
	case *models.CreateClaimRequest:
		return history.CreateFor(claim.Create{
			ID: req.GetId(), Resource: req.GetResource(), Owner: req.GetOwner(), Units: unitsOf(req.GetMode()),
			TTL: seconds(req.GetTtl()), WaitTTL: seconds(req.GetWaitTtl()), NoWait: req.GetNoWait(),
		}), true
	case *models.UpdateClaimRequest:
		return update(req.GetId(), req.Ttl, claim.Status(req.GetStatus())), true
	case *models.EndClaimRequest:
		return history.End("", req.GetId()), true
	case *models.AwaitClaimRequest:
		return history.Read("", req.GetId()), true
	case *models.GetClaimRequest:
		return history.Read("", req.GetId()), true
	}
	return history.Request{}, false
}

// update returns the kind of an update: a renewal, a check whether the claim is active, or a final status.
func update(id string, ttl *float64, to claim.Status) history.Request {
	var renewed *time.Duration
	if ttl != nil {
		d := seconds(*ttl)
		renewed = &d
	}
	switch {
	case to == 0 && renewed != nil:
		return history.Renew("", id, *renewed)
	case to.Final():
		return history.SetStatus("", id, to)
	}
	return history.Activate("", id, renewed)
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

func answerOf(reply any) history.Output {
	switch reply := reply.(type) {
	case *models.LockResponse:
		return history.Output{Status: claim.Active, Token: reply.GetToken()}
	case *models.Claim:
		return history.Output{Status: claim.Status(reply.GetStatus()), Token: reply.GetToken(), Version: reply.GetVersion()}
	}
	return history.Output{Status: claim.Released}
}

// refusalOf returns why a request was refused. After other errors nobody knows whether it was carried out.
func refusalOf(err error) history.Output {
	metadata := make(map[string]string)
	for _, detail := range status.Convert(err).Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok {
			metadata = info.GetMetadata()
		}
	}
	switch code := status.Code(err); {
	case code == codes.NotFound:
		return history.Output{Refused: history.NotFound}
	case code == codes.AlreadyExists && models.ReasonOf(err) == models.ReasonLockCollision:
		token, _ := strconv.ParseUint(metadata["token"], 10, 64) // none for shared holders
		return history.Output{Refused: history.Collision, Holder: metadata["holder"], Token: token}
	case code == codes.FailedPrecondition:
		return history.Output{Refused: history.Transition}
	case code == codes.Aborted && models.ReasonOf(err) == models.ReasonClaimWaits:
		return history.Output{Refused: history.Contention}
	}
	return history.Output{Unknown: true}
}

func unitsOf(mode models.Mode) claim.Units {
	if mode == models.Mode_MODE_SHARED {
		return claim.Shared
	}
	return claim.Exclusive
}
