package mysql

import (
	"context"
	"fmt"
	"strings"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/rules/claim"
)

// watchedColumns are claimColumns, limited to the data in the feed.
var watchedColumns = strings.Replace(briefColumns, "''", fmt.Sprintf("CASE WHEN LENGTH(value) <= %d THEN value ELSE '' END", db.MaxFeedValue), 1)

var (
	liveOfResourcePageSQL = "SELECT " + watchedColumns + " FROM (SELECT claims.* FROM " + liveOfResourceSQL +
		" WHERE claims.id > ? AND claims.status IN (1, 2)) claims ORDER BY id LIMIT ?"
	// fewLivePageSQL reads the ids of all live claims from an index. livePageSQL reads the table, which soon fills a
	// page if many claims are live.
	fewLivePageSQL = "SELECT " + watchedColumns + ` FROM (SELECT claims.* FROM (
		SELECT id FROM claims FORCE INDEX (claims_phase) WHERE phase >= 1 AND id > ? ORDER BY id LIMIT ?) page
		STRAIGHT_JOIN claims ON claims.id = page.id) claims ORDER BY id`
	livePageSQL = "SELECT " + watchedColumns + " FROM claims FORCE INDEX (PRIMARY) WHERE id > ? AND status IN (1, 2) ORDER BY id LIMIT ?"
	// countAllLiveSQL asks whether there are few of them.
	countAllLiveSQL = "SELECT COUNT(*) <= ? FROM (SELECT 1 FROM claims FORCE INDEX (claims_phase) WHERE phase >= 1 LIMIT ?) live"
)

// Live implements db.Reader.
func (s *Store) Live(ctx context.Context, of db.LiveOf, page db.Page) ([]claim.Claim, error) {
	switch {
	case of.Session != "":
		return s.readClaims(ctx, sessionClaimsSQL, of.Session)
	case of.Held != nil && page.Limit == 0:
		return s.readPage(ctx, page.Bytes, heldSQL, phaseActive+int(*of.Held))
	case of.Held != nil:
		return s.readPage(ctx, page.Bytes, heldPageSQL, phaseActive+int(*of.Held), page.After, page.Limit)
	case of.Resource != nil:
		return s.readPage(ctx, page.Bytes, liveOfResourcePageSQL, *of.Resource, *of.Resource, *of.Resource, page.After, page.Limit)
	}
	var few bool
	if err := s.scanRow(ctx, s.reader, countAllLiveSQL, []any{fewLive, fewLive + 1}, &few); err != nil {
		return nil, listError(ctx, err)
	}
	if few {
		return s.readPage(ctx, page.Bytes, fewLivePageSQL, page.After, page.Limit)
	}
	return s.readPage(ctx, page.Bytes, livePageSQL, page.After, page.Limit)
}
