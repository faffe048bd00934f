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

// counts are those of identities, with the first noted of the transitions.
type counts struct {
	of    map[string]*Count
	noted int
}

// PutCount adds the number of live claims of an identity, as it is stored. It comes before the first command.
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

// Quota is how many live claims the identity of a caller may have. A zero field is no limit.
type Quota struct {
	// Held is how many may be active: with as many, one more may wait still, which may be granted; with more,
	// none may. Waiting is how many may wait.
	Held, Waiting int
}

// QuotaError refuses a claim beyond the quota of its caller.
type QuotaError struct {
	Identity string
	// Status is Active if the limit is that of the claims held, and Waiting if it is that of those that wait.
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

// admit returns a QuotaError if the caller may not have one more claim in the queue.
func (q *Queue) admit(m Mode) error {
	caller := q.set.caller
	if caller.Quota == (Quota{}) {
		return nil
	}
	q.set.count()
	var has Count
	if c := q.set.counts.of[caller.Identity]; c != nil {
		has = *c
	}
	waits := q.status(m) == Waiting
	switch most := caller.Quota; {
	case most.Held > 0 && (has.Active > most.Held || has.Active == most.Held && !waits):
		return &QuotaError{Identity: caller.Identity, Status: Active, Limit: most.Held}
	case most.Waiting > 0 && waits && has.Waiting >= most.Waiting:
		return &QuotaError{Identity: caller.Identity, Status: Waiting, Limit: most.Waiting}
	}
	return nil
}
