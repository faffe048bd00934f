package sqlite

import "github.com/locket-service/locket/internal/claim"

const (
	countOfSQL  = "SELECT coalesce(sum(c.status = 2), 0), coalesce(sum(c.status = 1), 0), coalesce(sum(c.status > 2 OR c.status IS NULL), 0) FROM identity_claims i LEFT JOIN claims c ON c.id = i.claim WHERE i.identity = ?"
	forgetOfSQL = "DELETE FROM identity_claims WHERE identity = ? AND NOT EXISTS (SELECT 1 FROM claims WHERE id = claim AND status < 3)"
	pruneOfSQL  = "DELETE FROM identity_claims WHERE (identity, claim) IN (SELECT identity, id FROM claims WHERE status > 2 AND finished < ? ORDER BY finished" + limitSQL + ")"
)

// loadCount counts the live claims of an identity, and forgets the others.
func (t *tx) loadCount(qs *claim.Queues, identity string) error {
	var c claim.Count
	ended := 0
	err := query(t.w.countOf, func() {
		c.Active, c.Waiting, ended = t.w.countOf.ColumnInt(0), t.w.countOf.ColumnInt(1), t.w.countOf.ColumnInt(2)
	}, identity)
	qs.PutCount(identity, c)
	if err != nil || ended == 0 {
		return err
	}
	return run(t.w.forgetOf, identity)
}
