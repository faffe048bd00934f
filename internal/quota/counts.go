// Package quota knows how many live claims the identities have that have a quota of them. The rule itself is
// package claim's; here is what a server keeps between its transactions, so that not each of them counts in the database.
package quota

import (
	"maps"
	"time"

	"github.com/locket-service/locket/internal/claim"
)

// age is for how long the number of an identity's claims is kept before it is read again, which finds
// what other servers have changed. So with several servers a quota is known to be used up this much later.
const age = 2 * time.Second

// Counts are the numbers of live claims of the identities that have a quota of them and have lately asked
// for one. A transaction reads those that are not known, with all else that it reads; what it
// changes is counted. That a claim ends which was made while its identity had no quota is counted too, although
// the claim was not: until the next read the count is too low by that. One goroutine uses them.
type Counts struct {
	of map[string]counted
}

type counted struct {
	claim.Count
	read time.Time
}

// Needs is what a transaction needs to hold its callers to their quotas.
type Needs struct {
	// Known are counts as of before the transaction, by identity. The Unknown ones it has to read.
	Known   map[string]claim.Count
	Unknown []string

	begin time.Time
}

// Of returns what a transaction needs that begins now. It costs nothing where no caller has a quota.
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

// Committed counts what a transaction has changed. read are the counts that it needed, as it has left them.
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

// Missed forgets all: what a transaction has changed is not known.
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
