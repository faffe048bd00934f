package claim

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
func (qs *Queues) Counts() map[string]*Count {
	if len(qs.counts.of) == 0 {
		return nil
	}
	for _, t := range qs.transitions[qs.counts.noted:] {
		if c := qs.counts.of[t.After.Identity]; c != nil {
			c.Add(t)
		}
	}
	qs.counts.noted = len(qs.transitions)
	return qs.counts.of
}

// Counted reports whether a transition makes a live claim of an identity whose count was put.
func (qs *Queues) Counted(t Transition) bool {
	return t.Before == nil && t.After.Status.Live() && qs.counts.of[t.After.Identity] != nil
}

// admit asks whether the caller may have one more claim in the queue.
func (q *Queue) admit(m Mode) error {
	caller := q.set.caller
	if caller.Admit == nil {
		return nil
	}
	var has Count
	if c := q.set.Counts()[caller.Identity]; c != nil {
		has = *c
	}
	if q.Waiting > 0 || !q.admits(m) {
		return caller.Admit(Waiting, has)
	}
	return caller.Admit(Active, has)
}
