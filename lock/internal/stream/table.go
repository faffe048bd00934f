package stream

import (
	"fmt"
	"time"

	"github.com/locket-service/locket/lock/internal/base"
	"github.com/locket-service/locket/models"
)

// keepEnded is for how long the record of a resource is kept that the session no longer holds or waits for.
const keepEnded = time.Minute

// apply takes what the server reports of a resource, and returns how the session stands to it then. What is
// no newer than what is known changes nothing. The caller has the lock.
func (s *Session) apply(m *models.SessionStatus) Status {
	now := statusOf(m)
	r := s.records[now.Resource]
	if m.GetVersion() == 0 { // the session has nothing to do with it
		return now
	}
	if r == nil {
		r = &record{Status: Status{Resource: now.Resource}}
		s.records[now.Resource] = r
	}
	r.stream = s.streams
	if m.GetVersion() == r.version { // it was known, or nothing has changed
		return now
	}
	if m.GetVersion() < r.version {
		return r.Status
	}
	r.version = m.GetVersion()
	if r.Current == Holding && now.Current == Holding && r.Token == now.Token {
		r.Claim, r.Shared = now.Claim, now.Shared // something else about it has changed
		return r.Status
	}
	if r.Current != None && now.Current != None && r.Claim != now.Claim {
		s.change(r, Status{Resource: now.Resource, Claim: r.Claim, Shared: r.Shared, Cause: fmt.Errorf("%w, and another one was made", base.ErrTokenChanged)})
	}
	if r.Current != now.Current {
		s.change(r, now)
	}
	return r.Status
}

// change enters a status, and tells everybody. The caller has the lock.
func (s *Session) change(r *record, to Status) {
	to.Previous = r.Current
	if to.Previous == Holding && to.Cause != nil {
		to.Cause = base.Lost(to.Resource, to.Cause)
	}
	r.Status = to
	if to.Current == None {
		r.ended = time.Now()
	}
	q := s.queues[to.Resource]
	s.held(r, q != nil && q.phase != idle)
	if q != nil {
		q.changed(to)
	}
	for l := range s.listeners {
		l.calls.Put(func() {
			if s.listens(l) {
				l.f(to)
			}
		})
	}
}

func (s *Session) listens(l *listener) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.listeners[l]
}

// reconcile takes what a server that has resumed the session left unsaid: what it did not
// speak of has ended while the session was away. The caller has the lock.
func (s *Session) reconcile() {
	some, all := s.givenUp()
	for _, r := range s.records {
		if r.Current == None || r.stream == s.streams {
			continue
		}
		ended := Status{Resource: r.Resource, Claim: r.Claim, Shared: r.Shared}
		if !all && !some[r.Resource] {
			ended.Cause = errEndedMeanwhile
		}
		s.change(r, ended)
	}
}

// givenUp returns what commands give up whose answers were lost, so that they may have been carried out: some resources, or
// all. The caller has the lock.
func (s *Session) givenUp() (some map[string]bool, all bool) {
	some = make(map[string]bool)
	for _, c := range s.commands {
		switch {
		case c.request.GetUnlock() != nil:
			some[c.resource] = true
		case c.request.GetUnlockAll() != nil:
			all = true
		}
	}
	return some, all
}

// loseAll ends everything, because the session is over. The caller has the lock.
func (s *Session) loseAll(cause error) {
	for _, r := range s.records {
		if r.Current != None {
			s.change(r, Status{Resource: r.Resource, Claim: r.Claim, Shared: r.Shared, Cause: cause})
		}
	}
}

// forgetEnded deletes records of which no late event can come any more. The caller has the lock.
func (s *Session) forgetEnded() {
	for name, r := range s.records {
		if r.Current == None && time.Since(r.ended) > keepEnded {
			delete(s.records, name)
		}
	}
}
