package claim

import "fmt"

// Count is how many live claims an identity has.
type Count struct{ Active, Waiting int }

// Add counts what a transition changes.
func (c *Count) Add(t Transition) {
	if t.Before != nil {
		c.add(t.Before.Status, -1)
	}
	c.add(t.After.Status, 1)
}

func (c *Count) add(s Status, n int) {
	switch s {
	case Active:
		c.Active += n
	case Waiting:
		c.Waiting += n
	}
}

// counts are the counts of identities. They include the first noted of the transitions.
type counts struct {
	of    map[string]*Count
	noted int
}

// PutCount sets the number of live claims that an identity has in the store. It is called before the first command.
func (qs *Queues) PutCount(identity string, c Count) {
	put(&qs.counts.of, identity, &c)
}

// Counts returns the counts that were put, with what the commands have changed since.
func (qs *Queues) Counts() map[string]Count {
	qs.count()
	if len(qs.counts.of) == 0 {
		return nil
	}
	counts := make(map[string]Count, len(qs.counts.of))
	for identity, c := range qs.counts.of {
		counts[identity] = *c
	}
	return counts
}

// count adds what the commands have changed since to the counts that were put.
func (qs *Queues) count() {
	if len(qs.counts.of) == 0 {
		return
	}
	for _, t := range qs.transitions[qs.counts.noted:] {
		if c := qs.counts.of[t.After.Identity]; c != nil {
			c.Add(t)
		}
	}
	qs.counts.noted = len(qs.transitions)
}

// Counted reports whether a transition makes a live claim of an identity whose count was put.
func (qs *Queues) Counted(t Transition) bool {
	return t.Before == nil && t.After.Status.Live() && qs.counts.of[t.After.Identity] != nil
}

// CountedEnd reports whether a transition ends a claim that was stored, of an identity whose count was put.
func (qs *Queues) CountedEnd(t Transition) bool {
	return t.Before != nil && t.After.Status.Final() && qs.counts.of[t.After.Identity] != nil
}

// QuotaError is returned for a claim beyond the quota of its caller.
type QuotaError struct {
	Identity string
	// Status is Active for the limit of active claims, and Waiting for that of waiting claims.
	Status Status
	Limit  int
}

func (e *QuotaError) Error() string {
	return fmt.Sprintf("%s may have at most %d claims that are %s", e.Identity, e.Limit, e.Status)
}

// status returns the status that a new claim of a mode will have.
func (q *Queue) status(m Mode) Status {
	if q.Waiting > 0 || !q.admits(m) {
		return Waiting
	}
	return Active
}

// admit returns a QuotaError if the caller may not have one more claim in the queue. A caller with as many active claims
// as the quota allows may still have a claim that waits, and it may be granted; a caller with more may not. In a quarantine
// every claim waits.
func (q *Queue) admit(m Mode) error {
	name, quota := q.set.caller.Name, q.set.caller.Quota
	if quota == nil {
		return nil
	}
	q.set.count()
	var has Count
	if c := q.set.counts.of[name]; c != nil {
		has = *c
	}
	switch waits := q.status(m) == Waiting || q.set.Now.Quarantined(); {
	case quota.Held > 0 && (has.Active > quota.Held || has.Active == quota.Held && !waits):
		return &QuotaError{Identity: name, Status: Active, Limit: quota.Held}
	case quota.WaitingClaims > 0 && waits && has.Waiting >= quota.WaitingClaims:
		return &QuotaError{Identity: name, Status: Waiting, Limit: quota.WaitingClaims}
	}
	return nil
}
