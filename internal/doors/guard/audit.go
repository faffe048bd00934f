package guard

import (
	"context"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/locket-service/locket/grpcserver"
	"github.com/locket-service/locket/internal/base/follow"
	"github.com/locket-service/locket/models"
)

// AuditLog is where Audit writes.
type AuditLog struct {
	// Lines writes lines. It drops lines when there is no room.
	Lines *slog.Logger
	// Promise reserves room for a line, and returns an error if none can be written now. After nil, either Promised gets
	// a line or Renege is called, once. If all three are nil, no call is refused because it cannot be recorded.
	Promise  func() error
	Promised *slog.Logger
	Renege   func()
	// Proxies are the addresses of proxies whose header X-Forwarded-For is trusted.
	Proxies []netip.Prefix
}

// Audit returns a guard that writes a line for each call that changes something, and for each call that is refused
// because of its caller: caller, address, request, claim and outcome. It is the first guard. No line has user data,
// values, secrets or reasons of clients. The lines about refusals are limited for each identity, and a line counts
// the others. Their metric is registered.
func Audit(log AuditLog, registerer prometheus.Registerer) grpcserver.Guard {
	refusals := newRefusals(log.Lines, registerer)
	return func(ctx context.Context, call *grpcserver.Call, next func(context.Context) error) error {
		a := &audit{log: log, refusals: refusals, call: call, id: grpcserver.RequestID(ctx)}
		a.from, a.client = addressesOf(ctx, log.Proxies)
		defer a.renege()
		method, _ := methodOf(call.FullMethod)
		if method.Changes && call.Stream {
			a.auditMessages(ctx)
		} else {
			call.Checked(func(message any, _ error) { a.what = whatOf(message) })
		}
		err := next(context.WithValue(ctx, auditKey{}, a))
		code := status.Code(err)
		denied := code == codes.Unauthenticated || code == codes.PermissionDenied
		if !denied && (call.Stream || !method.Changes) {
			return err // without a line
		}
		if denied || code == codes.ResourceExhausted || call.Refused != "" {
			a.writeRefusal(ctx, err)
			return err
		}
		a.write(ctx, err)
		return err
	}
}

type auditKey struct{}

// Record returns a guard that refuses a call that would change something and cannot be recorded, if the log promises
// lines. It comes after Audit and after authentication, so that callers without an identity reserve no room.
func Record() grpcserver.Guard {
	return func(ctx context.Context, call *grpcserver.Call, next func(context.Context) error) error {
		a := ctx.Value(auditKey{}).(*audit)
		if method, _ := methodOf(call.FullMethod); method.Changes && !call.Stream {
			if err := a.promise(); err != nil {
				return err
			}
		}
		return next(ctx)
	}
}

// auditMessages writes a line for each command of a stream. One message is received at a time.
func (a *audit) auditMessages(ctx context.Context) {
	m := *a
	a.call.Check(func(message any) error {
		if len(whatOf(message)) == 0 {
			return nil
		}
		return m.promise()
	})
	a.call.Checked(func(message any, err error) {
		switch m.what = whatOf(message); {
		case len(m.what) == 0:
		case err != nil:
			m.writeRefusal(ctx, err)
		default:
			m.write(ctx, err)
		}
	})
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

// audit is the line of one call.
type audit struct {
	log              AuditLog
	refusals         *refusals
	call             *grpcserver.Call
	from, client, id string
	what             []slog.Attr
	promised         bool
}

// promise reserves room for the line, if lines are promised.
func (a *audit) promise() error {
	if a.log.Promise == nil || a.promised {
		return nil
	}
	if err := a.log.Promise(); err != nil {
		return models.WithInfo(status.New(codes.Unavailable, "the server cannot record the call in its audit log; nothing was changed"), models.ReasonAuditUnavailable, nil, retryIn(time.Second))
	}
	a.promised = true
	return nil
}

func (a *audit) renege() {
	if a.promised {
		a.promised = false
		a.log.Renege()
	}
}

// writeRefusal is write for a refusal, unless its identity has too many lines about refusals.
func (a *audit) writeRefusal(ctx context.Context, err error) {
	if a.refusals.admit(a.call.Identity()) {
		a.write(ctx, err)
	} else {
		a.renege()
	}
}

// write writes the line about a call or a message that ended with err.
func (a *audit) write(ctx context.Context, err error) {
	attrs := []slog.Attr{slog.String("method", a.call.FullMethod), slog.String("identity", a.call.Identity()), slog.String("from", a.from)}
	if a.call.Credential != "" {
		attrs = append(attrs, slog.String("credential", a.call.Credential))
	}
	if a.client != "" {
		attrs = append(attrs, slog.String("client", a.client))
	}
	attrs = append(attrs, slog.String("request_id", a.id), slog.String("outcome", status.Code(err).String()))
	if reason := models.ReasonOf(err); reason != "" {
		attrs = append(attrs, slog.String("reason", reason))
	}
	if why := a.why(err); why != "" {
		attrs = append(attrs, slog.String("why", why))
	}
	attrs = append(attrs, a.what...)
	if c, ok := a.call.Response.(*models.Claim); ok && c != nil {
		attrs = append(attrs, slog.String("claim", c.GetId()), slog.String("resource", c.GetResource()), slog.String("status", statusName(c.GetStatus())), slog.String("claim_identity", c.GetIdentity()))
	}
	to := a.log.Lines
	if a.promised {
		to, a.promised = a.log.Promised, false
	}
	to.LogAttrs(ctx, slog.LevelInfo, "call", attrs...)
}

const (
	// longestName is the length of the longest valid names, in bytes, and longestWhy the length of the longest why.
	longestName = 1024
	longestWhy  = 300
)

// beginning returns a text, or its first bytes if it has more than most.
func beginning(text string, most int) string {
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "…"
	}
	return text
}

