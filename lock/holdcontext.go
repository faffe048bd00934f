package lock

import "context"

// holdContext is a context that is done when the one in it is, or when a lock is no longer held. Err and Done read the clock,
// as Hold.Err does, so they are right before any timer has run. A context with an end of its own that is made of
// it, by context.WithCancel and the like, ends with it, but reads no clock.
type holdContext struct {
	context.Context
	cancel context.CancelCauseFunc // of the Context
	hold   *Hold
}

// newHoldContext returns a context with the values, and the end, of another one. Somebody is to call its cancel.
func newHoldContext(ctx context.Context, hold *Hold) *holdContext {
	c := &holdContext{hold: hold}
	c.Context, c.cancel = context.WithCancelCause(ctx)
	return c
}

// look ends the context if the lock is no longer held. The session's lock is free then: the contexts above this one may look too.
func (c *holdContext) look() {
	if err := c.hold.Err(); err != nil {
		c.cancel(err)
	}
}

// Done implements context.Context.
func (c *holdContext) Done() <-chan struct{} {
	c.look()
	return c.Context.Done()
}

// Err implements context.Context.
func (c *holdContext) Err() error {
	c.look()
	return c.Context.Err()
}
