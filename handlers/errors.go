package handlers

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/rules/access"
	"github.com/locket-service/locket/internal/rules/claim"
	"github.com/locket-service/locket/internal/service/committer"
	"github.com/locket-service/locket/internal/service/quota"
	"github.com/locket-service/locket/internal/service/session"
	"github.com/locket-service/locket/internal/service/watch"
	"github.com/locket-service/locket/models"
)

// errorTable maps the sentinel errors of other packages to errors for callers.
var errorTable = []struct {
	err     error
	code    codes.Code
	reason  string
	message string
}{
	{claim.ErrNotFound, codes.NotFound, models.ReasonClaimNotFound, "claim-not-found"},
	{claim.ErrIDTaken, codes.AlreadyExists, models.ReasonIDTaken, "the id names a claim that another request made"},
	{claim.ErrContention, codes.Aborted, models.ReasonClaimWaits, "the claim waits for other claims"},
	{errAnswerTooLarge, codes.ResourceExhausted, models.ReasonAnswerTooLarge, errAnswerTooLarge.Error()},
	{errTooManyWaiting, codes.ResourceExhausted, models.ReasonTooManyWaiting, "too many calls wait on this server; wait a moment, or ask another server"},
	{committer.ErrStopping, codes.Unavailable, models.ReasonShuttingDown, "the server is shutting down; ask again"},
	{committer.ErrOverloaded, codes.ResourceExhausted, models.ReasonOverloaded, "too many requests wait for the database; nothing was changed; ask again in a second"},
	{claim.ErrQueueFull, codes.ResourceExhausted, models.ReasonQueueFull, fmt.Sprintf("%d claims wait for the resource, which is the limit", claim.MaxWaiting)},
	{watch.ErrCursorTooOld, codes.OutOfRange, models.ReasonCursorTooOld, "changes after the cursor are no longer kept; begin again without a cursor"},
	{errViewChanged, codes.OutOfRange, models.ReasonCursorTooOld, "the rules have changed what the caller may see; begin again without a cursor"},
	{watch.ErrTooSlow, codes.ResourceExhausted, models.ReasonWatchTooSlow, "the watch does not keep up; go on from the last cursor"},
	{errTooManyWatches, codes.ResourceExhausted, models.ReasonTooManyWaiting, "too many watches on this server; wait a moment, or ask another server"},
	{watch.ErrStopped, codes.Unavailable, models.ReasonShuttingDown, "the server is shutting down; ask again"},
	{claim.ErrSessionEnded, codes.NotFound, models.ReasonSessionEnded, "the session has ended"},
	{claim.ErrSessionSecret, codes.PermissionDenied, models.ReasonSessionSecret, "the session has another secret"},
	{claim.ErrSessionFull, codes.ResourceExhausted, models.ReasonSessionFull, fmt.Sprintf("the session holds and waits for %d resources, which is the limit", claim.MaxSessionClaims)},
	{session.ErrMoved, codes.Aborted, models.ReasonSessionMoved, session.ErrMoved.Error()},
	{session.ErrDetached, codes.Unavailable, models.ReasonSessionDetached, session.ErrDetached.Error() + "; resume it"},
	{session.ErrSilent, codes.Unavailable, models.ReasonSessionDetached, session.ErrSilent.Error() + "; resume it"},
	{session.ErrTooSlow, codes.ResourceExhausted, models.ReasonSessionTooSlow, session.ErrTooSlow.Error() + "; resume it"},
	{session.ErrTooMany, codes.ResourceExhausted, models.ReasonTooManySessions, session.ErrTooMany.Error() + "; ask another server"},
	{db.ErrOutcomeUnknown, codes.Unavailable, models.ReasonOutcomeUnknown, "the connection to the database broke during the commit; ask again to learn the outcome"},
	{db.ErrNoQuorum, codes.Unavailable, models.ReasonNoQuorum, "no server of the cluster can commit, or this server is cut off from the others; nothing was changed; ask another server"},
	{db.ErrUnavailable, codes.Unavailable, models.ReasonDatabaseUnavailable, "the database is not available; nothing was changed"},
	{db.ErrListTooLong, codes.ResourceExhausted, models.ReasonListTooLong, "the list reads too many claims; narrow the filter, or ask again later"},
	{db.ErrRowLocked, codes.Unavailable, models.ReasonResourceLocked, "another server's transaction keeps the resource locked; nothing was changed, ask again"},
	{claim.ErrQuarantine, codes.Unavailable, models.ReasonQuarantine, claim.ErrQuarantine.Error() + "; ask again later"},
	{db.ErrConflict, codes.Unavailable, models.ReasonDatabaseUnavailable, "the database is too busy; nothing was changed"},
}

// lockErrorTable comes first for the four lock RPCs. The texts of their errors are the same as in Cloud Foundry's
// Locket; the details have the invalid field and its limit.
var lockErrorTable = map[error]struct {
	wire   error
	reason string
}{
	claim.ErrNotFound:      {models.ErrResourceNotFound, models.ReasonResourceNotFound},
	models.ErrInvalidTTL:   {models.ErrInvalidTTL, models.ReasonInvalidTTL},
	models.ErrInvalidOwner: {models.ErrInvalidOwner, models.ReasonInvalidOwner},
	models.ErrInvalidType:  {models.ErrInvalidType, models.ReasonInvalidType},
}

// lockError returns the error that the caller of a lock RPC sees.
func (h *handler) lockError(ctx context.Context, err error) error {
	wrong, _ := errors.AsType[fieldErrors](err)
	if _, ahead := errors.AsType[*claim.AheadError](err); ahead {
		return h.wireError(ctx, err)
	}
	for known, to := range lockErrorTable {
		if errors.Is(err, known) {
			return models.WithInfo(status.Convert(to.wire), to.reason, nil, wrong.details()...)
		}
	}
	return h.wireError(ctx, err)
}

