package watch

import (
	"github.com/locket-service/locket/internal/base/inbox"
	"github.com/locket-service/locket/internal/rules/claim"
)

// SessionListener gets the changes of the claims of a session that is attached to this server. Its methods are called
// in the inbox that Follow was given.
type SessionListener interface {
	// Changed is called for each change of a claim of the session. Changes that this server commits come in their
	// order, before their callers are answered. Other servers' changes come later, in any order, and may be about
	// claims that have ended long ago.
	Changed(change claim.Transition)
	// Missed is called when changes may have been missed: the claims must be read.
	Missed()
}

// sessionFollower is a listener and its inbox.
type sessionFollower struct {
	to *inbox.Inbox
	SessionListener
}

// Follow makes l the listener of a session, in place of an earlier one, until stop is called.
func (h *Hub) Follow(session string, to *inbox.Inbox, l SessionListener) (stop func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	it := &sessionFollower{to, l}
	h.sessions[session] = it
	if len(h.sessions) == 1 {
		h.poke()
	}
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.sessions[session] == it {
			delete(h.sessions, session)
		}
	}
}

// changed tells a change to the session that the claim is bound to.
func (h *Hub) changed(change claim.Transition) {
	if change.After.Session == "" {
		return
	}
	h.mu.Lock()
	l := h.sessions[change.After.Session]
	h.mu.Unlock()
	if l != nil {
		l.to.Offer(func() { l.Changed(change) })
	}
}

// missed makes all sessions read their claims.
func (h *Hub) missed() {
	h.mu.Lock()
	all := make([]*sessionFollower, 0, len(h.sessions))
	for _, l := range h.sessions {
		all = append(all, l)
	}
	h.mu.Unlock()
	for _, l := range all {
		l.to.Offer(l.Missed)
	}
}
