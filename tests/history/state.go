package history

import (
	"errors"
	"math"
	"slices"

	"github.com/locket-service/locket/internal/rules/claim"
)

// This file is where a resource meets the rules.

// never is a deadline that no operation reaches, due one that has always passed. A lease runs out when the witness
// says so. Every other command runs while no lease has run out.
const (
	never claim.Time = math.MaxInt64
	due   claim.Time = 1
)

// Every session is attached to anyServer: an answered request was at the right server.
const anyServer = "server"

// state is a resource after some of its changes.
type state struct {
	row   claim.Row
	live  []*claim.Claim          // in the order of the queue; they are never changed
	ended map[string]*claim.Claim // by id
	last  map[string]*claim.Claim // of those, the last one of each session
	// the last change cannot have been before now.
	now claim.Time
}

func newState(resource string) state {
	return state{row: claim.Row{Resource: resource}, ended: make(map[string]*claim.Claim), last: make(map[string]*claim.Claim)}
}

// outcome is the result of a command, before it changes the state.
type outcome struct {
	claim  *claim.Claim
	err    error
	queues *claim.Queues // nil for a command that changes nothing
	now    claim.Time    // when it was carried out, at the earliest
}

// try carries out a request by the rules. A claim whose id the server chose gets this one. The wall
// clock gives the versions of changes; over has the claims that ended by now without a request.
func (s *state) try(op *Operation, id string, wall claim.Time, over map[string]bool) (o outcome) {
	o.now = max(micros(op.Call), s.now)
	if op.Session != "" {
		return s.trySession(op, id, wall, over, o)
	}
	if op.special == read {
		o.claim, o.err = s.find(op.ID)
		return o
	}
	return s.do(op.named(id), op.ID, wall, over, o)
}

// trySession carries out an operation of a session. If the session has nothing to do with the resource, the claim is
// nil; otherwise it is the session's current or last claim.
func (s *state) trySession(op *Operation, id string, wall claim.Time, over map[string]bool, o outcome) outcome {
	mine := s.of(op.Session)
	o.claim = mine
	switch op.special {
	case lock:
		if mine == nil {
			return s.do(op.named(id), id, wall, over, o)
		}
	case unlock:
		if mine != nil {
			return s.do(claim.End{ID: mine.ID}, mine.ID, wall, over, o)
		}
		o.claim = s.last[op.Session]
	case unlockAll, closing, lapse:
		end := claim.EndSession{ID: op.Session, Active: claim.Released, Waiting: claim.Withdrawn, Keep: op.special == unlockAll}
		if op.special == lapse {
			end.Active, end.Waiting = claim.Expired, claim.Aborted
		}
		o = s.do(end, "", wall, over, o)
		if o.claim = s.last[op.Session]; mine != nil {
			o.claim = o.queues.Resource(mine.Resource).Find(mine.ID)
		}
	}
	return o
}

func (s *state) do(cmd claim.Command, id string, wall claim.Time, over map[string]bool, o outcome) outcome {
	o.queues = s.queues(claim.Instant{Wall: wall, Lease: o.now}, id, over)
	if create, ok := cmd.(claim.Create); ok && create.Session != "" {
		o.queues.PutSession(session(create.Session))
	}
	o.claim, o.err = o.queues.Do(cmd)
	return o
}

// queues returns the resource's queue as a transaction would have read it: all live claims, that
// with the id, and the sessions.
func (s *state) queues(now claim.Instant, id string, over map[string]bool) *claim.Queues {
	var waiters []*claim.Claim
	queues := claim.NewQueues(now, 1)
	queues.Put(claim.NewQueue(s.row, 0, func(string, uint64) (next []*claim.Claim, err error) {
		next, waiters = waiters, nil
		return next, nil
	}))
	for _, c := range s.live {
		read := *c
		switch {
		case c.Status == claim.Waiting && c.WaitTTL == 0: // it waits for ever
		case over[c.ID]:
			read.Deadline = due
		default:
			read.Deadline = never
		}
		if c.Status == claim.Waiting {
			waiters = append(waiters, &read)
		}
		queues.Add(&read)
		if c.Session != "" {
			queues.PutSession(session(c.Session), c.ID)
		}
	}
	if c := s.ended[id]; c != nil {
		queues.Add(c)
	}
	return queues
}

