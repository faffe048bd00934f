package dbtest_test

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/rules/claim"
)

// keeping saves transactions as if they had not touched the sessions that keep says.
func keeping(keep func(claim.SessionChange) bool) func(*broken) {
	return func(b *broken) {
		b.save = func(tx db.Tx, queues *claim.Queues) error {
			for _, change := range queues.ChangedSessions() {
				if !keep(change) {
					continue
				}
				if change.After == nil {
					was := *change.Before
					queues.PutSession(was)
					continue
				}
				if change.Before != nil {
					*change.After = *change.Before
				}
			}
			return tx.Save(queues)
		}
	}
}

// sessionStored is a fault in saved sessions.
func sessionStored(fn func(*claim.Session)) func(*broken) {
	return func(b *broken) {
		b.save = func(tx db.Tx, queues *claim.Queues) error {
			for _, change := range queues.ChangedSessions() {
				if change.After != nil {
					fn(change.After)
				}
			}
			return tx.Save(queues)
		}
	}
}

// renamedSessions takes the ids of sessions for one that become the same by a change.
func renamedSessions(change func(string) string) func(*broken) {
	return func(b *broken) {
		b.load = func(tx db.Tx, wanted db.Wanted) (*claim.Queues, error) {
			renamed := wanted
			renamed.Sessions, renamed.Ending = nil, nil
			for _, id := range wanted.Sessions {
				renamed.Sessions = append(renamed.Sessions, id, change(id))
			}
			for _, id := range wanted.Ending {
				renamed.Ending = append(renamed.Ending, id, change(id))
			}
			slices.Sort(renamed.Sessions)
			renamed.Sessions = slices.Compact(renamed.Sessions)
			queues, err := tx.Load(renamed)
			for _, id := range wanted.Sessions {
				if other := queues.Session(change(id)); err == nil && other != nil && queues.Session(id) == nil {
					same := *other
					same.ID = id
					queues.PutSession(same)
				}
			}
			return queues, err
		}
	}
}

// withoutClaims loads only some claims of a session that ends.
func withoutClaims(sees func(wanted *db.Wanted)) func(*broken) {
	return func(b *broken) {
		b.load = func(tx db.Tx, wanted db.Wanted) (*claim.Queues, error) {
			sees(&wanted)
			return tx.Load(wanted)
		}
	}
}

func noNextSession(b *broken) {
	nextDueOf(func(claim.Claim) bool { return true })(b)
}

