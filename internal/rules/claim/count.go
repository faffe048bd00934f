package claim

// Count is how many live claims there are of something.
type Count struct{ Active, Waiting int }

// Add counts what a transition changes.
func (c *Count) Add(t Transition) {
	if t.Before != nil {
		c.add(t.Before.Status, -1)
	}
	c.add(t.After.Status, 1)
}

// Without returns the count without one claim of a status.
func (c Count) Without(s Status) Count {
	c.add(s, -1)
	return c
}

func (c *Count) add(s Status, n int) {
	switch s {
	case Active:
		c.Active += n
	case Waiting:
		c.Waiting += n
	}
}
