package mysql

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/rules/claim"
)

// queueSQL is one statement, so that it sees one state of the queue in one round trip. Each
// row is a claim followed by the resource's row and the clock. The first has those two and no
// claim; in the others they are blank.
var queueSQL = `(SELECT ` + noClaim + `, COALESCE(r.version, 0), COALESCE(r.holder, ''), COALESCE(r.shared, 0), COALESCE(r.taken, 0), COALESCE(r.units, 0), COALESCE(r.waiting, 0), ` + metaColumns + `
		FROM meta LEFT JOIN resources r ON r.name = ? WHERE one = 1)
	UNION ALL (SELECT ` + queueColumns + `, ` + noQueue + ` FROM claims
		WHERE id = (SELECT NULLIF(holder, '') FROM resources WHERE name = ?))
	UNION ALL (SELECT ` + queueColumns + `, ` + noQueue + ` FROM claims FORCE INDEX (claims_line)
		WHERE ` + shares + ` ORDER BY position LIMIT ?)
	UNION ALL (SELECT ` + queueColumns + `, ` + noQueue + ` FROM claims FORCE INDEX (claims_line)
		WHERE ` + waits + ` ORDER BY position LIMIT ?)
	ORDER BY position`

// queueColumns are briefColumns with the beginning of the value.
var queueColumns = strings.Replace(briefColumns, "''", fmt.Sprintf("LEFT(value, %d)", db.MaxBeginning), 1)

const (
	noClaim = "'' AS id, '', '', 0, 0, 0, 0, NULL, '', 0, 0 AS position, 0, 0, 0, 0, 0, 0, '', '', 0, '', '', FALSE"
	noQueue = "0, '', 0, 0, 0, 0, 0, 0, 0, 0, 0"
)

// Queue implements db.Reader.
func (s *Store) Queue(ctx context.Context, resource string, limit int) (snapshot db.Snapshot, now claim.Instant, err error) {
	args := []any{resource, resource, resource, limit, resource, limit}
	err = s.each(ctx, s.reader, queueSQL, args, func() { snapshot = db.Snapshot{} }, func(rows *sql.Rows) error {
		var r claimRow
		row := claim.Row{Resource: resource}
		m, err := scanMeta(rows, append(append(r.columns(), &row.Version), rowInto(&row)...)...)
		c := r.done()
		c.Value = db.Beginning(c.Value)
		switch c.Status {
		case claim.Waiting:
			snapshot.Waiters = append(snapshot.Waiters, *c)
		case claim.Active:
			snapshot.Holders = append(snapshot.Holders, *c)
		default:
			snapshot.Row, now = row, s.shown(m)
		}
		return err
	})
	return snapshot, now, readError(ctx, err)
}
