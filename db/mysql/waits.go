package mysql

import (
	"context"
	"strings"

	"github.com/locket-service/locket/internal/rules/claim"
)

const (
	ownerWaitsSQL = "(SELECT " + briefColumns + ` FROM (SELECT claims.* FROM owner_waits w STRAIGHT_JOIN claims ON claims.id = w.claim
		WHERE w.owner IN %s) claims LIMIT ?)`
	sessionWaitsSQL = "(SELECT " + briefColumns + ` FROM (SELECT claims.* FROM session_claims s FORCE INDEX (session_claims_session) STRAIGHT_JOIN claims ON claims.id = s.claim
		WHERE s.session IN %s AND claims.status = 1) claims LIMIT ?)`
)

// WaitsOf implements db.Reader.
func (s *Store) WaitsOf(ctx context.Context, owners []claim.OwnerKey, limit int) ([]claim.Claim, error) {
	var owned, sessions []any
	for _, p := range owners {
		switch {
		case p.Session != "":
			sessions = append(sessions, p.Session)
		case p.Owner != "":
			owned = append(owned, p.Owner)
		}
	}
	var selects []string
	var args []any
	for _, of := range []struct {
		sql   string
		names []any
	}{{ownerWaitsSQL, owned}, {sessionWaitsSQL, sessions}} {
		if len(of.names) > 0 {
			selects = append(selects, strings.Replace(of.sql, "%s", marks(len(of.names)), 1))
			args = append(append(args, of.names...), limit)
		}
	}
	if len(selects) == 0 {
		return nil, nil
	}
	waits, err := s.readClaims(ctx, strings.Join(selects, " UNION ALL "), args...)
	return waits[:min(limit, len(waits))], err
}

const (
	insertOwnerWaits = "INSERT INTO owner_waits (owner, claim) VALUES "
	deleteOwnerWaits = "DELETE FROM owner_waits WHERE owner = ? AND claim IN "
)

// ownerWaits maintains the table of the same name: the claims of owners, without a session, that wait at the end of a
// transaction. Claims that wait only within a transaction cost nothing.
func (w *writer) ownerWaits(changes []claim.Transition) {
	for _, change := range changes {
		c := change.After
		switch waits := c.Status == claim.Waiting; {
		case c.Owner == "" || c.Session != "":
		case waits && change.Before == nil:
			w.row(insertOwnerWaits, "", c.Owner, c.ID)
		case change.StoppedWaiting():
			w.same(deleteOwnerWaits, c.Owner, []any{c.Owner}, c.ID)
		}
	}
}
