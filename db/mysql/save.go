package mysql

import (
	"slices"
	"strings"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/rules/claim"
)

// Save implements db.Tx. It writes new rows with plain INSERTs: if another server has inserted the same row in the
// meantime, they fail, and the transaction runs again. All other rows are locked by this transaction.
//
// A busy server mostly writes ends of claims, which differ in their ids only: one statement ends all of them, so that
// the database need not parse a row for each.
func (t *tx) Save(qs *claim.Queues) error {
	changed, sessions := qs.Changed(), qs.ChangedSessions()
	if len(changed) == 0 && len(sessions) == 0 {
		return nil
	}
	if t.store.locks.resources.stuck.careful() {
		if err := t.heldClaims(qs.Changes()); err != nil {
			return err
		}
	}
	slices.SortFunc(changed, func(a, b *claim.Queue) int { return strings.Compare(a.Resource, b.Resource) })
	w := newWriter(&t.script, t.send)
	w.sessions(sessions)
	w.resources(changed)
	w.claims(qs.Changes())
	w.ownerWaits(qs.Changes())
	if err := w.flush(); err != nil {
		return err
	}
	t.saveFeed(qs)
	t.queues = changed
	return nil
}

const (
	insertResources = "INSERT INTO resources (name, version, " + rowColumns + ") VALUES "
	onKnownResource = " ON DUPLICATE KEY UPDATE version = VALUES(version), holder = VALUES(holder)," +
		" shared = VALUES(shared), taken = VALUES(taken), units = VALUES(units), waiting = VALUES(waiting)"
	freeResources = "UPDATE resources SET version = ?, holder = '', shared = 0, taken = 0, units = 0, waiting = 0 WHERE name IN "

	insertClaims = "INSERT INTO claims (" + claimColumns + ") VALUES "
	onKnownClaim = " ON DUPLICATE KEY UPDATE type = VALUES(type), ttl = VALUES(ttl)," +
		" status = VALUES(status), token = VALUES(token), version = VALUES(version), deadline = VALUES(deadline)," +
		" activated = VALUES(activated), finished = VALUES(finished), reason = VALUES(reason), ended_by = VALUES(ended_by)"
	onKnownValue = onKnownClaim + ", value = VALUES(value)"

	endClaims = "UPDATE claims SET status = ?, version = ?, finished = ?, reason = ?, ended_by = ? WHERE id IN "
)

// ending has the changes made by the end of a claim.
type ending struct {
	status   claim.Status
	version  uint64
	finished claim.Time
	reason   string
	endedBy  string
}

// rowColumns are the columns of a row beside its name and version, rowInto what takes them, and rowValues what they are.
const rowColumns = "holder, shared, taken, units, waiting"

func rowInto(r *claim.Row) []any {
	return []any{&r.Holder, &r.Shared, &r.Taken, &r.Of, &r.Waiting}
}

func rowValues(r *claim.Row) []any {
	return []any{r.Holder, r.Shared, r.Taken, r.Of, r.Waiting}
}

func (w *writer) resources(queues []*claim.Queue) {
	for _, q := range queues {
		row := append([]any{q.Resource, q.Version}, rowValues(&q.Row)...)
		switch known := q.Stored().Version != 0; {
		case !known:
			w.row(insertResources, "", row...)
		case q.Free() && q.Waiting == 0:
			w.same(freeResources, q.Version, []any{q.Version}, q.Resource)
		default:
			w.row(insertResources, onKnownResource, row...)
		}
	}
}

func (w *writer) claims(changes []claim.Transition) {
	for _, change := range changes {
		switch c := change.After; {
		case change.Before == nil:
			w.row(insertClaims, "", values(c)...)
		case db.OnlyEnds(change):
			w.same(endClaims, ending{c.Status, c.Version, c.Finished, c.Reason, c.EndedBy},
				[]any{uint8(c.Status), c.Version, int64(c.Finished), c.Reason, c.EndedBy}, c.ID)
		case change.SetsValue():
			w.row(insertClaims, onKnownValue, known(c)...)
		default:
			unchanged := *c
			unchanged.Value = ""
			w.row(insertClaims, onKnownClaim, known(&unchanged)...)
		}
		w.sessionClaim(change)
	}
}

func values(c *claim.Claim) []any {
	var userData any
	if c.UserData != nil {
		userData = c.UserData
	}
	return []any{
		c.ID, c.Resource, c.Owner, c.Units.Take, c.Units.Of, uint8(c.Type), c.TTL.Microseconds(), userData, c.Value,
		uint8(c.Status), c.Enqueued, c.Token, c.Version, int64(c.Deadline), int64(c.Created), int64(c.Activated),
		int64(c.Finished), c.Reason, c.Session, c.WaitTTL.Microseconds(), c.Identity, c.EndedBy, c.AllowDeadlock,
	}
}

// known is values for a claim that is stored: its user data never changes.
func known(c *claim.Claim) []any {
	without := *c
	without.UserData = nil
	return values(&without)
}

const saveFeedSQL = "INSERT INTO feed (server, n, at, changes) VALUES (?, ?, ?, ?)"

// saveFeed writes the rows of the feed: the commit has more than one if its changes are many.
func (t *tx) saveFeed(qs *claim.Queues) {
	for record := range db.Records(qs.Now.Wall, qs.Transitions()) {
		t.script.add(saveFeedSQL, t.server, t.n+t.rows, int64(qs.Now.Wall), record)
		t.size += feedRowBytes + len(record)
		t.rows++
	}
}
