package history_test

import (
	"errors"
	"fmt"
	"time"

	"pgregory.net/rapid"

	"github.com/locket-service/locket/claim"
	"github.com/locket-service/locket/tests/history"
)

// entry is an operation before it is one of porcupine's, so that its answer can be changed.
type entry struct {
	call, end int64
	request   history.Request
	answer    out
}

func operations(entries []entry) (all ops) {
	for _, e := range entries {
		all = append(all, history.Operation(e.call, e.end, e.request, e.answer))
	}
	return all
}

// server runs the rules of package claim as a real one does: by its clock, with leases that
// run out by themselves. What it answers is the history.
type server struct {
	t       *rapid.T
	queues  *claim.Queues
	queue   *claim.Queue
	now     claim.Time // since the clients' clocks began
	ids     []string
	status  map[string]claim.Status
	entries []entry
}

// clockStart is the server's clock when the clients' begins.
const clockStart = 1_700_000_000_000_000

// runServer carries out random requests, and reads all claims at the end.
func runServer(t *rapid.T) []entry {
	s := &server{
		t: t, queues: claim.NewQueues(claim.Instant{}, 1), queue: claim.NewQueue(claim.Row{Resource: "k"}, 0, nil),
		status: make(map[string]claim.Status),
	}
	s.queues.Put(s.queue)
	for range rapid.IntRange(5, 30).Draw(t, "requests") {
		s.now += claim.Time(rapid.SampledFrom([]int{0, 1, 100, 10_000, 400_000, 1_000_000}).Draw(t, "pause"))
		s.request()
	}
	s.now += 1_000_000
	for _, id := range s.ids {
		s.now++
		s.carryOut(history.Read("k", id), nil)
	}
	return s.entries
}

var requests = []string{
	"create", "create", "try", "acquire", "acquire", "renew by token", "release", "renew", "end", "end", "set status",
	"activate", "read", "sweep",
}

// request makes up a request, and carries it out.
func (s *server) request() {
	id := rapid.SampledFrom(append([]string{"nobody"}, s.ids...)).Draw(s.t, "id")
	owner := "owner of " + id
	if c := s.queue.Find(id); c != nil {
		owner = c.Owner
	}
	lease := rapid.SampledFrom([]time.Duration{300 * time.Millisecond, ttl, time.Hour}).Draw(s.t, "ttl")
	mode := rapid.SampledFrom([]claim.Mode{exclusive, shared}).Draw(s.t, "mode")
	switch rapid.SampledFrom(requests).Draw(s.t, "request") {
	case "create":
		id = s.newID()
		s.carryOut(history.Create("k", id, mode, lease), claim.Create{ID: id, Resource: "k", Owner: id, Mode: mode, TTL: lease})
	case "try":
		id = s.newID()
		s.carryOut(history.Try("k", id, mode, lease), claim.Create{ID: id, Resource: "k", Owner: id, Mode: mode, TTL: lease, NoWait: true})
	case "acquire":
		if id = s.newID(); owner == "owner of nobody" {
			owner = "owner of " + id
		}
		s.carryOut(history.Acquire("k", id, owner, lease), claim.Acquire{ID: id, Resource: "k", Owner: owner, Type: claim.Lock, TTL: lease})
	case "renew by token":
		if token := s.seenToken(id); token != 0 {
			s.carryOut(history.Reacquire("k", id, owner, token, lease), claim.Acquire{ID: id, Resource: "k", Owner: owner, Type: claim.Lock, TTL: lease, Token: token})
		}
	case "release":
		token := s.seenToken(id)
		s.carryOut(history.Release("k", id, owner, token), claim.Release{Resource: "k", Owner: owner, Token: token})
	case "renew":
		s.carryOut(history.Renew("k", id, lease), claim.Renew{ID: id, TTL: lease})
	case "end":
		s.carryOut(history.End("k", id), claim.End{ID: id})
	case "set status":
		s.carryOut(history.SetStatus("k", id, claim.Aborted), claim.SetStatus{ID: id, Status: claim.Aborted})
	case "activate":
		s.carryOut(history.Activate("k", id), claim.Activate{ID: id})
	case "read":
		s.carryOut(history.Read("k", id), nil)
	case "sweep":
		_, _ = s.do(claim.Expire{Resources: []string{"k"}})
	}
}

func (s *server) newID() string {
	s.ids = append(s.ids, fmt.Sprint("claim ", len(s.ids)))
	return s.ids[len(s.ids)-1]
}

// seenToken returns the token of a claim if a client can have seen it by now.
func (s *server) seenToken(id string) uint64 {
	for _, e := range s.entries {
		if e.request.ID == id && e.answer.Refused == 0 && e.end < int64(s.now)*1000-slowest {
			return e.answer.Token
		}
	}
	return 0
}

// do carries out a command, and notes which leases have ended by it.
func (s *server) do(cmd claim.Command) (*claim.Claim, error) {
	s.queues.Now = claim.Instant{Wall: clockStart + s.now, Lease: clockStart + s.now}
	c, err := s.queues.Do(cmd)
	for _, id := range s.ids {
		known := s.queue.Find(id)
		if known == nil {
			continue
		}
		if known.Status == claim.Expired && s.status[id] != claim.Expired {
			s.note(history.Expire("k", id), out{})
		}
		s.status[id] = known.Status
	}
	return c, err
}

// carryOut sends a request to the server, and notes the answer. A read has no command.
func (s *server) carryOut(request history.Request, cmd claim.Command) {
	var c *claim.Claim
	err := claim.ErrNotFound
	if cmd != nil {
		c, err = s.do(cmd)
	} else if found := s.queue.Find(request.ID); found != nil {
		c, err = found, nil
	}
	s.note(request, answerOf(c, err))
}

func answerOf(c *claim.Claim, err error) out {
	collision, transition := new(claim.CollisionError), new(claim.TransitionError)
	switch {
	case err == nil:
		return out{Status: c.Status, Token: c.Token, Version: c.Version}
	case errors.Is(err, claim.ErrNotFound):
		return out{Refused: history.NotFound}
	case errors.Is(err, claim.ErrContention):
		return out{Refused: history.Contention}
	case errors.As(err, &collision) && collision.Holder == nil:
		return out{Refused: history.Collision}
	case errors.As(err, &collision):
		return out{Refused: history.Collision, Holder: collision.Holder.Owner, Token: collision.Holder.Token}
	case errors.As(err, &transition):
		return out{Refused: history.Transition}
	default:
		panic(err)
	}
}

// slowest is how long a request or its answer is under way at most, in nanoseconds.
const slowest = 15_000_000

// note writes down an operation that took effect now, with some time before and after.
func (s *server) note(request history.Request, answer out) {
	delay := rapid.SampledFrom([]int64{0, 500, 50_000, slowest})
	now := int64(s.now) * 1000
	s.entries = append(s.entries, entry{now - delay.Draw(s.t, "before"), now + delay.Draw(s.t, "after"), request, answer})
}
