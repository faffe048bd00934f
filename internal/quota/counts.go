// Package quota counts the live claims of the identities that have a quota of claims. Package claim has the rule. A
// server keeps the counts between its transactions, so that not each of them counts in the database.
package quota

import (
	"maps"
	"slices"
	"time"

	"github.com/locket-service/locket/internal/claim"
)

const (
	// age is how long a count is used before it is read again, which adds what other servers have changed. So with several
	// servers a quota may be exceeded for this long, or until the count's turn comes.
	age = 2 * time.Second
	// perSecond is how many claims are counted again in a second, on average, and at once: to count them takes the time of a transaction.
	perSecond = 20_000
	// unused is how long a count is kept that is not asked for.
	unused = time.Minute
)

// Counts are the numbers of live claims of the identities that have a quota of claims and have lately made one. A
// transaction reads counts that are not known, with all else that it reads, and updates them. A claim that was made
// while its identity had no quota is not counted until the next read, but its end is subtracted: the count may be too
// low until then. Only one goroutine may use Counts.
type Counts struct {
	of map[string]counted
	// paid is when so many claims may have been counted as were.
	paid time.Time
}

type counted struct {
	claim.Count
	read, used time.Time
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
	room := perSecond
	if c.paid.Sub(needs.begin) >= time.Second {
		room = 0
	}
	var seen map[string]bool
	var old []string
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
		switch known, ok := c.of[name]; {
		case !ok:
			needs.Unknown = append(needs.Unknown, name)
		case needs.begin.Sub(known.read) < age:
			c.use(name, &needs)
		default:
			old = append(old, name)
		}
	}
	slices.SortFunc(old, func(a, b string) int { return c.of[a].read.Compare(c.of[b].read) })
	for _, name := range old {
		if room <= 0 {
			c.use(name, &needs)
			continue
		}
		needs.Unknown = append(needs.Unknown, name)
		room -= c.of[name].Active + c.of[name].Waiting
	}
	return needs
}

// use puts a count that is known into the needs of a transaction.
func (c *Counts) use(name string, needs *Needs) {
	known := c.of[name]
	known.used = needs.begin
	c.of[name], needs.Known[name] = known, known.Count
}

// Committed updates the counts by the changes of a transaction. read are the counts that the transaction returned.
func (c *Counts) Committed(needs Needs, changes []claim.Transition, read map[string]claim.Count) {
	if len(c.of) > 0 {
		c.add(changes)
	}
	if len(needs.Unknown) == 0 {
		return
	}
	maps.DeleteFunc(c.of, func(_ string, known counted) bool { return needs.begin.Sub(known.used) >= unused })
	if c.of == nil {
		c.of = make(map[string]counted)
	}
	claims := 0
	for _, name := range needs.Unknown {
		c.of[name] = counted{read[name], needs.begin, needs.begin}
		claims += read[name].Active + read[name].Waiting
	}
	if c.paid.Before(needs.begin) {
		c.paid = needs.begin
	}
	c.paid = c.paid.Add(time.Duration(claims) * time.Second / perSecond)
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
