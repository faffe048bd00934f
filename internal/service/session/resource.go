package session

import (
	"time"

	"github.com/locket-service/locket/internal/rules/claim"
)

// resource is a resource that the session holds or waits for, or has commands about.
type resource struct {
	name    string
	id      string // of the live claim, "" for none
	token   uint64
	version uint64 // of the last change that was sent, or omitted
	status  claim.Status
	units   claim.Units
	work    *work // nil: no commands
}

// work is the queue of commands about a resource. The first one is running.
type work struct {
	commands []Command
	about    string       // id of the claim that the first command makes or ends, which its answer tells; "" for none
	makes    bool         // whether it makes this claim
	renewed  bool         // whether it has made a claim, and renewed the session by that
	kept     *claim.Claim // the latest state of this claim that was not sent; or nil
	room     [1]Command   // of commands: most often there is one
}

func newWork() *work {
	w := new(work)
	w.commands = w.room[:0]
	return w
}

func (r *resource) holding() Holding {
	if r.id == "" {
		return None
	}
	return holdingOf(r.status)
}

// knows reports whether a claim is the resource's live claim, or is being made by a command. Other claims have ended,
// and changes of them are old.
func (r *resource) knows(id string) bool {
	return r != nil && (r.id == id || r.work != nil && r.work.about == id)
}

// keeps reports whether the answer to the running command will report a change of a claim.
func (r *resource) keeps(c *claim.Claim) bool {
	return r.work != nil && r.work.about == c.ID && (r.id != c.ID || c.Status.Final())
}

// conclude ends the tracking of the running command's claim. It returns a state that the answer did not report, or
// nil.
func (a *Attached) conclude(r *resource) (kept *claim.Claim) {
	kept = r.work.kept
	if r.work.makes {
		a.making--
	}
	r.work.about, r.work.makes, r.work.renewed, r.work.kept = "", false, false, nil
	return kept
}

// omit skips the claim that the running command has made: it has ended, and is not reported to the client.
func (a *Attached) omit(r *resource, c *claim.Claim) {
	r.version = max(r.version, c.Version)
	a.conclude(r)
}

// resource returns the entry of a resource, and adds one if there is none.
func (a *Attached) resource(name string) *resource {
	r := a.resources[name]
	if r == nil {
		r = &resource{name: name}
		a.resources[name] = r
	}
	return r
}

// forget removes the entry of a resource without claim and commands. It stays while claims are being read, because the
// read may have started before the claim ended.
func (a *Attached) forget(r *resource) {
	if r.id == "" && r.work == nil && !a.reading {
		delete(a.resources, r.name)
	}
}

// set stores the current state of a claim of the session.
func (a *Attached) set(r *resource, c *claim.Claim) {
	before := r.holding()
	r.id, r.version, r.status, r.units, r.token = "", c.Version, c.Status, c.Units, c.Token
	if c.Status.Live() {
		r.id = c.ID
	}
	a.count(before, -1)
	a.count(r.holding(), 1)
}

// count counts claims until the session ends here, which may happen in the middle of an event.
func (a *Attached) count(h Holding, n int) {
	if a.err != nil {
		return
	}
	switch h {
	case Held:
		a.holding += n
		a.m.holding.Add(int64(n))
	case Waiting:
		a.waiting += n
		a.m.waiting.Add(int64(n))
	}
}

// Changed implements watch.SessionListener. The change may be old, or a repetition.
func (a *Attached) Changed(t claim.Transition) {
	a.mu.Lock()
	defer a.mu.Unlock()
	c := t.After
	switch r := a.resources[c.Resource]; {
	case a.err != nil:
	case r.knows(c.ID):
		a.learn(r, c)
	case a.reading, t.Before == nil && c.Status.Live():
		// It may be a claim that an older stream made by a commit with an unknown outcome.
		a.reconcile()
	}
}

// learn applies the state of the resource's claim, and reports the change to the client.
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
			a.ask(false) // the session itself may have ended
		}
	}
	a.forget(r)
}
