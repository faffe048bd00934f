package mysql

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/locket-service/locket/internal/claim"
)

const (
	// countOfSQL counts claims, and endedOfSQL finds those that have ended: those of some identities, or a part of one's.
	countOfSQL = `SELECT i.identity, COUNT(*), COALESCE(SUM(phase > 1), 0), COALESCE(SUM(phase = 1), 0)
		FROM identity_claims i FORCE INDEX (PRIMARY) LEFT JOIN claims ON id = i.claim WHERE %s GROUP BY i.identity`
	endedOfSQL = `SELECT i.identity, i.claim FROM identity_claims i FORCE INDEX (PRIMARY) LEFT JOIN claims ON id = i.claim WHERE %s AND COALESCE(phase, 0) = 0 LIMIT ?`
	ofSome     = "i.identity IN "
	ofPart     = "i.identity = ? AND i.claim > ? AND i.claim <= ?"
	// sizesSQL reads an index alone, and so does partSQL, which selects the end of a part.
	sizesSQL = "SELECT identity, COUNT(*) FROM identity_claims FORCE INDEX (PRIMARY) WHERE identity IN %s GROUP BY identity"
	partSQL  = "SELECT claim FROM identity_claims FORCE INDEX (PRIMARY) WHERE identity = ? AND claim > ? ORDER BY claim LIMIT 1 OFFSET ?"
	// countStep is how many claims one statement counts: all those of the identities of a transaction may take longer than a statement may.
	countStep = 20_000
	// maxForgotten is how many rows of claims that have ended a transaction deletes.
	maxForgotten = 1000
	// countingTime is for how long what a transaction has counted that then failed is kept: a part while nobody asks for the rest.
	countingTime = 10 * time.Second

	insertIdentityClaims = "INSERT IGNORE INTO identity_claims (identity, claim) VALUES "
	endIdentityClaims    = "DELETE FROM identity_claims WHERE identity = ? AND claim IN "

	// nextOfIdentitiesSQL goes through the table, and says which claims have ended.
	nextOfIdentitiesSQL = `SELECT i.identity, i.claim, COALESCE(phase, 0) = 0 FROM (SELECT identity, claim FROM identity_claims FORCE INDEX (PRIMARY)
		WHERE identity > ? OR identity = ? AND claim > ? ORDER BY identity, claim LIMIT ?) i LEFT JOIN claims ON id = i.claim`
	// forgetInterval is how often the janitor forgets claims that have ended, forgetTime for how long at once, and
	// idleForget the same while it finds none.
	forgetInterval = 5 * time.Second
	forgetTime     = time.Second
	idleForget     = 100 * time.Millisecond
)

// counting is how far the claims of an identity are counted. What a transaction has counted that then fails is used by the next one, so that counts which
// take longer than a transaction may are known after some.
type counting struct {
	claim.Count
	to    []byte // the id up to which claims are counted
	asked time.Time
}

// allCounted is behind all ids.
var allCounted = []byte{0xff}

// countings are those of the transactions that have failed, by identity. Only the transactions of the store use it, one after the other.
type countings map[string]counting

// begin forgets what nobody asks for any more, notes that identities are asked for, and returns those that are not counted to the end. A count to the end
// grows old: how often it is asked for does not matter.
func (c countings) begin(identities []string) (left []string) {
	now := time.Now()
	maps.DeleteFunc(c, func(_ string, of counting) bool { return now.Sub(of.asked) > countingTime })
	for _, identity := range identities {
		if of := c[identity]; !bytes.Equal(of.to, allCounted) {
			of.asked = now
			c[identity] = of
			left = append(left, identity)
		}
	}
	return left
}

// done forgets what a transaction has used.
func (c countings) done(identities []string) {
	for _, identity := range identities {
		delete(c, identity)
	}
}

// add adds what a transaction has changed of the claims that are counted.
func (c countings) add(changes []claim.Transition) {
	for _, change := range changes {
		if of, ok := c[change.After.Identity]; ok && bytes.Compare([]byte(change.After.ID), of.to) <= 0 {
			of.Add(change)
			c[change.After.Identity] = of
		}
	}
}

// countClaims counts the live claims of identities, and finds those that have ended, which Save forgets.
func (t *tx) countClaims(identities []string) error {
	t.counted = identities
	sizes := make(map[string]int)
	for chunk := range chunks(t.store.countings.begin(identities)) {
		err := each(t.ctx, t, fmt.Sprintf(sizesSQL, marks(len(chunk))), anys(chunk), func(rows *sql.Rows) error {
			var identity string
			var n int
			err := rows.Scan(&identity, &n)
			sizes[identity] = n
			return err
		})
		if err != nil {
			return err
		}
	}
	var some []string
	rows := 0
	for identity, n := range sizes {
		if n > countStep || t.store.countings[identity].to != nil {
			if err := t.countLarge(identity); err != nil {
				return err
			}
			continue
		}
		if rows += n; rows > countStep {
			if err := t.countSome(some); err != nil {
				return err
			}
			some, rows = nil, n
		}
		some = append(some, identity)
	}
	return t.countSome(some)
}

