package committer

import (
	"maps"
	"time"

	"github.com/locket-service/locket/internal/claim"
)

// countAge is for how long the number of an identity's claims is kept before it is read again, which finds
// what other servers have changed. So with several servers a quota is known to be used up this much later.
const countAge = 2 * time.Second

// counts are the numbers of live claims of the identities that have a quota of them and have lately asked
// for one. A transaction reads those that are not known, with all else that it reads; what it
// changes is counted. That a claim ends which was made while its identity had no quota is counted too, although
// the claim was not: until the next read the count is too low by that. Only the goroutine that commits uses them.
type counts struct {
	of map[string]counted
}

type counted struct {
	claim.Count
	read time.Time
}

// unknown returns the identities whose claims the transaction of a batch, which begins now, is to count.
func (c *counts) unknown(batch []*request, now time.Time) (identities []string) {
	var seen map[string]bool
	for _, r := range batch {
		name := r.caller.Identity
		if r.caller.Admit == nil || !mayMake(r.cmd) || seen[name] || c.fresh(name, now) {
			continue
		}
		if seen == nil {
			seen = make(map[string]bool)
		}
		seen[name] = true
		identities = append(identities, name)
	}
	return identities
}

func (c *counts) fresh(identity string, now time.Time) bool {
	known, ok := c.of[identity]
	return ok && now.Sub(known.read) < countAge
}

// put gives a transaction that begins now the counts of its callers that are known; it has read the others.
func (c *counts) put(queues *claim.Queues, batch []*request, now time.Time) {
	for _, r := range batch {
		if name := r.caller.Identity; r.caller.Admit != nil && c.fresh(name, now) {
			queues.PutCount(name, c.of[name].Count)
		}
	}
}

// committed counts what a transaction has changed; it began at a moment, and has read some.
func (c *counts) committed(queues *claim.Queues, begin time.Time, read []string) {
	if queues == nil || len(c.of) == 0 && len(read) == 0 {
		return
	}
	for _, t := range queues.Changes() {
		if known, ok := c.of[t.After.Identity]; ok {
			known.Add(t)
			c.of[t.After.Identity] = known
		}
	}
	if len(read) == 0 {
		return
	}
	maps.DeleteFunc(c.of, func(name string, known counted) bool { return begin.Sub(known.read) >= countAge })
	for _, name := range read {
		c.of[name] = counted{*queues.Counts()[name], begin}
	}
}

// missed forgets all: what a transaction has changed is not known.
func (c *counts) missed() { clear(c.of) }

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