var sessionFaults = []fault{
	{"loses owners of sessions", sessionStored(func(s *claim.Session) { s.Owner = "" }), []string{"SessionIsStored", "SessionNamesAreBytes"}},
	{"loses identities of sessions", sessionStored(func(s *claim.Session) { s.Identity = "" }), []string{"SessionIdentity"}},
	{"cuts owners of sessions off", sessionStored(func(s *claim.Session) { s.Owner = s.Owner[:min(255, len(s.Owner))] }), []string{"SessionIsStored"}},
	{"loses secrets", sessionStored(func(s *claim.Session) { s.Secret = nil }), []string{"SessionIsStored"}},
	{"counts the TTL of sessions in seconds", sessionStored(func(s *claim.Session) { s.TTL = s.TTL.Truncate(time.Second) }), []string{"SessionIsStored"}},
	{"loses when sessions were attached", sessionStored(func(s *claim.Session) { s.Attached = 0 }), []string{"SessionIsStored", "AbandonedSession"}},
	{"loses when sessions fall due", sessionStored(func(s *claim.Session) { s.Deadline = 0 }), []string{"SessionMoves", "DueSessions", "SessionsKeepTimeRunning"}},
	{"loses moves", keeping(func(c claim.SessionChange) bool { return c.After != nil }), []string{"SessionMoves"}},
	{"does not write the session of a new claim", keeping(func(c claim.SessionChange) bool {
		return c.Before != nil && c.After != nil && c.Before.Server == c.After.Server
	}), []string{"SessionClaims"}},
	{"keeps sessions that have ended", keeping(func(c claim.SessionChange) bool { return c.After == nil }), []string{"SessionEnds", "SessionNamesAreBytes", "DueSessions"}},
	{"folds case of sessions", renamedSessions(strings.ToLower), []string{"SessionNamesAreBytes"}},
	{"trims trailing spaces of sessions", renamedSessions(func(s string) string { return strings.TrimRight(s, " ") }), []string{"SessionNamesAreBytes"}},
	{"leaves the claims of sessions that end", withoutClaims(func(w *db.Wanted) { w.Ending = nil }), []string{"SessionEnds", "SessionEndsInItsBatch", "DueSessions"}},
	{"knows no sessions", withoutClaims(func(w *db.Wanted) { w.Sessions, w.Ending = nil, nil }), []string{"SessionRefusals", "SessionEndsInItsBatch"}},
	{"forgets the session of a claim", made(func(c *claim.Claim) { c.Session = "" }), []string{"SessionClaims", "SessionEnds"}},
	{"stores no deadline for ever", func(b *broken) {
		b.save = claims(func(c *claim.Claim, _ bool) { c.Deadline = min(c.Deadline, 1<<53) })
	}, []string{"SessionClaims", "SessionsKeepTimeRunning"}},
	{"SessionClaims returns half of them", func(b *broken) {
		b.sessionClaims = func(claims []claim.Claim) []claim.Claim { return claims[:len(claims)/2] }
	}, []string{"SessionClaims", "SessionsPages", "SessionEnds"}},
	{"SessionClaims has them in no order", func(b *broken) {
		b.sessionClaims = func(claims []claim.Claim) []claim.Claim { slices.Reverse(claims); return claims }
	}, []string{"SessionClaims"}},
	{"Session shows another version", func(b *broken) { b.session = func(s *claim.Session) { s.Version = 1 } }, []string{"SessionMoves", "SessionClaims", "SilentServer"}},
	{"Sessions ignores its limit", func(b *broken) {
		b.sessions = func(after string, _ int) (string, int) { return after, lots }
	}, []string{"SessionsPages"}},
	{"Sessions begins at the start", func(b *broken) {
		b.sessions = func(_ string, limit int) (string, int) { return "", min(limit, 20) }
	}, []string{"SessionsPages"}},
	{"Sessions counts waiting claims as active", func(b *broken) {
		b.counted = func(s *db.SessionCount) { s.Active, s.Waiting = s.Active+s.Waiting, 0 }
	}, []string{"SessionsPages"}},
	{"AttachedTo sees none", func(b *broken) {
		b.attachedTo = func(context.Context, string) ([]string, error) { return nil, nil }
	}, []string{"SessionMoves"}},
	{"AttachedTo forgets nobody", func(b *broken) {
		b.attachedTo = func(ctx context.Context, server string) ([]string, error) {
			page, _, err := b.Sessions(ctx, "", 1000)
			var ids []string
			for i := range page {
				ids = append(ids, page[i].ID)
			}
			return ids, err
		}
	}, []string{"SessionMoves"}},
	{"DueSessions sees none", func(b *broken) { b.overdue = func(_ db.DueQuery, o *db.Overdue) { o.Sessions = nil } }, []string{"DueSessions"}},
	{"DueSessions has them in no order", func(b *broken) {
		b.overdue = func(_ db.DueQuery, o *db.Overdue) { slices.Reverse(o.Sessions) }
	}, []string{"DueSessions"}},
	{"NextDue sees no sessions", noNextSession, []string{"SessionsKeepTimeRunning", "DueSessions", "AbandonedSession", "SilentServer"}},
	{"DetachSilent detaches nothing", func(b *broken) {
		b.detach = func(context.Context, time.Duration) (int, error) { return 0, nil }
	}, []string{"SilentServer", "AbandonedSession"}},
	{"DetachSilent does not wait", func(b *broken) {
		b.detach = func(ctx context.Context, _ time.Duration) (int, error) { return b.Store.DetachSilent(ctx, 0) }
	}, []string{"SilentServer"}},
	{"registers no server", func(b *broken) {
		b.register = func(context.Context, string) error { return nil }
	}, []string{"AbandonedSession", "SessionsKeepTimeRunning", "SilentServer"}},
}