func session(id string) claim.Session {
	return claim.Session{ID: id, Server: anyServer, Deadline: never}
}

// take adopts the result of a command as the state. Unless versions is set, the versions of renewed claims are not
// compared: only events show the version of a renewal.
func (s *state) take(o outcome, versions bool) {
	if o.queues == nil {
		return
	}
	if row := o.queues.Resource(s.row.Resource).Row; versions {
		s.row = row
	}
	for _, change := range o.queues.Changes() {
		after := *change.After
		at := slices.IndexFunc(s.live, func(c *claim.Claim) bool { return c.ID == after.ID })
		switch {
		case at < 0:
		case after.Deadline == never: // not renewed
			after.Deadline = s.live[at].Deadline
		case s.live[at].Status == claim.Waiting && after.Status == claim.Active && after.WaitTTL != 0:
			after.Deadline = min(after.Deadline, s.live[at].Deadline) // it was granted unasked
		}
		if !versions {
			after.Version = s.live[at].Version
		}
		switch live := after.Status.Live(); {
		case at >= 0 && live:
			s.live[at] = &after
		case live:
			s.live = append(s.live, &after)
		default:
			s.ended[after.ID], s.last[after.Session] = &after, &after
			if at >= 0 {
				s.live = slices.Delete(s.live, at, at+1)
			}
		}
	}
}

// asked records a question about a waiting claim. The rules extend its wait when an eighth of the wait TTL has passed,
// so at least the rest of it is left. After a refusal that a claim which has ended gets too, nobody knows that it waited.
func (s *state) asked(op *Operation, now claim.Time) {
	if op.Refused == Transition {
		return
	}
	for i, c := range s.live {
		if c.ID != op.ID || c.Status != claim.Waiting || c.WaitTTL == 0 {
			continue
		}
		left := c.WaitTTL - c.WaitTTL/8
		if _, ok := op.command.(claim.KeepWaiting); ok {
			left = c.WaitTTL
		}
		kept := *c
		kept.Deadline = max(c.Deadline, now.Add(left))
		s.live[i] = &kept
	}
}

// of returns the live claim of a session, nil if it has none.
func (s *state) of(session string) *claim.Claim {
	for _, c := range s.live {
		if c.Session == session {
			return c
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
	if c := s.ended[id]; c != nil {
		return c, nil
	}
	return nil, claim.ErrNotFound
}

// answers reports whether a client can have got the answer.
func (o outcome) answers(op *Operation) bool {
	c := o.claim
	switch {
	case op.Unknown:
		return true
	case o.err != nil:
		return refuses(op, o.err)
	case op.Refused != 0:
		return false
	case c == nil: // the session has nothing to do with the resource, or it was not shown
		return op.Status == 0 && op.Version == 0
	case op.None:
		return c.Status.Final()
	}
	return shows(op, c)
}

// refuses reports whether the answer is that refusal.
func refuses(op *Operation, err error) bool {
	reason, holder := refusal(err)
	switch {
	case reason != op.Refused:
		return false
	case reason != Collision:
		return true
	case holder == nil && op.Session != "":
		return true // it is shown one of the shared holders
	case holder == nil:
		return op.Holder == "" && op.Token == 0
	}
	return holder.Owner == op.Holder && (op.Token == 0 || holder.Token == op.Token)
}

// shows reports whether the answer matches the claim.
func shows(op *Operation, c *claim.Claim) bool {
	switch out := op.Output; {
	case out.Status != 0 && out.Status != c.Status:
		return false
	case out.Token == 0 && c.Token != 0 && (out.Status == claim.Active || out.Version != 0 && op.Session == ""):
		return false
	case out.Token != 0 && c.Token != out.Token:
		return false
	}
	return op.Version == 0 || c.Version == op.Version
}

// refusal returns why the rules refuse, and the holder that they name.
func refusal(err error) (Refusal, *claim.Claim) {
	collision, transition := new(claim.CollisionError), new(claim.TransitionError)
	switch {
	case errors.Is(err, claim.ErrNotFound):
		return NotFound, nil
	case errors.Is(err, claim.ErrIDTaken):
		return IDTaken, nil
	case errors.Is(err, claim.ErrContention):
		return Contention, nil
	case errors.As(err, &collision):
		return Collision, collision.Holder
	case errors.As(err, &transition):
		return Transition, nil
	default:
		return 0, nil
	}
}