// countSome counts the claims of identities that have few together.
func (t *tx) countSome(identities []string) error {
	for chunk := range chunks(identities) {
		if err := t.count(allCounted, ofSome+marks(len(chunk)), anys(chunk)...); err != nil {
			return err
		}
	}
	return nil
}

// countLarge counts the claims of an identity part by part.
func (t *tx) countLarge(identity string) error {
	for from := append([]byte{}, t.store.countings[identity].to...); ; {
		var to []byte
		err := t.QueryRowContext(t.ctx, partSQL, identity, from, countStep-1).Scan(&to)
		last := errors.Is(err, sql.ErrNoRows)
		switch {
		case last:
			to = allCounted
		case err != nil:
			return err
		}
		if err := t.count(to, ofPart, identity, from, to); err != nil || last {
			return err
		}
		from = to
	}
}

// count adds what a statement counts, of claims up to an id.
func (t *tx) count(to []byte, where string, args ...any) error {
	ended := 0
	counted := make(map[string]claim.Count)
	err := each(t.ctx, t, fmt.Sprintf(countOfSQL, where), args, func(rows *sql.Rows) error {
		var identity string
		var all int
		var c claim.Count
		err := rows.Scan(&identity, &all, &c.Active, &c.Waiting)
		counted[identity] = c
		ended += all - c.Active - c.Waiting
		return err
	})
	if room := maxForgotten - len(t.ended); err == nil && ended > 0 && room > 0 {
		err = each(t.ctx, t, fmt.Sprintf(endedOfSQL, where), append(args, room), func(rows *sql.Rows) error {
			var e identityClaim
			err := rows.Scan(&e.identity, &e.claim)
			t.ended = append(t.ended, e)
			return err
		})
	}
	if err != nil {
		return err
	}
	for identity, c := range counted {
		of := t.store.countings[identity]
		of.Active, of.Waiting, of.to = of.Active+c.Active, of.Waiting+c.Waiting, to
		t.store.countings[identity] = of
	}
	return nil
}

// identityClaim is a row of the table.
type identityClaim struct{ identity, claim string }

func (a identityClaim) compare(b identityClaim) int {
	return cmp.Or(cmp.Compare(a.identity, b.identity), cmp.Compare(a.claim, b.claim))
}

// endedOf returns the claims that a transaction ends, of the identities that it counts. Without this a busy identity would have ever more rows to count.
func endedOf(qs *claim.Queues) (ended []identityClaim) {
	for _, change := range qs.Changes() {
		if c := change.After; qs.CountedEnd(change) {
			ended = append(ended, identityClaim{c.Identity, c.ID})
		}
	}
	return ended
}

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

// forgetEnded deletes rows of claims that have ended while nobody counted. It continues where the last call has stopped.
func (s *Store) forgetEnded(ctx context.Context) error {
	if time.Since(s.forgotten) < forgetInterval {
		return nil
	}
	s.forgotten = time.Now()
	for found := s.forgotten; time.Since(s.forgotten) < forgetTime && time.Since(found) < idleForget; {
		var last identityClaim
		var ended map[string][]any
		n := 0
		args := []any{s.forgotAt.identity, s.forgotAt.identity, s.forgotAt.claim, maxKeys}
		err := s.each(ctx, s.control, nextOfIdentitiesSQL, args, func() { last, ended, n = identityClaim{}, make(map[string][]any), 0 }, func(rows *sql.Rows) error {
			var row identityClaim
			var over bool
			err := rows.Scan(&row.identity, &row.claim, &over)
			if n++; row.compare(last) > 0 {
				last = row
			}
			if over {
				ended[row.identity] = append(ended[row.identity], row.claim)
			}
			return err
		})
		if err == nil {
			err = s.pruneIdentityClaims(ctx, ended)
		}
		if err != nil {
			return err
		}
		if s.forgotAt = last; n < maxKeys {
			s.forgotAt = identityClaim{}
			return nil
		}
		if len(ended) > 0 {
			found = time.Now()
		}
	}
	return nil
}

// pruneIdentityClaims deletes rows by their identities, in any order. After one that somebody keeps locked the others are left for later: there may be
// any number of such.
func (s *Store) pruneIdentityClaims(ctx context.Context, claims map[string][]any) error {
	for identity, ids := range claims {
		_, err := s.control.ExecContext(ctx, endIdentityClaims+marks(len(ids)), append([]any{identity}, ids...)...)
		if isCode(err, codeLockWait) {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}
