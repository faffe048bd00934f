// Package guard has the guards of the chain that every call passes: authentication (Authenticate), rights
// (Authorize), and quotas (Limit). Package methods has the table of methods and the rights that they need; a method
// without a line is refused.
//
// Some decisions need a claim that is read first: for a change they are made in its transaction (package claim, with the
// caller of the command), for a read in the service's view of the store (package handlers).
package guard

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/locket-service/locket/grpcserver"
	"github.com/locket-service/locket/internal/doors/auth"
	"github.com/locket-service/locket/internal/doors/authn"
	"github.com/locket-service/locket/internal/rules/access"
	"github.com/locket-service/locket/internal/rules/claim"
	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/models/methods"
)

// Authenticate returns a guard that authenticates the caller, and puts it into the context of the call. It removes the
// metadata except the request's id. rules returns the rules in force: a unary call keeps the rules of its start, a
// stream sees them change.
func Authenticate(a *authn.Authenticator, rules func() *auth.Rules, log *slog.Logger) grpcserver.Guard {
	return func(ctx context.Context, call *grpcserver.Call, next func(context.Context) error) error {
		id, err := a.Authenticate(ctx)
		if err != nil {
			log.DebugContext(ctx, "a caller is not authenticated", "method", call.FullMethod, "reason", err)
			call.Refused = err.Error()
			return unauthenticated(a, err)
		}
		call.Credential = id.Credential
		call.Identify(id.Name)
		if call.Stream {
			defer recheck(ctx, a, id, call.End)()
		}
		started := rules().CallerOf(id)
		inner := access.WithCaller(withoutHeaders(ctx), func() access.Caller {
			caller := started
			if call.Stream {
				caller.Rules = rules().Rules
			}
			return caller
		})
		if method, _ := methodOf(call.FullMethod); method.Lasts == methods.Wait {
			return whileCredentials(ctx, inner, a, id, next)
		}
		return next(inner)
	}
}

// whileCredentials carries out a call that waits, and ends it when its credentials are no longer valid.
func whileCredentials(ctx, inner context.Context, a *authn.Authenticator, id access.Identity, next func(context.Context) error) error {
	inner, end := context.WithCancelCause(inner)
	defer end(nil)
	defer recheck(ctx, a, id, end)()
	err := next(inner)
	if err != nil && errors.Is(context.Cause(inner), errCredentialsEnded) {
		return errCredentialsEnded
	}
	return err
}

// CheckInterval is how often the credentials of a stream, and of a call that waits, are checked again.
const CheckInterval = 2 * time.Second

var errCredentialsEnded = models.WithInfo(
	status.New(codes.Unauthenticated, "the credentials of the call are not valid any more; call again with others, and go on"),
	models.ReasonCredentialsEnded, nil)

// recheck ends a call when its credentials are no longer valid for the identity: they have expired, were withdrawn, or
// name another one. It returns a function that stops these checks.
func recheck(ctx context.Context, a *authn.Authenticator, id access.Identity, end func(error)) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		ticker := time.NewTicker(CheckInterval)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
			case <-ctx.Done():
				return
			}
			if !a.Still(ctx, id) {
				end(errCredentialsEnded)
				return
			}
		}
	}()
	return cancel
}

// withoutHeaders removes the metadata of a call except its id: nothing behind the guard needs credentials, or may trust
// identity headers of clients.
func withoutHeaders(ctx context.Context) context.Context {
	var md metadata.MD
	if id := metadata.ValueFromIncomingContext(ctx, models.RequestIDKey); len(id) > 0 {
		md = metadata.MD{models.RequestIDKey: id}
	}
	return metadata.NewIncomingContext(ctx, md)
}

// retryKeys is how long to wait before repeating a call whose credential could not be checked because keys are being fetched.
const retryKeys = time.Second

// unauthenticated returns the status of a call without valid credentials. It names the accepted credentials, and not
// the error.
func unauthenticated(a *authn.Authenticator, err error) error {
	switch {
	case errors.Is(err, authn.ErrUnavailable):
		return models.WithInfo(status.New(codes.Unavailable, authn.ErrUnavailable.Error()+"; ask again"), models.ReasonIssuerUnavailable, nil, retryIn(retryKeys))
	case errors.Is(err, authn.ErrRefused):
		err = authn.ErrRefused
	}
	return models.WithInfo(status.New(codes.Unauthenticated, err.Error()+"; accepted is "+a.Accepted()), models.ReasonUnauthenticated,
		map[string]string{models.ChallengesKey: strings.Join(a.Challenges(), ", ")})
}

// Authorize returns a guard that refuses what the rules do not allow, before it costs anything. A caller that may do
// nothing gets no stream.
func Authorize() grpcserver.Guard {
	return func(ctx context.Context, call *grpcserver.Call, next func(context.Context) error) error {
		method, known := methodOf(call.FullMethod)
		if !known {
			return status.Error(codes.PermissionDenied, "nobody may call "+call.FullMethod+": the server has no rule for it")
		}
		if call.Stream { // it lasts, before and between its messages
			if err := access.CallerOf(ctx).NeedAny(); err != nil {
				return denied(err)
			}
		}
		needed := needOf(method)
		call.Check(func(message any) error { return denied(needed(access.CallerOf(ctx), message)) })
		call.Conceal(func(response any) any { return visible(access.CallerOf(ctx), response) })
		return next(ctx)
	}
}

// visible returns a response as its caller may see it. Of a claim that the caller may revoke, and neither read nor
// administer, it keeps the id and the status.
func visible(caller access.Caller, response any) any {
	c, ok := response.(*models.Claim)
	if !ok || claim.Sees(caller, &claim.Claim{Resource: c.GetResource(), Identity: c.GetIdentity()}) || caller.Need(access.Administer, c.GetResource()) == nil {
		return response
	}
	return &models.Claim{Id: c.GetId(), Status: c.GetStatus()}
}

// denied turns a DeniedError into the status that callers get.
func denied(err error) error {
	var wrong *access.DeniedError
	if errors.As(err, &wrong) {
		return models.Denied(wrong.Error(), wrong.Right.String(), wrong.Resource)
	}
	return err
}
