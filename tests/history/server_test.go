package history_test

import (
	"errors"
	"fmt"
	"time"

	"pgregory.net/rapid"

	"github.com/locket-service/locket/internal/rules/claim"
	"github.com/locket-service/locket/tests/history"
)

// server runs the rules of package claim as a real one does: by its clock, with leases that run out by themselves,
// sessions that lapse, and watches. Its answers and events are the history.
type server struct {
	t        *rapid.T
	queues   *claim.Queues
	now      claim.Time // since the clients' clocks began
	ids      []string
	sessions map[string]*client
	watches  []*history.Watch
	seen     int // of the transitions
	run
}

// run is the history of a server.
type run struct {
	ops     ops
	stored  []claim.Claim
	streams []*history.Stream
	watches []*history.Watch
}

func (r run) check() error {
	if err := history.Check(r.stored, r.ops); err != nil {
		return err
	}
	for _, s := range r.streams {
		if err := history.CheckStream(r.stored, s); err != nil {
			return err
		}
	}
	for _, w := range r.watches {
		if err := history.CheckWatch(r.stored, w); err != nil {
			return err
		}
	}
	return nil
}

// client is a session.
type client struct {
	*history.Stream
	trusted int64 // until when
	sent    int64 // its last command
}

// clockStart is the server's clock when the clients' begins.
const clockStart = 1_700_000_000_000_000

var resources = []string{"k", "l"}

// runServer carries out random requests, and reads all claims at the end.
func runServer(t *rapid.T) run {
	s := &server{t: t, queues: claim.NewQueues(claim.Instant{}, 1), sessions: make(map[string]*client)}
	for _, resource := range resources {
		s.queues.Put(claim.NewQueue(claim.Row{Resource: resource}, 0, nil))
	}
	s.watch()
	for range rapid.IntRange(5, 40).Draw(t, "requests") {
		s.now += claim.Time(rapid.SampledFrom([]int{0, 1, 100, 10_000, 400_000, 1_000_000}).Draw(t, "pause"))
		s.request()
	}
	s.now += 1_000_000
	for _, id := range s.ids {
		s.now++
		s.carryOut(history.Read(s.resourceOf(id), id), nil)
	}
	for _, id := range s.ids {
		if c := s.find(id); c != nil {
			s.stored = append(s.stored, *c)
		}
	}
	s.run.watches = s.watches
	return s.run
}

var requests = []string{
	"create", "create", "try", "acquire", "acquire", "renew by token", "release", "renew", "end", "end", "set status",
	"activate", "read", "sweep", "watch",
	"lock", "lock", "lock", "try lock", "unlock", "unlock", "unlock all", "close", "heartbeat", "lapse",
}

// request makes up a request, and carries it out.
func (s *server) request() {
	id := rapid.SampledFrom(append([]string{"nobody"}, s.ids...)).Draw(s.t, "id")
	k := s.resourceOf(id)
	owner := "owner of " + id
	if c := s.find(id); c != nil && c.Session == "" {
		owner = c.Owner
	}
	lease := rapid.SampledFrom([]time.Duration{300 * time.Millisecond, ttl, time.Hour}).Draw(s.t, "ttl")
	mode := rapid.SampledFrom([]claim.Units{exclusive, exclusive, shared}).Draw(s.t, "mode")
	switch what := rapid.SampledFrom(requests).Draw(s.t, "request"); what {
	case "create", "try":
		id, k = s.newID(), rapid.SampledFrom(resources).Draw(s.t, "resource")
		cmd := claim.Create{ID: id, Resource: k, Owner: id, Units: mode, TTL: lease, NoWait: what == "try"}
		s.carryOut(history.CreateFor(cmd), cmd)
	case "acquire":
		if id = s.newID(); owner == "owner of nobody" {
			owner = "owner of " + id
		}
		s.carryOut(history.Acquire(k, owner, lease), claim.Acquire{ID: id, Resource: k, Owner: owner, Type: claim.Lock, TTL: lease})
	case "renew by token":
		if token := s.seenToken(id); token != 0 {
			s.carryOut(history.Reacquire(k, owner, token, lease), claim.Acquire{ID: id, Resource: k, Owner: owner, Type: claim.Lock, TTL: lease, Token: token})
		}
	case "release":
		token := s.seenToken(id)
		s.carryOut(history.Release(k, owner, token), claim.Release{Resource: k, Owner: owner, Token: token})
	case "renew":
		if c := s.find(id); c == nil || c.Session == "" {
			s.carryOut(history.Renew(k, id, lease), claim.Renew{ID: id, TTL: lease})
		}
	case "end":
		s.carryOut(history.End(k, id), claim.End{ID: id})
	case "set status":
		s.carryOut(history.SetStatus(k, id, claim.Aborted), claim.SetStatus{ID: id, Status: claim.Aborted})
	case "activate":
		s.carryOut(history.Activate(k, id, nil), claim.Activate{ID: id})
	case "read":
		s.carryOut(history.Read(k, id), nil)
	case "sweep":
		_, _ = s.do("", claim.Expire{Resources: resources})
	case "watch":
		s.watch()
	default:
		s.command(what, rapid.SampledFrom(resources).Draw(s.t, "resource"), mode)
	}
}

