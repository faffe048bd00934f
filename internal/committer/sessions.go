package committer

import (
	"context"
	"time"
)

// Sessions are the sessions of this server, which its beats keep alive. The methods are called on the goroutine
// that commits, so they must be quick.
type Sessions interface {
	// Any reports whether there are sessions: then beats go on, lease or not.
	Any() bool
	// Beaten is called after each beat, with the time at which it began. lost says that the beat kept no
	// session alive: another server has declared this one gone (db.ErrServerGone).
	Beaten(began time.Time, lost bool)
}

// SetSessions is to be called before Run.
func (c *Committer) SetSessions(s Sessions) { c.sessions = s }

func (c *Committer) hasSessions() bool { return c.sessions != nil && c.sessions.Any() }

func (c *Committer) beaten(began time.Time, lost bool) {
	if c.sessions != nil {
		c.sessions.Beaten(began, lost)
	}
}

// Register has the beats of this server keep sessions alive under a name from now on: see db.Pulse.
func (c *Committer) Register(ctx context.Context, name string) error {
	c.pulse.Lock()
	defer c.pulse.Unlock()
	return c.store.Register(ctx, name)
}
