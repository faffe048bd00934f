package state

import (
	"strings"

	"github.com/locket-service/locket/internal/rules/claim"
)

// sessionOf returns a session by its id, and makes one without data if there is none: the claims of a session may
// outlive it in the middle of a record, or come before it.
func (s *State) sessionOf(id string) *session {
	known := s.sessions[id]
	if known == nil {
		known = &session{}
		s.sessions[strings.Clone(id)] = known
	}
	return known
}

// putSession puts a session in the place of the one with its id, if there is one.
func (s *State) putSession(after *claim.Session) {
	known := s.sessionOf(after.ID)
	s.unindex(known)
	known.Session = after
	s.sums.sessions += s.sessionHash(after)
	s.ids.Set(known)
	s.countTTL(known.TTL, 1)
	if after.Deadline != 0 {
		s.due.Set(known)
	}
	if after.Server != "" {
		of := s.attached[after.Server]
		if of == nil {
			of = make(map[*session]struct{})
			s.attached[after.Server] = of
		}
		of[known] = struct{}{}
	}
}

// endSession deletes a session.
func (s *State) endSession(id string) {
	known := s.sessions[id]
	if known == nil {
		return
	}
	s.unindex(known)
	known.Session = nil
	s.forget(id, known)
}

// forget deletes what has neither data nor claims.
func (s *State) forget(id string, known *session) {
	if known.Session == nil && len(known.claims) == 0 {
		delete(s.sessions, id)
	}
}

func (s *State) unindex(known *session) {
	if known.Session == nil {
		return
	}
	s.sums.sessions -= s.sessionHash(known.Session)
	s.ids.Delete(known)
	s.countTTL(known.TTL, -1)
	if known.Deadline != 0 {
		s.due.Delete(known)
	}
	if of := s.attached[known.Server]; of != nil {
		delete(of, known)
		if len(of) == 0 {
			delete(s.attached, known.Server)
		}
	}
}