// command carries out a command of a session, which is opened if there is none of that name.
func (s *server) command(what, k string, mode claim.Units) {
	name := rapid.SampledFrom([]string{"s1", "s2", "s3"}).Draw(s.t, "session")
	c := s.sessions[name]
	if c == nil {
		session := fmt.Sprint(name, " ", len(s.streams))
		c = &client{Stream: &history.Stream{Session: session, Complete: true}}
		s.streams, s.sessions[name] = append(s.streams, c.Stream), c
		s.queues.PutSession(claim.Session{ID: session, Server: "here"})
		s.heard(c, history.Opened(session, ttl), out{})
		c.trusted = c.sent + int64(ttl)
	}
	end := claim.EndSession{ID: c.Session, Active: claim.Released, Waiting: claim.Withdrawn}
	switch what {
	case "lock", "try lock":
		s.lock(c, what, k, mode)
	case "unlock":
		s.unlock(c, k)
	case "unlock all":
		end.Keep = true
		s.endAll(c, end, history.UnlockAll)
	case "close":
		s.endAll(c, end, history.Close)
		s.heard(c, history.Closed(c.Session), out{})
		delete(s.sessions, name)
	case "heartbeat":
		s.heard(c, history.Heartbeat(c.Session, ttl), out{})
		c.trusted = c.sent + int64(ttl)
	case "lapse":
		if int64(s.now)*1000 > c.trusted {
			end.Active, end.Waiting = claim.Expired, claim.Aborted
			_, _ = s.do("", end)
			delete(s.sessions, name)
		}
	}
}

// endAll ends all claims of a session; it hears of their ends before the answer.
func (s *server) endAll(c *client, end claim.EndSession, request func(resource, session string) history.Request) {
	had := len(c.Reports)
	_, _ = s.do("", end)
	for _, k := range resources {
		answer := none
		for _, t := range c.Reports[had:] {
			if t.Resource == k {
				answer = out{Version: t.Version}
			}
		}
		s.heard(c, request(k, c.Session), answer)
	}
}

// mine returns a session's claim of a resource.
func (s *server) mine(c *client, k string) *claim.Claim {
	for _, id := range s.ids {
		if found := s.find(id); found != nil && found.Session == c.Session && found.Resource == k && found.Status.Live() {
			return found
		}
	}
	return nil
}

func (s *server) lock(c *client, what, k string, mode claim.Units) {
	request := history.Lock(k, c.Session, mode)
	if what == "try lock" {
		request = history.TryLock(k, c.Session, mode)
	}
	if mine := s.mine(c, k); mine != nil {
		c.Reports = append(c.Reports, reportOf(mine, mine, true))
		s.heard(c, request, answerOf(mine, nil))
		return
	}
	made, err := s.do(c.Session, claim.Create{
		ID: s.newID(), Resource: k, Owner: c.Session, Units: mode, NoWait: what == "try lock", Session: c.Session, Server: "here",
	})
	if err == nil {
		c.Reports = append(c.Reports, reportOf(nil, made, true))
	}
	s.heard(c, request, answerOf(made, err))
}

func (s *server) unlock(c *client, k string) {
	mine := s.mine(c, k)
	if mine == nil {
		c.Reports = append(c.Reports, history.Report{Resource: k, Answer: true})
		s.heard(c, history.Unlock(k, c.Session), none)
		return
	}
	ended, err := s.do(c.Session, claim.End{ID: mine.ID})
	if err == nil {
		c.Reports = append(c.Reports, reportOf(mine, ended, true))
	}
	s.heard(c, history.Unlock(k, c.Session), answerOf(ended, err))
}

