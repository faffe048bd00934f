package server

import (
	"log/slog"

	"golang.org/x/time/rate"

	"github.com/locket-service/locket/internal/base/inbox"
	"github.com/locket-service/locket/internal/rules/claim"
	"github.com/locket-service/locket/internal/service/upkeep"
)

const (
	// endingsBurst and endingsPerSecond bound the lines about claims that were lost; the next line says how many were
	// left out.
	endingsBurst, endingsPerSecond = 100, 10
	// endingsWaiting is how many lines may wait for the log.
	endingsWaiting = 1000
)

// endings logs the claims that end against their owners' will: each expiry and revocation, and for a lost session one
// line per transaction that ends its claims. It logs what this server commits, so each end is in the log of one server.
type endings struct {
	log     *slog.Logger
	lines   *inbox.Inbox // a commit does not wait for the log
	bound   *rate.Limiter
	leftOut int
}

func newEndings(log *slog.Logger) *endings {
	return &endings{log: log, lines: inbox.New(endingsWaiting, nil), bound: rate.NewLimiter(endingsPerSecond, endingsBurst)}
}

// Missed implements committer.Listener.
func (e *endings) Missed() {}

func (e *endings) Committed(_ claim.Instant, changes []claim.Transition) {
	var lost map[string][]*claim.Claim // by session
	for _, change := range changes {
		after := change.After
		switch {
		case change.Before != nil && change.Before.Status == after.Status:
		case isLost(after):
			if lost == nil {
				lost = make(map[string][]*claim.Claim)
			}
			lost[after.Session] = append(lost[after.Session], after)
		case after.Status == claim.Expired:
			e.say("a claim has expired", after)
		case after.Status == claim.Revoked:
			e.say("a claim was revoked", after, "reason", after.Reason, "by", after.EndedBy)
		}
	}
	for session, claims := range lost {
		e.say("a session was lost", claims[0], "session", session, "claims", len(claims))
	}
}

// isLost reports whether a claim has ended because its session was not resumed in time.
func isLost(c *claim.Claim) bool {
	return c.Session != "" && (c.Status == claim.Expired || c.Status == claim.Aborted) && c.Reason == upkeep.SessionExpired
}

// say logs one line about a claim, unless there have been too many.
func (e *endings) say(what string, c *claim.Claim, more ...any) {
	if !e.bound.Allow() {
		e.leftOut++
		return
	}
	attrs := append([]any{"resource", c.Resource, "owner", c.Owner, "claim", c.ID}, more...)
	if e.leftOut > 0 {
		attrs = append(attrs, "left_out_before", e.leftOut)
		e.leftOut = 0
	}
	e.lines.Offer(func() { e.log.Info(what, attrs...) })
}
