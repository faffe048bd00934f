package dbtest_test

import (
	"context"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/rules/claim"
)

// boundless loads all claims of sessions that end.
func boundless(b *broken) {
	b.load = func(tx db.Tx, wanted db.Wanted) (*claim.Queues, error) {
		of := make(map[string][]string)
		for _, session := range wanted.Ending {
			claims, err := b.Store.Live(context.Background(), db.LiveOf{Session: session}, db.Page{})
			if err != nil {
				return nil, err
			}
			for i := range claims {
				of[session] = append(of[session], claims[i].ID)
			}
			wanted.Claims = append(wanted.Claims, of[session]...)
		}
		queues, err := tx.Load(wanted)
		for _, session := range wanted.Ending {
			if s := queues.Session(session); s != nil {
				queues.PutSession(*s, of[session]...)
			}
		}
		return queues, err
	}
}

// noneDue loads no shared holder.
func noneDue(b *broken) {
	b.load = func(tx db.Tx, wanted db.Wanted) (*claim.Queues, error) {
		queues, err := tx.Load(wanted)
		for _, r := range wanted.Resources {
			if err != nil {
				break
			}
			if q := queues.Resource(r); q.Shared > 0 {
				queues.Put(claim.NewQueue(q.Stored(), 0, nil))
			}
		}
		return queues, err
	}
}

var largeFaults = []fault{
	{"ends all claims of a session at once", boundless, []string{"SessionEnds", "ManySessionsEnd"}},
	{"loads no shared holder that is due", noneDue, []string{"ManyDueAreBounded"}},
	{"never loads a claim whole", withoutClaims(func(w *db.Wanted) { w.WholeClaims = nil }), []string{"LongDataIsKept"}},
	{"writes what it has not read", changed(func(c *claim.Claim) {
		if c.Brief {
			c.Value = "read"
		}
	}), []string{"LongDataIsKept", "SessionEnds"}},
	{"loses a part of a large commit", func(b *broken) {
		b.changes = func(ctx context.Context, after db.Position, own bool) ([]db.Commit, error) {
			commits, err := b.Store.Changes(ctx, after, own)
			for i := range commits {
				commits[i].Changes = commits[i].Changes[:min(100, len(commits[i].Changes))]
			}
			return commits, err
		}
	}, []string{"LargestClaims"}},
	{"forgets how a session ends", sessionStored(func(s *claim.Session) { s.Ending = claim.Ending{} }), []string{"SessionEnds"}},
}
