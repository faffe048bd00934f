package mysql

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/locket-service/locket/internal/rules/claim"
)

// usageSQL counts the live claims of an identity in an index. %s excludes some.
const usageSQL = "SELECT live_of LIKE 'a%%', COUNT(*) FROM claims FORCE INDEX (claims_live_of) WHERE live_of IN (?, ?)%s GROUP BY live_of"

// Usage implements db.Usages.
func (s *Store) Usage(ctx context.Context, identity string, except []string) (usage claim.Count, err error) {
	query, args := fmt.Sprintf(usageSQL, ""), []any{"a" + identity, "w" + identity}
	if len(except) > 0 {
		query, args = fmt.Sprintf(usageSQL, " AND id NOT IN "+marks(len(except))), append(args, anys(except)...)
	}
	err = s.each(ctx, s.reader, query, args, func() { usage = claim.Count{} }, func(rows *sql.Rows) error {
		var active bool
		var n int
		err := rows.Scan(&active, &n)
		if active {
			usage.Active = n
		} else {
			usage.Waiting = n
		}
		return err
	})
	return usage, readError(ctx, err)
}