// why returns the reason of a refusal: the error of the credential, which the caller does not get, or the missing
// right.
func (a *audit) why(err error) (why string) {
	switch status.Code(err) {
	case codes.Unauthenticated:
		why = a.call.Refused
	case codes.PermissionDenied:
		why = status.Convert(err).Message()
	}
	return beginning(why, longestWhy)
}

func statusName(s models.Status) string { return models.Status_name[int32(s)] }

// addressesOf returns the address of the peer, and, if that is a trusted proxy, the client's by the header
// X-Forwarded-For: the last address in it that is not a trusted proxy's.
func addressesOf(ctx context.Context, proxies []netip.Prefix) (from, client string) {
	p, ok := peer.FromContext(ctx)
	if !ok || p.Addr == nil {
		return "", ""
	}
	from = p.Addr.String()
	address, err := netip.ParseAddrPort(from)
	if err != nil || !within(proxies, address.Addr()) {
		return from, ""
	}
	header := strings.Join(metadata.ValueFromIncomingContext(ctx, "x-forwarded-for"), ",")
	for header != "" {
		before, last := "", header
		if i := strings.LastIndexByte(header, ','); i >= 0 {
			before, last = header[:i], header[i+1:]
		}
		hop, err := netip.ParseAddr(strings.TrimSpace(last))
		if err != nil {
			return from, ""
		}
		if !within(proxies, hop) {
			return from, hop.Unmap().String()
		}
		header = before
	}
	return from, ""
}

func within(networks []netip.Prefix, address netip.Addr) bool {
	return slices.ContainsFunc(networks, func(network netip.Prefix) bool { return network.Contains(address.Unmap()) })
}

// named returns an attribute with a name from an unchecked message: it may be as large as the message.
func named(key, name string) slog.Attr { return slog.String(key, beginning(name, longestName)) }

// whatOf returns the request in a message as attributes, with its claim, resource or session.
func whatOf(message any) []slog.Attr {
	on := func(key, name string) []slog.Attr { return []slog.Attr{named(key, name)} }
	switch m := message.(type) {
	case *models.LockRequest:
		return append(on("asked_resource", m.GetResource().GetKey()), named("owner", m.GetResource().GetOwner()))
	case *models.ReleaseRequest:
		return append(on("asked_resource", m.GetResource().GetKey()), named("owner", m.GetResource().GetOwner()))
	case *models.CreateClaimRequest:
		return append(on("asked_resource", m.GetResource()), named("owner", m.GetOwner()))
	case *models.UpdateClaimRequest:
		return append(on("asked_claim", m.GetId()), slog.String("asked_status", statusName(m.GetStatus())))
	case *models.EndClaimRequest:
		return on("asked_claim", m.GetId())
	case *models.GetClaimRequest:
		return on("asked_claim", m.GetId())
	case *models.AwaitClaimRequest:
		return on("asked_claim", m.GetId())
	case *models.GetSessionRequest:
		return on("session", m.GetId())
	case *models.EndSessionRequest:
		return on("session", m.GetId())
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
	on := func(command, key, name string) []slog.Attr {
		return []slog.Attr{slog.String("command", command), named(key, name)}
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
