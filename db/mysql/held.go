package mysql

import (
	"database/sql/driver"
	"errors"
	"fmt"
	"slices"

	"github.com/locket-service/locket/internal/rules/claim"
)

// A transaction locks the rows of sessions and resources before it reads anything else. No other server changes the
// claims then, so it writes their rows without having locked them. But somebody else may have locked one of them: an
// administrator, a tool. When a statement has waited for such a row without success, the
// following transactions check the rows that they are about to write (heldClaims). If they find locked claims, the next
// attempt leaves out their resources, as for locked rows of resources, and all others go on.

// heldError is returned by Save when rows of claims of these resources are locked.
type heldError struct{ resources []string }

func (e *heldError) Error() string {
	return fmt.Sprintf("somebody keeps claims of %d resources locked", len(e.resources))
}

// heldTable is a table with rows of claims that Save changes.
type heldTable struct {
	query string // selects keys out of %s
	// keys are the claims whose rows are changed, by the first argument of the query, "" for none.
	keys map[string][]string
}

// heldTables returns the rows that changes need, those apart that they make.
func heldTables(changes []claim.Transition) (tables []heldTable, resources map[string]string) {
	claims, bound, waits := make(map[string][]string), make(map[string][]string), make(map[string][]string)
	resources = make(map[string]string)
	for _, change := range changes {
		c := change.After
		if change.Before == nil {
			continue
		}
		resources[c.ID] = c.Resource
		claims[""] = append(claims[""], c.ID)
		switch {
		case c.Session != "" && c.Status.Final():
			bound[""] = append(bound[""], c.ID)
		case c.Session == "" && c.Owner != "" && change.StoppedWaiting():
			waits[c.Owner] = append(waits[c.Owner], c.ID)
		}
	}
	return []heldTable{
		{"SELECT id FROM claims FORCE INDEX (PRIMARY) WHERE id IN %s", claims},
		{"SELECT claim FROM session_claims FORCE INDEX (PRIMARY) WHERE claim IN %s", bound},
		{"SELECT claim FROM owner_waits FORCE INDEX (PRIMARY) WHERE owner = ? AND claim IN %s", waits},
	}, resources
}

// heldClaims returns a heldError if somebody else keeps rows locked that the changes need.
func (t *tx) heldClaims(changes []claim.Transition) error {
	tables, resources := heldTables(changes)
	var held []string
	for _, table := range tables {
		for first, keys := range table.keys {
			for chunk := range chunks(keys) {
				ids, err := t.heldRows(table.query, first, chunk)
				if err != nil {
					return err
				}
				for _, id := range ids {
					held = append(held, resources[id])
				}
			}
		}
	}
	if len(held) > 0 {
		return &heldError{held}
	}
	return nil
}

// heldRows locks the rows with the keys, and returns the keys that somebody else has locked.
func (t *tx) heldRows(query, first string, keys []string) (held []string, err error) {
	query = fmt.Sprintf(query, marks(len(keys)))
	args := anys(keys)
	if first != "" {
		args = slices.Insert(args, 0, any(first))
	}
	without := func(keys []string, found []string) []string {
		return slices.DeleteFunc(slices.Clone(keys), func(key string) bool { return slices.Contains(found, key) })
	}
	free, err := collect(t.ctx, t, query+" FOR UPDATE"+skipLocked, args, scanName)
	if err != nil || len(free) == len(keys) {
		return nil, err
	}
	there, err := t.uncommitted(query, args)
	return without(there, free), err
}

// uncommitted returns the keys that a query finds, including uncommitted rows: a transaction that inserts a row has
// locked it.
func (t *tx) uncommitted(query string, args []any) (keys []string, err error) {
	conn, err := t.store.control.Conn(t.ctx)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil { // what the level is set for may be the next statement of somebody else
			_ = conn.Raw(func(any) error { return driver.ErrBadConn })
		}
		_ = conn.Close()
	}()
	// It applies only to the next transaction, which is the SELECT.
	if _, err := conn.ExecContext(t.ctx, "SET TRANSACTION ISOLATION LEVEL READ UNCOMMITTED"); err != nil {
		return nil, err
	}
	return collect(t.ctx, conn, query, args, scanName)
}

func heldBy(err error) []string {
	var held *heldError
	if errors.As(err, &held) {
		return held.resources
	}
	return nil
}
