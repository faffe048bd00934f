package mysql

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/locket-service/locket/internal/claim"
)

const (
	countOfSQL = `SELECT i.identity, COALESCE(SUM(phase > 1), 0), COALESCE(SUM(phase = 1), 0), COALESCE(SUM(COALESCE(phase, 0) = 0), 0)
		FROM identity_claims i FORCE INDEX (PRIMARY) LEFT JOIN claims ON id = i.claim WHERE i.identity IN %s GROUP BY i.identity`
	endedOfSQL = `SELECT i.identity, i.claim FROM identity_claims i FORCE INDEX (PRIMARY) LEFT JOIN claims ON id = i.claim
		WHERE i.identity IN %s AND COALESCE(phase, 0) = 0 LIMIT ?`
	// maxForgotten is how many rows of claims that have ended a transaction deletes.
	maxForgotten = 1000

	insertIdentityClaims = "INSERT IGNORE INTO identity_claims (identity, claim) VALUES "
	endIdentityClaims    = "DELETE FROM identity_claims WHERE identity = ? AND claim IN "
)

// loadCounts counts the live claims of identities, and finds those that have ended, which Save forgets.
func (t *tx) loadCounts(qs *claim.Queues, identities []string) error {
	for _, identity := range identities {
		qs.PutCount(identity, claim.Count{})
	}
	for chunk := range chunks(identities) {
		ended := 0
		err := each(t.ctx, t, fmt.Sprintf(countOfSQL, marks(len(chunk))), anys(chunk), func(rows *sql.Rows) error {
			var identity string
			var c claim.Count
			var n int
			err := rows.Scan(&identity, &c.Active, &c.Waiting, &n)
			qs.PutCount(identity, c)
			ended += n
			return err
		})
		if err == nil && ended > 0 {
			err = each(t.ctx, t, fmt.Sprintf(endedOfSQL, marks(len(chunk))), append(anys(chunk), maxForgotten), func(rows *sql.Rows) error {
				var e identityClaim
				err := rows.Scan(&e.identity, &e.claim)
				t.ended = append(t.ended, e)
				return err
			})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// identityClaim is a row of the table.
type identityClaim struct{ identity, claim string }

// identityClaims keeps the list of an identity's claims: it adds those that a transaction makes, and deletes
// some that have ended.
func (w *writer) identityClaims(qs *claim.Queues, ended []identityClaim) {
	for _, change := range qs.Changes() {
		if c := change.After; qs.Counted(change) {
			w.row(insertIdentityClaims, "", c.Identity, c.ID)
		}
	}
	for _, e := range ended {
		w.same(endIdentityClaims, e.identity, []any{e.identity}, e.claim)
	}
}

// pruneIdentityClaims deletes the rows of claims that are pruned, by their identities.
func (s *Store) pruneIdentityClaims(ctx context.Context, claims map[string][]any) error {
	for identity, ids := range claims {
		if _, err := s.control.ExecContext(ctx, endIdentityClaims+marks(len(ids)), append([]any{identity}, ids...)...); err != nil {
			return err
		}
	}
	return nil
}
