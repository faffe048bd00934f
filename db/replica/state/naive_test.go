package state_test

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/rules/claim"
)

// naive is a store that keeps everything in maps and looks through all of them each time.
type naive struct {
	rows     map[string]claim.Row
	claims   map[string]*claim.Claim
	sessions map[string]*claim.Session
}

func newNaive() *naive {
	return &naive{rows: map[string]claim.Row{}, claims: map[string]*claim.Claim{}, sessions: map[string]*claim.Session{}}
}

// which returns the claims that pass, in order of arrival.
func (n *naive) which(pass func(*claim.Claim) bool) (claims []*claim.Claim) {
	for _, c := range n.claims {
		if pass(c) {
			claims = append(claims, c)
		}
	}
	slices.SortFunc(claims, func(a, b *claim.Claim) int {
		return cmp.Or(cmp.Compare(a.Enqueued, b.Enqueued), cmp.Compare(a.ID, b.ID))
	})
	return claims
}

func (n *naive) load(now claim.Instant, wanted db.Wanted) *claim.Queues {
	qs := claim.NewQueues(now, 0)
	resource := func(name string) {
		if qs.Resource(name) != nil {
			return
		}
		row := n.rows[name]
		row.Resource = name
		qs.Put(claim.NewQueue(row, 0, func(name string, after uint64) ([]*claim.Claim, error) {
			return n.which(func(c *claim.Claim) bool {
				return c.Resource == name && c.Status == claim.Waiting && c.Enqueued > after
			}), nil
		}))
		holders := n.which(func(c *claim.Claim) bool {
			return c.Resource == name && c.Status == claim.Active && (c.ID == row.Holder || c.Deadline <= now.Lease)
		})
		slices.SortStableFunc(holders, func(a, b *claim.Claim) int { return cmp.Compare(a.Deadline, b.Deadline) })
		for _, c := range holders {
			qs.Add(c)
		}
	}
	for _, name := range wanted.Resources {
		resource(name)
	}
	add := func(id string) {
		if c := n.claims[id]; c != nil {
			resource(c.Resource)
			qs.Add(c)
		}
	}
	for _, id := range wanted.Claims {
		add(id)
	}
	for _, id := range wanted.Sessions {
		if s := n.sessions[id]; s != nil {
			n.loadSession(qs, *s, wanted, add)
		}
	}
	return qs
}

func (n *naive) usage(identity string, except []string) (count claim.Count) {
	for _, c := range n.claims {
		if c.Identity == identity && identity != "" && !slices.Contains(except, c.ID) {
			count.Add(claim.Transition{After: c})
		}
	}
	return count
}

func (n *naive) oldestWaiting() (oldest claim.Time) {
	heads := make(map[string]*claim.Claim)
	for _, c := range n.which(func(c *claim.Claim) bool { return c.Status == claim.Waiting }) {
		if head := heads[c.Resource]; head == nil || c.Enqueued < head.Enqueued {
			heads[c.Resource] = c
		}
	}
	for _, head := range heads {
		if oldest == 0 || head.Created < oldest {
			oldest = head.Created
		}
	}
	return oldest
}

func (n *naive) loadSession(qs *claim.Queues, s claim.Session, wanted db.Wanted, add func(string)) {
	var ids []string
	for _, status := range []claim.Status{claim.Waiting, claim.Active} {
		of := n.which(func(c *claim.Claim) bool { return c.Session == s.ID && c.Status == status })
		slices.SortFunc(of, func(a, b *claim.Claim) int { return cmp.Compare(a.ID, b.ID) }) // "c1000" comes before "c999"
		for _, c := range of {
			if slices.Contains(wanted.Ending, s.ID) || status == claim.Waiting && slices.Contains(wanted.Withdrawing, s.ID) {
				ids = append(ids, c.ID)
				add(c.ID)
			}
		}
	}
	qs.PutSession(s, ids...)
}

func (n *naive) save(qs *claim.Queues) {
	for _, q := range qs.Changed() {
		n.rows[q.Resource] = q.Row
	}
	for _, change := range qs.Changes() {
		n.claims[change.After.ID] = change.After
	}
	for _, change := range qs.ChangedSessions() {
		if change.After == nil {
			delete(n.sessions, change.ID())
		} else {
			n.sessions[change.ID()] = change.After
		}
	}
}

func (n *naive) due(now claim.Time, idle time.Duration) []string {
	names := map[string]bool{}
	for _, c := range n.claims {
		if c.Status == claim.Active && c.Deadline <= now && (n.rows[c.Resource].Waiting > 0 || c.Deadline <= now.Add(-idle)) {
			names[c.Resource] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

func (n *naive) nextDue(now claim.Time, idle time.Duration) (next claim.Time) {
	for _, c := range n.claims {
		if c.Status == claim.Active || c.Status == claim.Waiting && c.Deadline != 0 {
			next = db.Sooner(next, db.LookAt(c.Deadline, now, idle))
		}
	}
	for _, s := range n.sessions {
		at := claim.Time(claim.Forever)
		if s.Deadline != 0 {
			at = s.Deadline
		}
		if s.Server != "" {
			at = 1 // its server is not registered
		}
		next = db.Sooner(next, at)
	}
	return next
}
