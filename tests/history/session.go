package history

import (
	"fmt"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/locket-service/locket/claim"
)

// The operations of sessions. Those that name no resource are about all that the session asked for.
const (
	lock      special = "lock"
	try       special = "try"
	unlock    special = "unlock"
	stands    special = "stands"
	unlockAll special = "unlock all"
	closed    special = "close"
	lapse     special = "lapse"
	opened    special = "opened"
	heartbeat special = "heartbeat"
)

// Lock is the LOCK of a session, whose owner has its name. The id is made up, new for each request; a
// session that holds the resource or waits for it keeps what it has.
func Lock(resource, id, session string, mode claim.Mode) Request {
	return ofSession(lock, resource, id, session, mode)
}

// TryLock is the TRY_LOCK of a session, as Lock.
func TryLock(resource, id, session string, mode claim.Mode) Request {
	return ofSession(try, resource, id, session, mode)
}

func ofSession(what special, resource, id, session string, mode claim.Mode) Request {
	return Request{Resource: resource, ID: id, Session: session, special: what, command: claim.Create{
		ID: id, Resource: resource, Owner: session, Mode: mode, NoWait: what == try, Session: session, Server: anyServer,
	}}
}

// Unlock is the UNLOCK of a session.
func Unlock(resource, session string) Request {
	return Request{Resource: resource, Session: session, special: unlock}
}

// Stands is how a session stood to a resource at some moment of the operation. News begin with what was
// known before, since they were on their way.
func Stands(resource, session string) Request {
	return Request{Resource: resource, Session: session, special: stands}
}

// UnlockAll is the UNLOCK_ALL of a session.
func UnlockAll(session string) Request { return Request{Session: session, special: unlockAll} }

// Close ends a session: by its client, or by a reset.
func Close(session string) Request { return Request{Session: session, special: closed} }

// Lapse is the end of a session of which no server has heard for its TTL. No client asks for it. It
// is never before the client's trust has ended: the sending of the last heartbeat that was
// acknowledged, and the TTL.
func Lapse(session string) Request { return Request{Session: session, special: lapse} }

// Opened is an OPEN, or a resumption, of a session that was accepted.
func Opened(session string) Request { return Request{Session: session, special: opened} }

// Heartbeat is a heartbeat that was acknowledged; only such belong into a history.
func Heartbeat(session string, ttl time.Duration) Request {
	return Request{Session: session, special: heartbeat, ttl: ttl}
}

// anyServer is what every session is attached to: a request that was answered was at the right one.
const anyServer = "server"

// spread gives the operations that are about a session as a whole to each resource that it asked for, and
// checks what needs no rules: that nothing is acknowledged to a session that has ended, and
// that none lapses while its client may trust it.
func spread(history []porcupine.Operation) ([]porcupine.Operation, error) {
	trusted, resources := trust(history)
	byResource := make(map[string][]porcupine.Operation) // and by session
	for _, op := range history {
		in := op.Input.(Input)
		byResource[in.Session+"\x00"+in.Resource] = append(byResource[in.Session+"\x00"+in.Resource], op)
	}
	var all []porcupine.Operation
	for _, op := range history {
		in := op.Input.(Input)
		if in.Resource != "" {
			all = append(all, op)
			continue
		}
		switch in.special {
		case opened, heartbeat:
			continue
		case lapse:
			op.Call = max(op.Call, trusted[in.Session])
		}
		if op.Return < op.Call {
			return nil, fmt.Errorf("session %q ended before %d us, while its client could trust it until %d us",
				in.Session, op.Return/1000, trusted[in.Session]/1000)
		}
		if in.special != unlockAll && op.Return != Forever && !op.Output.(Output).Unknown {
			if late := acknowledged(history, in.Session, op.Return); late != nil {
				return nil, fmt.Errorf("session %q ended before %d us, and then: %s", in.Session, op.Return/1000, line(*late))
			}
		}
		for _, resource := range resources[in.Session] {
			if idle(byResource[in.Session+"\x00"+resource], op) {
				continue
			}
			request := in.Request
			request.Resource = resource
			all = append(all, Operation(op.Call, op.Return, request, op.Output.(Output)))
		}
	}
	return all, nil
}

