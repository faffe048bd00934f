package committer

import (
	"context"
	"time"
)

// Sessions are the sessions of this server, which its beats keep alive.
type Sessions interface {
	// Any reports whether there are sessions. Then the committer beats even without leases. It is called on the
	// goroutine that commits, and must be quick.
	Any() bool
	// Beaten is called after each beat, not on the committing goroutine, with the time when the beat began. lost says that
	// the beat kept no session alive under the name that Registered returned until then: another
	// server has declared this one gone (db.ErrServerGone).
	Beaten(began time.Time, lost bool)
}

// SetSessions must be called before Run.
func (c *Committer) SetSessions(s Sessions) { c.sessions = s }

func (c *Committer) hasSessions() bool { return c.sessions != nil && c.sessions.Any() }

// maxBeats is how many calls of Beaten may be pending. Further ones are dropped: a later call has the same effect.
const maxBeats = 64

func (c *Committer) beaten(began time.Time, lost bool) {
	switch tell := func() { c.sessions.Beaten(began, lost) }; {
	case c.sessions == nil:
	case lost:
		c.beats.Put(tell)
	default:
		c.beats.Offer(tell)
	}
}

// Register makes the beats of this server keep sessions alive under a name: see db.Pulse. It may take a while, during
// which beats continue.
func (c *Committer) Register(ctx context.Context, name string) error {
	c.registered.Store(nil)
	err := c.store.Register(ctx, name)
	if err == nil {
		c.registered.Store(&name)
	}
	return err
}

// Registered returns the name of the last Register; "" before it, and after a beat has found that this server was
// declared gone. Each transaction after a rest begins with a beat.
func (c *Committer) Registered() string {
	if name := c.registered.Load(); name != nil {
		return *name
	}
	return ""
}
