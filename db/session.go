package db

import (
	"context"
	"errors"
	"time"

	"github.com/locket-service/locket/internal/rules/claim"
)

// ServerTimeout is how long, in lease time, a server with sessions may be silent until other servers declare it gone.
const ServerTimeout = 2 * time.Second

// ErrServerGone is returned by Beat, wrapped, when another server has declared this one
// gone. Its sessions are detached, or have moved; none are its own from then on. The beat itself
// was done.
var ErrServerGone = errors.New("this server was declared gone: its sessions are detached")

// Sessions reads sessions, and finds sessions that no server keeps alive. Sessions change by transactions (claim.Attach
// and the commands beside it), and when a server is gone.
type Sessions interface {
	// Session returns a session, or claim.ErrSessionEnded.
	Session(ctx context.Context, id string) (claim.Session, claim.Instant, error)

	// Sessions returns up to limit sessions whose ids come after one, in the order of their ids
	// (as bytes).
	Sessions(ctx context.Context, after string, limit int) ([]SessionCount, claim.Instant, error)

	// AttachedTo returns the ids of the sessions that are attached to a server, in no order.
	AttachedTo(ctx context.Context, server string) (ids []string, err error)

	// DetachSilent declares each server gone, except this one, that has not beaten for silence, in
	// lease time. In steps, it detaches the server's sessions: they fall due
	// when their TTL has passed since that server's last beat, or since they were attached if that
	// was later. It returns how many sessions it has detached. What an error leaves, another call detaches.
	DetachSilent(ctx context.Context, silence time.Duration) (detached int, err error)
}

// SessionCount is a session, and how many claims it has.
type SessionCount struct {
	claim.Session
	// Active and Waiting are the numbers of its claims with that status.
	Active, Waiting int
}