// idle reports whether a session certainly has nothing to do with a resource when an operation about
// all that it has begins, and asks for nothing later: its last request was an UNLOCK, or was refused, and was
// answered. There is then nothing to order.
func idle(ops []porcupine.Operation, all porcupine.Operation) bool {
	var last porcupine.Operation
	for _, op := range ops {
		if op.Return >= all.Call {
			return false
		}
		if op.Call > last.Call {
			last = op
		}
	}
	for _, op := range ops {
		if op.Return >= last.Call && op.Call != last.Call {
			return false // beside the last
		}
	}
	in, out := last.Input.(Input), last.Output.(Output)
	return !out.Unknown && (in.special == unlock || in.special == try && out.Refused != 0)
}

// trust returns until when the clients of sessions could trust them, and what these asked for.
func trust(history []porcupine.Operation) (until map[string]int64, resources map[string][]string) {
	until, resources = make(map[string]int64), make(map[string][]string)
	for _, op := range history {
		in := op.Input.(Input)
		switch known := resources[in.Session]; {
		case in.Session == "":
		case in.special == heartbeat:
			until[in.Session] = max(until[in.Session], op.Call+int64(in.ttl))
		case in.Resource != "" && !slices.Contains(known, in.Resource):
			resources[in.Session] = append(known, in.Resource)
		}
	}
	return until, resources
}

// acknowledged returns what a session was told that was asked for after a moment, nil for nothing.
func acknowledged(history []porcupine.Operation, session string, after int64) *porcupine.Operation {
	for i, op := range history {
		in := op.Input.(Input)
		if in.Session == session && op.Call > after && (in.special == heartbeat || in.special == opened) {
			return &history[i]
		}
	}
	return nil
}

// runSession carries out an operation of a session by the rules. The claim is nil if the session neither
// holds the resource nor waits for it then.
func (s *state) runSession(in Input) (*claim.Claim, error) {
	mine := s.of(in.Session)
	now := claim.Instant{Lease: max(in.call, s.now)}
	if in.special == lapse {
		s.now = now.Lease
	}
	do := func(cmd claim.Command) (*claim.Claim, error) {
		queues := s.queues(in, now)
		if !s.over.has(in.Session) {
			var live []string
			if mine != nil {
				live = []string{mine.ID}
			}
			queues.PutSession(claim.Session{ID: in.Session, Server: anyServer, Deadline: never}, live...)
		}
		c, err := queues.Do(cmd)
		s.take(queues, in.Resource)
		return c, err
	}
	end := claim.EndSession{ID: in.Session, Active: claim.Released, Waiting: claim.Withdrawn}
	switch in.special {
	case lock, try:
		if mine == nil {
			return do(in.command)
		}
	case unlock:
		if s.over.has(in.Session) {
			return nil, claim.ErrSessionEnded
		}
		if mine != nil {
			return do(claim.End{ID: mine.ID})
		}
	case unlockAll:
		end.Keep = true
		return do(end)
	case closed, lapse:
		if in.special == lapse {
			end.Active, end.Waiting = claim.Expired, claim.Aborted
		}
		defer func() { s.over = &names{in.Session, s.over} }()
		return do(end)
	}
	return mine, nil
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

// names is a list, the last one first. It is shared: what is there is not changed.
type names struct {
	name   string
	before *names
}

func (n *names) has(name string) bool {
	for ; n != nil; n = n.before {
		if n.name == name {
			return true
		}
	}
	return false
}

// equal reports whether both have the same names, in any order.
func (n *names) equal(other *names) bool {
	return n.within(other) && other.within(n)
}

func (n *names) within(other *names) bool {
	for ; n != nil; n = n.before {
		if !other.has(n.name) {
			return false
		}
	}
	return true
}
