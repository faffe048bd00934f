package watch

import (
	"github.com/locket-service/locket/internal/claim"
	"github.com/locket-service/locket/internal/inbox"
)

// SessionListener hears what happens to the claims of a session that is attached to this server, in the inbox
// that Follow was given.
type SessionListener interface {
	// Changed is called for each change of a claim of the session: for those that this server
	// committed in their order, before their callers are answered, and soon for those of other servers.
	// These come in any order, and may be of claims that have ended long ago.
	Changed(change claim.Transition)
	// Missed is called when changes may have been missed: the claims are to be read.
	Missed()
}

// sessionFollower is a listener, and where it hears.
type sessionFollower struct {
	to *inbox.Inbox
	SessionListener
}

// Follow has a listener hear of a session's claims, in place of the one that did before, until
// stop is called.
func (h *Hub) Follow(session string, to *inbox.Inbox, l SessionListener) (stop func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	it := &sessionFollower{to, l}
	h.sessions[session] = it
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.sessions[session] == it {
			delete(h.sessions, session)
		}
	}
}

// SessionsWait adds n to the number of sessions here that wait for something. While there are
// any, the changes of other servers are read as often as for calls that wait.
func (h *Hub) SessionsWait(n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.awaited += n
	if h.awaited == n {
		h.poke()
	}
}

// changed tells the session that a claim is bound to.
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

// missed has all sessions read their claims.
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