// heard notes an answer to a session, which sends its commands one after the other.
func (s *server) heard(c *client, request history.Request, answer out) {
	op := s.timed(request, answer)
	op.Call = max(op.Call, c.sent)
	c.sent = op.Call
	s.ops = append(s.ops, op)
}

// reportOf is the report of a change to a session.
func reportOf(before, after *claim.Claim, answer bool) history.Report {
	t := history.Report{Resource: after.Resource, Claim: after.ID, Token: after.Token, Version: after.Version, Answer: answer}
	if after.Status.Live() {
		t.After = after.Status
	} else {
		t.Token = 0
	}
	if before != nil && before.Status.Live() {
		t.Before = before.Status
	}
	return t
}

// watch begins a watch, with the live claims.
func (s *server) watch() {
	w := &history.Watch{Name: fmt.Sprint(len(s.watches)), Quiet: true, Complete: true}
	if w.Synced = rapid.Bool().Draw(s.t, "a snapshot"); w.Synced {
		for _, id := range s.ids {
			if c := s.find(id); c != nil && c.Status.Live() {
				w.Had = append(w.Had, history.Report{Resource: c.Resource, Claim: c.ID, After: c.Status, Token: c.Token, Version: c.Version})
			}
		}
	}
	s.watches = append(s.watches, w)
}

func (s *server) newID() string {
	s.ids = append(s.ids, fmt.Sprint("claim ", len(s.ids)))
	return s.ids[len(s.ids)-1]
}

func (s *server) find(id string) *claim.Claim {
	for _, resource := range resources {
		if c := s.queues.Resource(resource).Find(id); c != nil {
			return c
		}
	}
	return nil
}

func (s *server) resourceOf(id string) string {
	if c := s.find(id); c != nil {
		return c.Resource
	}
	return "k"
}

// seenToken returns the token of a claim if a client can have seen it by now.
func (s *server) seenToken(id string) uint64 {
	c := s.find(id)
	for _, op := range s.ops {
		if c != nil && c.Token != 0 && op.Token == c.Token && op.Refused == 0 && op.Resource == c.Resource && op.Return < int64(s.now)*1000-slowest {
			return c.Token
		}
	}
	return 0
}

// do carries out a command, and reports the changes to the sessions and the watches. The requesting session learns
// them from the answer.
func (s *server) do(asked string, cmd claim.Command) (*claim.Claim, error) {
	s.queues.Now = claim.Instant{Wall: clockStart + s.now, Lease: clockStart + s.now}
	c, err := s.queues.Do(cmd)
	made := s.queues.Transitions()[s.seen:]
	for i, t := range made {
		before := claim.Status(0)
		if t.Before != nil {
			before = t.Before.Status
		}
		if before == t.After.Status {
			continue
		}
		for _, stream := range s.streams {
			if t.After.Session == stream.Session && asked != stream.Session {
				stream.Reports = append(stream.Reports, reportOf(t.Before, t.After, false))
			}
		}
		if before == 0 && i+1 < len(made) && made[i+1].Before == t.After {
			continue // it is granted at once
		}
		if i > 0 && made[i-1].Before == nil && made[i-1].After == t.Before {
			before = 0
		}
		for _, w := range s.watches {
			w.Reports = append(w.Reports, history.Report{
				Resource: t.After.Resource, Claim: t.After.ID, Before: before, After: t.After.Status, Token: t.After.Token, Version: t.After.Version,
			})
		}
	}
	s.seen = len(s.queues.Transitions())
	return c, err
}

// carryOut sends a request to the server, and notes the answer. A read has no command.
func (s *server) carryOut(request history.Request, cmd claim.Command) {
	var c *claim.Claim
	err := claim.ErrNotFound
	if cmd != nil {
		c, err = s.do("", cmd)
	} else if found := s.find(request.ID); found != nil {
		c, err = found, nil
	}
	s.ops = append(s.ops, s.timed(request, answerOf(c, err)))
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

// slowest is the longest transfer time of a request or an answer, in nanoseconds.
const slowest = 15_000_000

// timed is an operation that took effect now, with some time before and after. One in this many is not answered.
func (s *server) timed(request history.Request, answer out) history.Operation {
	delay := rapid.SampledFrom([]int64{0, 500, 50_000, slowest})
	now := int64(s.now) * 1000
	return history.Operation{Call: now - delay.Draw(s.t, "before"), Return: now + delay.Draw(s.t, "after"), Request: request, Output: answer}
}
