// Package quota counts the live claims of the identities that have a quota of claims. Package claim has the rule. A
// server keeps the counts between its transactions, so that not each of them counts in the database.
package quota

import (
	"maps"
	"time"

	"github.com/locket-service/locket/internal/claim"
)

// age is how long a count is used before it is read again, which adds what other servers have changed. So with several
// servers a quota may be exceeded for this long.
const age = 2 * time.Second

// Counts are the numbers of live claims of the identities that have a quota of claims and have lately made one. A
// transaction reads counts that are not known, with all else that it reads, and updates them. A claim that was made
// while its identity had no quota is not counted until the next read, but its end is subtracted: the count may be too
// low until then. Only one goroutine may use Counts.
type Counts struct {
	of map[string]counted
}

type counted struct {
	claim.Count
	read time.Time
}

// Needs are the counts that a transaction needs to check the quotas of its callers.
type Needs struct {
	// Known are the counts before the transaction, by identity. The transaction has to read those of the Unknown
	// identities.
	Known   map[string]claim.Count
	Unknown []string

	begin time.Time
}

// Of returns the needs of a transaction that begins now. It allocates nothing if no caller has a quota.
func (c *Counts) Of(requests []claim.Request) (needs Needs) {
	needs.begin = time.Now()
	var seen map[string]bool
	for _, r := range requests {
		name := r.Caller.Name
		if !r.Caller.Quota.OfClaims() || seen[name] || !mayMake(r.Command) {
			continue
		}
		if seen == nil {
			seen = make(map[string]bool)
			needs.Known = make(map[string]claim.Count)
		}
		seen[name] = true
		if known, ok := c.of[name]; ok && needs.begin.Sub(known.read) < age {
			needs.Known[name] = known.Count
		} else {
			needs.Unknown = append(needs.Unknown, name)
		}
	}
	return needs
}

// Committed updates the counts by the changes of a transaction. read are the counts that the transaction returned.
func (c *Counts) Committed(needs Needs, changes []claim.Transition, read map[string]claim.Count) {
	if len(c.of) > 0 {
		c.add(changes)
	}
	if len(needs.Unknown) == 0 {
		return
	}
	maps.DeleteFunc(c.of, func(_ string, known counted) bool { return needs.begin.Sub(known.read) >= age })
	if c.of == nil {
		c.of = make(map[string]counted)
	}
	for _, name := range needs.Unknown {
		c.of[name] = counted{read[name], needs.begin}
	}
}

func (c *Counts) add(changes []claim.Transition) {
	for _, t := range changes {
		if known, ok := c.of[t.After.Identity]; ok {
			known.Add(t)
			c.of[t.After.Identity] = known
		}
	}
}

// Missed forgets all counts, since the changes of a transaction are not known.
func (c *Counts) Missed() { clear(c.of) }

// mayMake reports whether a command may make a claim.
func mayMake(cmd claim.Command) bool {
	switch cmd := cmd.(type) {
	case claim.Create:
		return true
	case claim.Acquire:
		return cmd.Token == 0
	default:
		return false
	}
}
