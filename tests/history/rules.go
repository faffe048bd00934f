package history

import (
	"errors"
	"math"
	"slices"

	"github.com/locket-service/locket/claim"
)

// This file is where the state of a resource meets the rules.

// never is a deadline that no operation reaches. A lease has run out when the history says
// so by an Expire: every other command is carried out while none has.
const never claim.Time = math.MaxInt64

// noToken is one that was never given.
const noToken = math.MaxUint64

// command returns the command of a request, with the token as the rules count it. The sweep
// carries out an expiry.
func (s *state) command(r Request) claim.Command {
	token := uint64(0)
	if r.token != 0 {
		token = s.shown.find(r.token)
	}
	switch cmd := r.command.(type) {
	case nil:
		return claim.Expire{Resources: []string{r.Resource}, Waiters: []string{r.ID}}
	case claim.Acquire:
		cmd.Token = token
		return cmd
	case claim.Release:
		cmd.Token = token
		return cmd
	default:
		return cmd
	}
}

// run carries out a request by the rules, and changes the state as they do. It returns the
// claim that they answer with.
func (s *state) run(in Input) (*claim.Claim, error) {
	switch {
	case in.Session != "":
		return s.runSession(in)
	case in.special == read:
		return s.find(in.ID)
	}
	now := claim.Instant{Lease: max(in.call, s.now)}
	if in.special == expire {
		c, err := s.find(in.ID)
		switch {
		case err != nil:
			return nil, err
		case c.Status != claim.Active && (c.Status != claim.Waiting || c.WaitTTL == 0), c.Session != "":
			return nil, &claim.TransitionError{From: c.Status, To: claim.Expired}
		}
		now.Lease = max(now.Lease, c.Deadline)
		s.now = now.Lease
	}
	queues := s.queues(in, now)
	c, err := queues.Do(s.command(in.Request))
	s.take(queues, in.Resource)
	s.asked(in, now)
	if in.special == expire {
		return s.find(in.ID)
	}
	return c, err
}

// queues returns the resource's queue as a transaction would have read it: all live claims,
// and the one that the request names.
func (s *state) queues(in Input, now claim.Instant) *claim.Queues {
	row := s.row
	row.Resource = in.Resource
	var waiters []*claim.Claim
	queues := claim.NewQueues(now, 1)
	queues.Put(claim.NewQueue(row, 0, func(string, uint64) (next []*claim.Claim, err error) {
		next, waiters = waiters, nil
		return next, nil
	}))
	for _, c := range s.live {
		read := *c
		if (c.Status == claim.Active || c.WaitTTL != 0) && (c.ID != in.ID || in.special != expire) {
			read.Deadline = never
		}
		if c.Status == claim.Waiting {
			waiters = append(waiters, &read)
		}
		queues.Add(&read)
	}
	if c := s.ended.find(in.ID); c != nil {
		queues.Add(c)
	}
	return queues
}

// take makes what the rules have left the state. States before this one keep their claims.
func (s *state) take(queues *claim.Queues, resource string) {
	s.row = queues.Resource(resource).Row
	s.live = slices.Clone(s.live)
	for _, change := range queues.Changes() {
		after := *change.After
		at := slices.IndexFunc(s.live, func(c *claim.Claim) bool { return c.ID == after.ID })
		switch {
		case at < 0:
		case after.Deadline == never: // not renewed
			after.Deadline = s.live[at].Deadline
		case s.live[at].Status == claim.Waiting && after.Status == claim.Active && after.WaitTTL != 0:
			after.Deadline = min(after.Deadline, s.live[at].Deadline) // it was granted unasked
		}
		switch live := after.Status.Live(); {
		case at >= 0 && live:
			s.live[at] = &after
		case live:
			s.live = append(s.live, &after)
		default:
			if at >= 0 {
				s.live = slices.Delete(s.live, at, at+1)
			}
			if after.Session == "" { // what a session had is not asked for by its id
				s.ended = &ended{claim: &after, before: s.ended}
			}
		}
	}
}

// asked notes that a claim that waits was asked about. The rules move the end of its wait on when half of
// the wait TTL has passed, so at least that much is left.
func (s *state) asked(in Input, now claim.Instant) {
	for i, c := range s.live {
		if c.ID != in.ID || c.Status != claim.Waiting || c.WaitTTL == 0 || in.special == expire {
			continue
		}
		left := c.WaitTTL / 2
		if _, ok := in.command.(claim.KeepWaiting); ok {
			left = c.WaitTTL
		}
		kept := *c
		kept.Deadline = max(c.Deadline, now.Lease.Add(left))
		s.live[i] = &kept
	}
}

// sameClaim reports whether two states of one claim are the same to the rules. What its
// request says for good is not looked at.
func sameClaim(a, b *claim.Claim) bool {
	return a == b || a.ID == b.ID && a.Status == b.Status && a.Token == b.Token &&
		a.Version == b.Version && a.Deadline == b.Deadline && a.TTL == b.TTL
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
	case errors.Is(err, claim.ErrSessionEnded):
		return SessionEnded, nil
	case errors.As(err, &collision):
		return Collision, collision.Holder
	case errors.As(err, &transition):
		return Transition, nil
	default:
		return 0, nil
	}
}
