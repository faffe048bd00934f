package history

import (
	"context"
	"slices"

	"zombiezen.com/go/sqlite"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/rules/claim"
)

// List calls yield for the claims of the file that pass a filter and ended up to an entry of the log, in the order of
// the list, until it returns false. Damaged rows are left out: see Damage.
func (h *History) List(ctx context.Context, f db.Filter, entry uint64, yield func(*claim.Claim) (more bool)) error {
	if f.Live() || f.MinTTL != nil || f.MaxTTL != nil { // what has ended has no TTL left
		return nil
	}
	kept, hidden := h.kept()
	from, args := candidates(f, entry, kept)
	clause, more := f.SQL(claim.Instant{}, intact)
	var wrong error
	err := h.read(ctx, "SELECT "+columns+" FROM "+from+clause, slices.Concat(args, hidden, more), func(row *sqlite.Stmt) bool {
		c, err := scan(row)
		wrong = err
		return err == nil && yield(c)
	})
	if err == nil && wrong != nil {
		err = h.unreadable(wrong)
	}
	return err
}

// maxOffset is how many claims an index skips for a list that counts as cheap.
const maxOffset = 10_000

// Scans reports whether a list may read many more claims than it returns.
func Scans(f db.Filter) bool {
	switch {
	case f.Live():
		return false
	case f.Resource != nil, f.Prefix != "", f.Owner != nil, f.Units != nil, f.Offset > maxOffset, f.Bounded():
		return true
	default:
		return len(f.Statuses) > 1 || slices.Contains(f.Statuses, claim.Released)
	}
}

// candidates returns where to look for the claims of a filter, with a condition whose arguments follow. Claims of a resource or an owner are found by reading
// the index of creation times, not the table.
func candidates(f db.Filter, entry uint64, kept string) (from string, args []any) {
	const of = "(SELECT *, rowid AS rowid FROM claims WHERE rowid IN (SELECT rowid FROM claims INDEXED BY claims_created WHERE "
	switch {
	case f.Resource != nil:
		return of + "resource = ?) AND entry <= ?" + kept + ")", []any{*f.Resource, int64(entry)}
	case f.Owner != nil:
		return of + "owner = ?) AND entry <= ?" + kept + ")", []any{*f.Owner, int64(entry)}
	case len(f.Statuses) == 1 && f.Statuses[0] != claim.Released:
		return "(SELECT *, rowid AS rowid FROM claims INDEXED BY claims_status WHERE status <> 3 AND entry <= ?" + kept + ")", []any{int64(entry)}
	default:
		return "(SELECT *, rowid AS rowid FROM claims INDEXED BY claims_created WHERE entry <= ?" + kept + ")", []any{int64(entry)}
	}
}
