package history

import (
	"slices"

	"github.com/locket-service/locket/claim"
)

// state is one resource after some operations. It is a value: what its pointers lead to
// is never changed, so that a copy is a state of its own.
type state struct {
	row   claim.Row
	live  []*claim.Claim // in the order in which they came
	ended *ended
	shown *shown
	over  *names // the sessions that have ended
	// now is a moment before which the last operation cannot have been, by the leases that
	// had run out by then.
	now claim.Time
}

// ended is a list of the claims that have ended, the last one first.
type ended struct {
	claim  *claim.Claim
	before *ended
}

func (e *ended) find(id string) *claim.Claim {
	for ; e != nil; e = e.before {
		if e.claim.ID == id {
			return e.claim
		}
	}
	return nil
}

func (s *state) find(id string) (*claim.Claim, error) {
	for _, c := range s.live {
		if c.ID == id {
			return c, nil
		}
	}
	if c := s.ended.find(id); c != nil {
		return c, nil
	}
	return nil, claim.ErrNotFound
}

// step carries out an operation, and reports whether the rules explain the answer.
func (s *state) step(in Input, out Output) bool {
	c, err := s.run(in)
	switch {
	case c == nil && err == nil && !out.Unknown && (out.Status != 0 || out.Refused != 0):
		return false
	case s.now > in.end:
		return false // a lease ran out before its time
	case out.Unknown:
		return true
	case err != nil:
		return s.refuses(in, err, out)
	}
	switch {
	case out.Refused != 0:
		return false
	case c == nil:
		return true // the session has nothing to do with the resource, or it was not shown
	case out.None:
		return c.Status.Final()
	}
	return s.shows(c, out)
}

// refuses reports whether the answer is that refusal.
func (s *state) refuses(in Input, err error, out Output) bool {
	reason, holder := refusal(err)
	switch {
	case reason != out.Refused:
		return false
	case reason != Collision:
		return true
	case holder == nil && in.Session != "":
		return true // it is shown one of those that share the resource
	case holder == nil:
		return out.Holder == "" && out.Token == 0
	}
	return holder.Owner == out.Holder && (out.Token == 0 || s.show(holder.Token, out.Token))
}

// shows reports whether the answer can be about the claim as it is.
func (s *state) shows(c *claim.Claim, out Output) bool {
	switch {
	case out.Status != 0 && out.Status != c.Status:
		return false
	case out.Token == 0 && c.Token != 0 && (out.Status == claim.Active || out.Version != 0):
		return false
	case out.Token != 0 && (c.Token == 0 || !s.show(c.Token, out.Token)):
		return false
	}
	return out.Version == 0 || s.show(c.Version, out.Version)
}

// show notes that a version of the rules was shown as another one, and reports whether it
// can be.
func (s *state) show(counted, as uint64) (ok bool) {
	s.shown, ok = s.shown.note(counted, as)
	return ok
}

func equal(a, b state) bool {
	return a.row == b.row && a.now == b.now && a.over.equal(b.over) && slices.EqualFunc(a.live, b.live, sameClaim) &&
		a.ended.equal(b.ended) && a.shown.equal(b.shown)
}

func (e *ended) equal(other *ended) bool {
	for ; e != other; e, other = e.before, other.before {
		if e == nil || other == nil || !sameClaim(e.claim, other.claim) {
			return false
		}
	}
	return true
}