// wireError returns the error that the caller sees: a status with a reason. An unknown error becomes "internal error". It is
// logged in full, and so are errors of the database.
func (h *handler) wireError(ctx context.Context, err error) error {
	if detailed := errorWithDetails(ctx, err); detailed != nil {
		return detailed
	}
	for _, known := range errorTable {
		if errors.Is(err, known.err) && !leftDuring(ctx, err) {
			if known.reason == models.ReasonDatabaseUnavailable || known.reason == models.ReasonNoQuorum {
				h.unserved.Do(func() { h.Log.WarnContext(ctx, "the database does not serve a request", "error", err) })
			}
			return models.WithInfo(status.New(known.code, known.message), known.reason, nil)
		}
	}
	if s, ok := status.FromError(err); ok { // from gRPC, or from a guard
		return s.Err()
	}
	switch { // the caller's; a transaction's are handled above
	case leftDuring(ctx, err):
		return h.wireError(ctx, ctx.Err())
	case errors.Is(err, context.DeadlineExceeded):
		return status.Error(codes.DeadlineExceeded, "the deadline passed; the change may still be made; repeating the request is safe")
	case errors.Is(err, context.Canceled):
		return status.Error(codes.Canceled, "the caller disconnected")
	}
	h.failures.Do(func() { h.Log.ErrorContext(ctx, "internal error", "error", err) })
	return status.Error(codes.Internal, "internal error")
}

// errorWithDetails returns the status of an error whose type carries details for the caller, nil for any other error.
func errorWithDetails(ctx context.Context, err error) error {
	var (
		collision  *claim.CollisionError
		denied     *access.DeniedError
		transition *claim.TransitionError
		version    *claim.VersionError
		ahead      *claim.AheadError
		mode       *session.ModeError
		fields     fieldErrors
		beyond     *quota.Error
	)
	switch {
	case errors.As(err, &collision):
		return models.WithInfo(status.Convert(models.ErrLockCollision), models.ReasonLockCollision, holderOf(ctx, resourceOf(err), collision))
	case errors.As(err, &denied):
		return models.Denied(denied.Error(), denied.Right.String(), denied.Resource)
	case errors.As(err, &transition):
		return models.WithInfo(status.New(codes.FailedPrecondition, transition.Error()), models.ReasonWrongStatus,
			map[string]string{"status": transition.From.String()})
	case errors.As(err, &version):
		return models.WithInfo(status.New(codes.FailedPrecondition, version.Error()), models.ReasonVersionChanged,
			map[string]string{"version": strconv.FormatUint(version.Version, 10)})
	case errors.As(err, &ahead):
		return models.WithInfo(status.Convert(models.ErrRolledBack), models.ReasonRolledBack, versionOf(ctx, ahead))
	case errors.As(err, &mode):
		return models.WithInfo(status.New(codes.FailedPrecondition, mode.Error()), models.ReasonWrongMode, map[string]string{"mode": mode.Units.String()})
	case errors.As(err, &beyond):
		name := "claims_held"
		if beyond.Status == claim.Waiting {
			name = "claims_waiting"
		}
		return models.QuotaExceeded(beyond.Identity, name, strconv.Itoa(beyond.Limit), retryClaim)
	case errors.Is(err, claim.ErrSessionClaim):
		return errorWithDetails(ctx, fieldErrors{{"ttl", claim.ErrSessionClaim.Error()}})
	case errors.As(err, &fields):
		return invalidFields(fields)
	}
	return nil
}

// newFailures limits the log lines of errors: the first ones, then at most one a second. The metric of requests counts all.
func newFailures() rate.Sometimes { return rate.Sometimes{First: 100, Interval: time.Second} }

// retryClaim is the suggested pause before a request that exceeds a quota of claims is repeated, since other claims may
// end at any time.
const retryClaim = time.Second

// leftDuring reports whether a statement failed because its caller has left: an engine that is interrupted reports that
// the database is unavailable.
func leftDuring(ctx context.Context, err error) bool {
	return ctx.Err() != nil && (errors.Is(err, db.ErrUnavailable) || errors.Is(err, db.ErrConflict))
}

// versionOf returns the version of a resource for the metadata of an error, nil if the caller may not read the resource.
func versionOf(ctx context.Context, ahead *claim.AheadError) map[string]string {
	if access.CallerOf(ctx).Need(access.Read, ahead.Resource) != nil {
		return nil
	}
	return map[string]string{"version": strconv.FormatUint(ahead.Version, 10)}
}

// resourceError is the error of a request for a resource.
type resourceError struct {
	error
	resource string
}

func (e resourceError) Unwrap() error { return e.error }

// resourceOf returns the resource of a resourceError, otherwise "".
func resourceOf(err error) string {
	of, _ := errors.AsType[resourceError](err)
	return of.resource
}

// holderOf returns the holder of a resource for the metadata of an error, or that the holders are shared; nil if the
// caller may not see that.
func holderOf(ctx context.Context, resource string, collision *claim.CollisionError) map[string]string {
	switch caller := access.CallerOf(ctx); {
	case collision.Holder == nil && caller.Need(access.Read, resource) == nil:
		return map[string]string{"mode": claim.Shared.String()}
	case collision.Holder == nil || !claim.Sees(caller, collision.Holder):
		return nil
	}
	return map[string]string{
		"holder":   collision.Holder.Owner,
		"claim_id": collision.Holder.ID,
		"token":    strconv.FormatUint(collision.Holder.Token, 10),
	}
}
