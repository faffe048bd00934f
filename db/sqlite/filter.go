package sqlite

import (
	"math"
	"strings"
	"time"

	"github.com/locket-service/locket/claim"
	"github.com/locket-service/locket/db"
)

// SQL spellings of a claim's durations, in microseconds, NULL where it has none. The
// placeholder is the database's time.
const (
	activeForSQL  = "(CASE WHEN activated = 0 THEN NULL WHEN status > 2 THEN finished - activated ELSE ? - activated END)"
	waitingForSQL = "(CASE WHEN activated > 0 THEN activated - created WHEN status > 2 THEN finished - created ELSE ? - created END)"
	ttlLeftSQL    = "(CASE WHEN status = 2 AND session = '' THEN deadline - ? END)"
)

// filterSQL returns a filter as what follows "SELECT … FROM claims", with its arguments.
func filterSQL(f db.Filter, now claim.Instant) (clause string, args []any) {
	var conditions []string
	where := func(condition string, values ...any) {
		conditions = append(conditions, condition)
		args = append(args, values...)
	}
	if f.Resource != nil {
		where("resource = ?", *f.Resource)
	}
	if f.Owner != nil {
		where("owner = ?", *f.Owner)
	}
	if f.Mode != nil {
		where("mode = ?", uint8(*f.Mode))
	}
	if f.Status != 0 {
		where("status = ?", uint8(f.Status))
	}
	bound := func(expr string, at claim.Time, lower, upper *time.Duration) {
		if lower != nil {
			least := lower.Microseconds()
			if least <= 0 { // what is negative here counts as 0
				least = math.MinInt64
			}
			where(expr+" >= ?", int64(at), least)
		}
		if upper != nil {
			where(expr+" <= ?", int64(at), upper.Microseconds())
		}
	}
	bound(activeForSQL, now.Wall, f.MinActive, f.MaxActive)
	bound(waitingForSQL, now.Wall, f.MinWaiting, f.MaxWaiting)
	bound(ttlLeftSQL, now.Lease, f.MinTTL, f.MaxTTL)
	if f.MinCreated != nil {
		where("created >= ?", int64(*f.MinCreated))
	}
	if f.MaxCreated != nil {
		where("created <= ?", int64(*f.MaxCreated))
	}
	if f.After != nil {
		at := int64(f.After.Created)
		where("created >= ? AND (created > ? OR id > ?)", at, at, f.After.ID)
	}
	if len(conditions) > 0 {
		clause = " WHERE " + strings.Join(conditions, " AND ")
	}
	limit := f.Limit
	if limit == 0 {
		limit = math.MaxInt32
	}
	return clause + " ORDER BY created, id LIMIT ? OFFSET ?", append(args, limit, f.Offset)
}
