package session

import (
	"time"

	"github.com/locket-service/locket/internal/claim"
)

// resource is one that the session holds or waits for, or has commands about.
type resource struct {
	name    string
	id      string // of the live claim, "" for none
	token   uint64
	version uint64 // of the last change that was told, or left out
	status  claim.Status
	mode    claim.Mode
	work    *work // nil: no commands
}

// work are the commands about a resource. The first is under way.
type work struct {
	commands []Command
	about    string       // the claim that the first makes or ends, as its answer will tell; "" for none
	makes    bool         // whether it makes it
	kept     *claim.Claim // the last that is known of that claim and was not told; nil for nothing
}

func (r *resource) holding() Holding {
	if r.id == "" {
		return None
	}
	return holdingOf(r.status)
}

// knows reports whether a claim is the resource's, or is being made. The session has no other there: those
// that it had have ended, and whatever is heard of them is old.
func (r *resource) knows(id string) bool {
	return r != nil && (r.id == id || r.work != nil && r.work.about == id)
}

// keeps reports whether the answer to the command under way tells a change of a claim.
func (r *resource) keeps(c *claim.Claim) bool {
	return r.work != nil && r.work.about == c.ID && (r.id != c.ID || c.Status.Final())
}

// conclude ends what the command under way is about. It returns what its answer did not tell, nil for nothing.
func (a *Attached) conclude(r *resource) (kept *claim.Claim) {
	kept = r.work.kept
	if r.work.makes {
		a.making--
	}
	r.work.about, r.work.makes, r.work.kept = "", false, nil
	return kept
}

// omit leaves out the claim that the command under way has made: it has ended, and nothing of it is to be told.
func (a *Attached) omit(r *resource, c *claim.Claim) {
	r.version = max(r.version, c.Version)
	a.conclude(r)
}

// resource returns what is known of a resource, which may be nothing.
func (a *Attached) resource(name string) *resource {
	r := a.resources[name]
	if r == nil {
		r = &resource{name: name}
		a.resources[name] = r
	}
	return r
}

// forget drops a resource about which there is nothing to know. While claims are being read it stays: the
// read may have begun before its claim ended.
func (a *Attached) forget(r *resource) {
	if r.id == "" && r.work == nil && !a.reading {
		delete(a.resources, r.name)
	}
}

// set notes a claim of the session as it is now.
func (a *Attached) set(r *resource, c *claim.Claim) {
	before := r.holding()
	r.id, r.version, r.status, r.mode, r.token = "", c.Version, c.Status, c.Mode, c.Token
	if c.Status.Live() {
		r.id = c.ID
	}
	a.count(before, -1)
	a.count(r.holding(), 1)
}

func (a *Attached) count(h Holding, n int) {
	switch h {
	case Held:
		a.holding += n
		a.m.holding.Add(int64(n))
	case Waiting:
		before := a.waiting
		a.waiting += n
		a.m.waiting.Add(int64(n))
		switch {
		case before == 0 && a.waiting > 0:
			a.m.hub.SessionsWait(1)
		case before > 0 && a.waiting == 0:
			a.m.hub.SessionsWait(-1)
		}
	}
}

// Changed implements watch.SessionListener.
func (a *Attached) Changed(t claim.Transition) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.err != nil:
	case a.loading:
		a.early = append(a.early, t)
	default:
		a.changed(t)
	}
}

// changed takes in one change of a claim, from any source: it may be old, or have come before.
func (a *Attached) changed(t claim.Transition) {
	c := t.After
	switch r := a.resources[c.Resource]; {
	case r.knows(c.ID):
		a.learn(r, c)
	case a.reading, t.Before == nil && c.Status.Live():
		// It may be a claim that was made over an older stream, by a commit whose outcome was not known.
		a.reconcile()
	}
}

// learn takes in how a claim is that the resource knows, and tells it.
func (a *Attached) learn(r *resource, c *claim.Claim) {
	switch {
	case c.Version <= r.version:
		return
	case r.keeps(c):
		if r.work.kept == nil || c.Version > r.work.kept.Version {
			r.work.kept = c
		}
		return
	}
	previous, token := r.holding(), r.token
	a.set(r, c)
	if s := standing(previous, c); s.Previous != s.Current || s.Current == Held && s.Token != token {
		e := Event{Standing: &s}
		if s.Previous == Waiting && s.Current == Held {
			e.granted = time.Now()
		}
		a.send(e)
		if c.Status.Final() && a.barrier == nil {
			a.ask(false) // the session itself may have been ended
		}
	}
	a.forget(r)
}
