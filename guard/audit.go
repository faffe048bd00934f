package guard

import (
	"context"
	"log/slog"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/locket-service/locket/follow"
	"github.com/locket-service/locket/grpcserver"
	"github.com/locket-service/locket/models"
)

// Audit returns a guard that writes a line for every call that changes something, and for every
// call that is refused for who makes it: who, from where, what, on which claim, and what came of
// it. It comes first. No line has user data, values, secrets or reasons of clients.
func Audit(log *slog.Logger) grpcserver.Guard {
	return func(ctx context.Context, call *grpcserver.Call, next func(context.Context) error) error {
		a := &audit{log: log, call: call, from: addressOf(ctx), id: grpcserver.RequestID(ctx)}
		stream := call.FullMethod == models.Locket_Session_FullMethodName
		call.Checked(func(message any, err error) {
			a.what = whatOf(message)
			if stream && len(a.what) > 0 {
				a.write(ctx, status.Code(err).String(), models.ReasonOf(err))
			}
		})
		err := next(ctx)
		code := status.Code(err)
		refused := code == codes.Unauthenticated || code == codes.PermissionDenied
		if refused || changes[call.FullMethod] && !stream {
			a.write(ctx, code.String(), models.ReasonOf(err))
		}
		return err
	}
}

// AuditFile returns a function for follow.Set.OnChange that writes a line for each change of a file: its
// digest, and what has changed.
func AuditFile(log *slog.Logger) func(*follow.Change) {
	return func(c *follow.Change) {
		attrs := []slog.Attr{slog.String("setting", c.What), slog.Any("files", c.Paths)}
		if c.Err != nil {
			attrs = append(attrs, slog.String("outcome", "invalid"), slog.String("error", c.Err.Error()))
		} else {
			attrs = append(attrs, slog.String("outcome", "in use"), slog.String("digest", c.Digest))
		}
		for _, list := range []struct {
			name  string
			items []string
		}{{"added", c.Added}, {"removed", c.Removed}, {"warnings", c.Warnings}} {
			if len(list.items) > 0 {
				attrs = append(attrs, slog.Any(list.name, list.items))
			}
		}
		log.LogAttrs(context.Background(), slog.LevelInfo, "file", attrs...)
	}
}

// changes are the methods that change something.
var changes = map[string]bool{
	models.Locket_Lock_FullMethodName: true, models.Locket_Release_FullMethodName: true, models.Locket_CreateClaim_FullMethodName: true,
	models.Locket_UpdateClaim_FullMethodName: true, models.Locket_EndClaim_FullMethodName: true,
	models.Locket_Session_FullMethodName: true, models.Locket_ResetSessions_FullMethodName: true,
}

// audit is the line of one call.
type audit struct {
	log      *slog.Logger
	call     *grpcserver.Call
	from, id string
	what     []slog.Attr
}

func (a *audit) write(ctx context.Context, outcome, reason string) {
	attrs := []slog.Attr{
		slog.String("method", a.call.FullMethod), slog.String("identity", a.call.Identity), slog.String("from", a.from),
		slog.String("request_id", a.id), slog.String("outcome", outcome),
	}
	if reason != "" {
		attrs = append(attrs, slog.String("reason", reason))
	}
	attrs = append(attrs, a.what...)
	if c, ok := a.call.Response.(*models.Claim); ok && c != nil {
		attrs = append(attrs, slog.String("claim", c.GetId()), slog.String("resource", c.GetResource()), slog.String("status", statusName(c.GetStatus())), slog.String("claim_identity", c.GetIdentity()))
	}
	a.log.LogAttrs(ctx, slog.LevelInfo, "call", attrs...)
}

func statusName(s models.Status) string { return models.Status_name[int32(s)] }

func addressOf(ctx context.Context) string {
	if p, ok := peer.FromContext(ctx); ok && p.Addr != nil {
		return p.Addr.String()
	}
	return ""
}

// whatOf returns what a message asks for, and of what.
func whatOf(message any) []slog.Attr {
	on := func(name, value string) []slog.Attr { return []slog.Attr{slog.String(name, value)} }
	switch m := message.(type) {
	case *models.LockRequest:
		return append(on("asked_resource", m.GetResource().GetKey()), slog.String("owner", m.GetResource().GetOwner()))
	case *models.ReleaseRequest:
		return append(on("asked_resource", m.GetResource().GetKey()), slog.String("owner", m.GetResource().GetOwner()))
	case *models.CreateClaimRequest:
		return append(on("asked_resource", m.GetResource()), slog.String("owner", m.GetOwner()))
	case *models.UpdateClaimRequest:
		return append(on("asked_claim", m.GetId()), slog.String("asked_status", statusName(m.GetStatus())))
	case *models.EndClaimRequest:
		return on("asked_claim", m.GetId())
	case *models.GetClaimRequest:
		return on("asked_claim", m.GetId())
	case *models.AwaitClaimRequest:
		return on("asked_claim", m.GetId())
	case *models.FetchRequest:
		return on("asked_resource", m.GetKey())
	case *models.GetQueueRequest:
		return on("asked_resource", m.GetResource())
	case *models.WatchRequest:
		return on("asked_resource", m.GetResource())
	case *models.SessionRequest:
		return ofSession(m)
	}
	return nil
}

func ofSession(m *models.SessionRequest) []slog.Attr {
	on := func(command, name, value string) []slog.Attr {
		return []slog.Attr{slog.String("command", command), slog.String(name, value)}
	}
	switch {
	case m.GetOpen() != nil:
		return on("open", "session", m.GetOpen().GetId())
	case m.GetLock() != nil:
		return on("lock", "asked_resource", m.GetLock().GetResource())
	case m.GetUnlock() != nil:
		return on("unlock", "asked_resource", m.GetUnlock().GetResource())
	case m.GetUnlockAll() != nil:
		return []slog.Attr{slog.String("command", "unlock_all")}
	case m.GetClose() != nil:
		return []slog.Attr{slog.String("command", "close")}
	}
	return nil // a heartbeat
}
