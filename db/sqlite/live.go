package sqlite

import (
	"context"
	"fmt"
	"strings"

	"zombiezen.com/go/sqlite"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/claim"
)

// watchedColumns are claimColumns with what the feed has of a claim.
var watchedColumns = strings.Replace(briefColumns, "''",
	fmt.Sprintf("CASE WHEN length(CAST(value AS BLOB)) <= %d THEN value ELSE '' END", db.MaxFeedValue), 1)

var (
	liveOfResourcePageSQL = "SELECT " + watchedColumns + " FROM " + liveOfResourceSQL +
		" WHERE id > ?2 AND status < 3 ORDER BY id" + limitSQL
	// fewLivePageSQL reads the ids of all live claims from their indexes, and livePageSQL the
	// table, of which a page is soon found where many claims are live.
	fewLivePageSQL = "SELECT " + watchedColumns + ` FROM claims WHERE id IN (
		SELECT id FROM claims INDEXED BY claims_waiting WHERE status = 1 AND id > ?1
		UNION ALL SELECT id FROM claims INDEXED BY claims_held WHERE status = 2 AND id > ?1) ORDER BY id` + limitSQL
	livePageSQL = "SELECT " + watchedColumns + " FROM claims WHERE id > ? AND status < 3 ORDER BY id" + limitSQL
	// countAllLiveSQL asks whether there are few of them.
	countAllLiveSQL = `SELECT count(*) FROM (
		SELECT 1 FROM claims INDEXED BY claims_waiting WHERE status = 1
		UNION ALL SELECT 1 FROM claims INDEXED BY claims_held WHERE status = 2` + limitSQL + ")"
)

// Live implements db.Reader.
func (s *Store) Live(ctx context.Context, resource *string, page db.Page) ([]claim.Claim, error) {
	if resource != nil {
		return s.readPage(ctx, page.Bytes, liveOfResourcePageSQL, *resource, page.After, page.Limit)
	}
	few := false
	if err := s.read(ctx, countAllLiveSQL, func(row *sqlite.Stmt) { few = row.ColumnInt(0) <= fewLive }, fewLive+1); err != nil {
		return nil, err
	}
	if few {
		return s.readPage(ctx, page.Bytes, fewLivePageSQL, page.After, page.Limit)
	}
	return s.readPage(ctx, page.Bytes, livePageSQL, page.After, page.Limit)
}
