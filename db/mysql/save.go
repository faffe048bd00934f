package mysql

import (
	"slices"
	"strings"

	"github.com/locket-service/locket/claim"
	"github.com/locket-service/locket/db"
)

// Save implements db.Tx.
func (t *tx) Save(qs *db.Queues) error {
	changed := qs.Changed()
	if len(changed) == 0 {
		return nil
	}
	t.saved = true
	slices.SortFunc(changed, func(a, b *claim.Queue) int { return strings.Compare(a.Resource, b.Resource) })
	if err := t.saveResources(changed); err != nil {
		return err
	}
	if err := t.saveClaims(changed); err != nil {
		return err
	}
	return t.saveFeed(qs.Now, changed)
}

const resourcesSQL = "INSERT INTO resources (name, version, holder, shared, waiting) VALUES "
const resourcesEnd = " ON DUPLICATE KEY UPDATE version = VALUES(version), holder = VALUES(holder)," +
	" shared = VALUES(shared), waiting = VALUES(waiting)"

// saveResources writes the rows of resources. The database counts a row that is made as
// one and a row that is changed as two; if the sum is not what it must be, another server
// has made one of the rows in the meantime.
func (t *tx) saveResources(queues []*claim.Queue) error {
	w := newRowWriter(t, resourcesSQL, resourcesEnd, 5)
	for _, q := range queues {
		affects := 2
		if q.Stored().Version == 0 {
			affects = 1
		}
		w.add(affects, len(q.Resource), q.Resource, q.Version, q.Holder, q.Shared, q.Waiting)
	}
	return w.flush()
}

const claimsSQL = "INSERT INTO claims (" + claimColumns + ", phase, at) VALUES "
const claimsEnd = " ON DUPLICATE KEY UPDATE type = VALUES(type), ttl = VALUES(ttl), value = VALUES(value)," +
	" status = VALUES(status), token = VALUES(token), version = VALUES(version), deadline = VALUES(deadline)," +
	" activated = VALUES(activated), finished = VALUES(finished), reason = VALUES(reason), phase = VALUES(phase), at = VALUES(at)"

// saveClaims writes the claims that are new and those that have changed.
func (t *tx) saveClaims(queues []*claim.Queue) error {
	w := newRowWriter(t, claimsSQL, claimsEnd, 19)
	for _, q := range queues {
		made, changed := q.Changes()
		for _, c := range made {
			t.saveClaim(w, 1, c)
		}
		for _, c := range changed {
			t.saveClaim(w, 2, c)
		}
	}
	return w.flush()
}

func (t *tx) saveClaim(w *rowWriter, affects int, c *claim.Claim) {
	var userData any
	if c.UserData != nil {
		userData = c.UserData
	}
	phase, at := place(c)
	w.add(affects, len(c.Resource)+len(c.Value)+len(c.UserData),
		c.ID, c.Resource, c.Owner, uint8(c.Mode), uint8(c.Type), c.TTL.Microseconds(), userData, c.Value,
		uint8(c.Status), c.Position, c.Token, c.Version, int64(c.Deadline), int64(c.Created), int64(c.Activated),
		int64(c.Finished), c.Reason, phase, at)
}

// The phases of a claim: see the schema.
const (
	phaseFinal   = 0
	phaseWaiting = 1
	phaseActive  = 2 // plus the type
)

// place returns where a claim stands in the index of the phases.
func place(c *claim.Claim) (phase int, at int64) {
	switch {
	case c.Status.Final():
		return phaseFinal, int64(c.Finished)
	case c.Status == claim.Waiting:
		return phaseWaiting, int64(c.Position)
	default:
		return phaseActive + int(c.Type), int64(c.Deadline)
	}
}

// saveFeed writes the commit's row of the feed.
func (t *tx) saveFeed(now claim.Instant, queues []*claim.Queue) error {
	var ids []string
	for _, q := range queues {
		_, changed := q.Changes()
		for _, c := range changed {
			if c.LeftLine() {
				ids = append(ids, c.ID)
			}
		}
	}
	_, err := t.ExecContext(t.ctx, "INSERT INTO feed (server, n, at, ids) VALUES (?, ?, ?, ?)",
		t.store.server, t.n, int64(now.Wall), strings.Join(ids, " "))
	return err
}

// statementBytes is about how large a statement becomes before another one is begun. The
// smallest limit of a server (max_allowed_packet) that is in use is 1 MiB.
const statementBytes = 256 << 10

// rowWriter writes rows in statements of many rows each, and checks how many rows the
// database says were affected.
type rowWriter struct {
	tx         *tx
	begin, end string
	row        string
	args       []any
	rows       int
	bytes      int
	affects    int64
	err        error
}

func newRowWriter(t *tx, begin, end string, columns int) *rowWriter {
	return &rowWriter{tx: t, begin: begin, end: end, row: marks(columns)}
}

// add adds a row of about so many bytes that is to affect the given number of rows.
func (w *rowWriter) add(affects, bytes int, args ...any) {
	if w.bytes+bytes > statementBytes && w.rows > 0 {
		w.send()
	}
	w.args = append(w.args, args...)
	w.rows++
	w.bytes += bytes
	w.affects += int64(affects)
}

func (w *rowWriter) flush() error {
	if w.rows > 0 {
		w.send()
	}
	return w.err
}

func (w *rowWriter) send() {
	if w.err == nil {
		w.err = w.exec()
	}
	w.args, w.rows, w.bytes, w.affects = w.args[:0], 0, 0, 0
}

func (w *rowWriter) exec() error {
	query := w.begin + strings.TrimSuffix(strings.Repeat(w.row+",", w.rows), ",") + w.end
	result, err := w.tx.ExecContext(w.tx.ctx, query, w.args...)
	if err != nil {
		return err
	}
	affected, err := result.RowsAffected()
	if err == nil && affected != w.affects {
		return errRaced
	}
	return err
}
