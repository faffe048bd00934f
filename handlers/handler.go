// Package handlers, for this module only, implements the RPCs of service models.Locket. Each handler decodes its request, calls the committer
// or the store, and encodes the answer.
package handlers

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"

	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/base/share"
	"github.com/locket-service/locket/internal/rules/access"
	"github.com/locket-service/locket/internal/rules/claim"
	"github.com/locket-service/locket/internal/service/committer"
	"github.com/locket-service/locket/internal/service/session"
	"github.com/locket-service/locket/internal/service/watch"
	"github.com/locket-service/locket/models"
)

// DefaultMaxWaiting is the default of Config.MaxWaiting. Each waiting call needs about 10 KiB.
const DefaultMaxWaiting = 100_000

// Config configures the service. Changes go through Committer, calls that wait for a claim wait at Hub, Sessions has the
// sessions, and all other reads go to Store.
type Config struct {
	Committer *committer.Committer
	Hub       *watch.Hub
	Sessions  *session.Manager
	Store     db.Reader
	// Status answers GetStatus.
	Status func(context.Context) (*models.ServiceStatus, error)
	// Deadlocks returns the resources of deadlocks that last, in order.
	Deadlocks func() []string
	// Trace returns the context of a session's command in the trace of a traceparent, which comes unchecked from the
	// client. It is nil without traces.
	Trace func(ctx context.Context, traceparent string) context.Context
	// MaxWaiting is how many calls of AwaitClaim may wait on this server; 0 for DefaultMaxWaiting. A tenth as many calls of
	// Watch are allowed. Identities share both. Calls beyond that get ResourceExhausted, reason TOO_MANY_WAITING.
	MaxWaiting int
	Log        *slog.Logger
}

// handler implements models.LocketServer. It embeds UnsafeLocketServer so that a missing method does not compile.
type handler struct {
	models.UnsafeLocketServer
	Config
	renewals rate.Sometimes // limits which renewals are logged
	failures rate.Sometimes // limits which internal errors are logged
	unserved rate.Sometimes // limits which errors of the database are logged

	waiting *share.Limit // calls that wait at the hub
	watches watches
}

// New returns the service.
func New(c Config) models.LocketServer {
	c.Store, c.MaxWaiting = visible{c.Store}, cmp.Or(c.MaxWaiting, DefaultMaxWaiting)
	return &handler{
		Config: c, renewals: newRenewals(), failures: newFailures(), unserved: newFailures(),
		waiting: share.NewLasting(c.MaxWaiting), watches: newWatches(c.MaxWaiting / callsPerWatch),
	}
}

func (h *handler) GetStatus(ctx context.Context, _ *models.GetStatusRequest) (*models.ServiceStatus, error) {
	answer, err := h.Status(ctx)
	if err != nil {
		return nil, h.wireError(ctx, err)
	}
	return answer, nil
}

var errTooManyWaiting = errors.New("too many calls wait")

// Register adds a service to a server. If the server has the codec of package grpcserver, a message that cannot be
// decoded passes the interceptors as others do and is answered with InvalidArgument, where gRPC itself would answer
// Internal.
func Register(server grpc.ServiceRegistrar, service models.LocketServer) {
	desc := models.Locket_ServiceDesc
	desc.Methods = make([]grpc.MethodDesc, len(models.Locket_ServiceDesc.Methods))
	for i, method := range models.Locket_ServiceDesc.Methods {
		desc.Methods[i] = grpc.MethodDesc{MethodName: method.MethodName, Handler: tolerant(method.Handler)}
	}
	desc.Streams = slices.Clone(models.Locket_ServiceDesc.Streams)
	for i, stream := range desc.Streams {
		desc.Streams[i].Handler = tolerantStream(stream.Handler)
	}
	server.RegisterService(&desc, service)
}

func (h *handler) Lock(ctx context.Context, req *models.LockRequest) (*models.LockResponse, error) {
	cmd, err := decodeLock(req)
	if err != nil {
		return nil, h.lockError(ctx, err)
	}
	result, err := h.Committer.Do(ctx, cmd)
	if err != nil {
		return nil, h.lockError(ctx, resourceError{err, req.GetResource().GetKey()})
	}
	renewed := result.Claim.Version != result.Claim.Token
	if renewed {
		h.logRenewal(ctx, &result.Claim)
	} else {
		h.logGrant(ctx, "acquired lock", &result.Claim)
	}
	return &models.LockResponse{Token: result.Claim.Token, Renewed: renewed}, nil
}

func (h *handler) Release(ctx context.Context, req *models.ReleaseRequest) (*models.ReleaseResponse, error) {
	cmd, err := decodeRelease(req)
	if err != nil {
		return nil, h.lockError(ctx, err)
	}
	result, err := h.Committer.Do(ctx, cmd)
	if err != nil {
		return nil, h.lockError(ctx, resourceError{err, req.GetResource().GetKey()})
	}
	h.logGrant(ctx, "released lock", &result.Claim)
	return &models.ReleaseResponse{}, nil
}

func (h *handler) Fetch(ctx context.Context, req *models.FetchRequest) (*models.FetchResponse, error) {
	var c check
	c.name("key", req.GetKey())
	if err := c.err(); err != nil {
		return nil, h.lockError(ctx, err)
	}
	holder, err := h.Store.Holder(ctx, req.GetKey())
	if err != nil {
		return nil, h.lockError(ctx, err)
	}
	return &models.FetchResponse{Resource: encodeResource(&holder), Token: holder.Token}, nil
}

func (h *handler) CreateClaim(ctx context.Context, req *models.CreateClaimRequest) (*models.Claim, error) {
	cmd, err := decodeCreate(req)
	if err != nil {
		return nil, h.wireError(ctx, err)
	}
	result, err := h.Committer.Do(ctx, cmd)
	if err == nil {
		err = h.deadlock(ctx, result.Claim.Status, result.Claim.Reason)
	}
	if err != nil {
		return nil, h.wireError(ctx, resourceError{err, req.GetResource()})
	}
	return h.answer(ctx, &result.Claim, result.Now, result.Position), nil
}

func (h *handler) GetClaim(ctx context.Context, req *models.GetClaimRequest) (*models.Claim, error) {
	if !validID(req.GetId()) {
		return nil, h.wireError(ctx, claim.ErrNotFound)
	}
	found, ahead, now, err := h.Store.Get(ctx, req.GetId(), maxPosition)
	if err == nil {
		var kept bool
		if kept, err = h.keepWaiting(ctx, &found, now); kept {
			found, ahead, now, err = h.Store.Get(ctx, req.GetId(), maxPosition)
		}
	}
	if err != nil {
		return nil, h.wireError(ctx, err)
	}
	return h.answer(ctx, &found, now, ahead+1), nil
}

func (h *handler) ListClaims(ctx context.Context, req *models.ListClaimsRequest) (*models.ListClaimsResponse, error) {
	filter, err := decodeFilter(req)
	if err != nil {
		return nil, h.wireError(ctx, err)
	}
	limit := filter.Limit
	filter.Limit++ // one more, to see whether there is another page
	filter.Bytes = pageBytes
	claims, now, err := h.Store.List(ctx, filter)
	if err != nil {
		return nil, h.wireError(ctx, err)
	}
	return encodeList(claims, now, limit, filter.Newest), nil
}

func (h *handler) UpdateClaim(ctx context.Context, req *models.UpdateClaimRequest) (*models.Claim, error) {
	cmd, err := decodeUpdate(req)
	if err != nil {
		return nil, h.wireError(ctx, err)
	}
	updated, err := h.do(ctx, cmd)
	if models.ReasonOf(err) == models.ReasonClaimWaits {
		return nil, models.WithInfo(status.New(status.Code(err), status.Convert(err).Message()), models.ReasonClaimWaits, h.waitsFor(ctx, req.GetId()))
	}
	return updated, err
}

func (h *handler) EndClaim(ctx context.Context, req *models.EndClaimRequest) (*models.Claim, error) {
	cmd, err := decodeEnd(req)
	if err != nil {
		return nil, h.wireError(ctx, err)
	}
	return h.do(ctx, cmd)
}

func (h *handler) GetQueue(ctx context.Context, req *models.GetQueueRequest) (*models.Queue, error) {
	resource, limit, err := decodeQueue(req)
	if err != nil {
		return nil, h.wireError(ctx, err)
	}
	queue, now, err := h.queue(ctx, resource, limit)
	if err != nil {
		return nil, h.wireError(ctx, err)
	}
	encoded := encodeQueue(&queue, now)
	chain := h.holderWaits(ctx, resource, queue.Holders)
	encoded.Waits = encodeWaits(&chain, proto.Size(encoded))
	return encoded, nil
}

// queue returns a queue with up to limit waiters and up to maxLimit holders. The store has one limit for both, so a
// second read is needed if more than limit claims share the resource.
func (h *handler) queue(ctx context.Context, resource string, limit int) (db.Snapshot, claim.Instant, error) {
	queue, now, err := h.Store.Queue(ctx, resource, limit)
	if err != nil || len(queue.Holders) >= min(queue.Shared, maxLimit) {
		return queue, now, err
	}
	queue, now, err = h.Store.Queue(ctx, resource, maxLimit)
	queue.Waiters = queue.Waiters[:min(limit, len(queue.Waiters))]
	return queue, now, err
}

// do runs a command about one claim.
func (h *handler) do(ctx context.Context, cmd claim.Command) (*models.Claim, error) {
	result, err := h.Committer.Do(ctx, cmd)
	if err != nil {
		return nil, h.wireError(ctx, err)
	}
	return h.answer(ctx, &result.Claim, result.Now, result.Position), nil
}

func (h *handler) AwaitClaim(ctx context.Context, req *models.AwaitClaimRequest) (*models.Claim, error) {
	if !validID(req.GetId()) {
		return nil, h.wireError(ctx, claim.ErrNotFound)
	}
	if req.GetTimeout() == nil {
		return h.await(ctx, req.GetId())
	}
	timeout, err := decodeTimeout(req.GetTimeout())
	if err != nil {
		return nil, h.wireError(ctx, err)
	}
	waiting, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	found, err := h.await(waiting, req.GetId())
	if waiting.Err() != nil && ctx.Err() == nil && err != nil {
		return h.GetClaim(ctx, &models.GetClaimRequest{Id: req.GetId()})
	}
	return found, err
}

func (h *handler) await(ctx context.Context, id string) (*models.Claim, error) {
	caller := access.CallerOf(ctx)
	if restricted(caller) { // the duration of the wait must not reveal anything either
		if _, _, _, err := h.Store.Get(ctx, id, 0); err != nil {
			return nil, h.wireError(ctx, err)
		}
	}
	if !h.waiting.Begin(caller.Name, false) {
		return nil, h.wireError(ctx, errTooManyWaiting)
	}
	defer h.waiting.End(caller.Name)
	found, now, err := h.Hub.Await(ctx, id)
	if err == nil {
		err = h.deadlock(ctx, found.Status, found.Reason)
	}
	if err != nil {
		return nil, h.wireError(ctx, err)
	}
	return h.answer(ctx, &found, now, 0), nil
}
