package session

import (
	"context"
	"fmt"
	"time"

	"github.com/locket-service/locket/db"
)

// register returns the name under which this server keeps its sessions alive. If the server has no sessions, nobody opens one, and its
// last beat is some time ago, it takes a new name, because it may have been declared gone. The caller must call leave when the session is there.
func (m *Manager) register(ctx context.Context) (name string, leave func(), err error) {
	select {
	case m.registering <- struct{}{}:
		defer func() { <-m.registering }()
	case <-ctx.Done():
		return "", nil, context.Cause(ctx)
	}
	if name := m.registered(); name != "" {
		return name, m.leave, nil
	}
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	m.names++
	name = fmt.Sprintf("%s-%d", m.config.Name, m.names)
	if err := m.queues.Register(ctx, name); err != nil {
		return "", nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.name, m.beaten = name, time.Now()
	m.joining++
	return name, m.leave, nil
}

// registered returns the name of this server if it is still good, for one more session that is opened; "" if there must be a new one. Then no session is attached
// under the older name any more, whatever becomes of the new one: no beat will keep it alive.
func (m *Manager) registered() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.attached)+m.joining == 0 && time.Since(m.beaten) >= db.ServerTimeout/2 {
		m.name = ""
	}
	if m.name != "" {
		m.joining++
	}
	return m.name
}

func (m *Manager) leave() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.joining--
}

// Any implements committer.Sessions.
func (m *Manager) Any() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.opening+len(m.attached) > 0
}

// heartbeat is a heartbeat of a client that is not answered yet.
type heartbeat struct {
	session  *Attached
	sequence uint64
	at       time.Time
}

// Heartbeat answers the message of a client after a beat of this server that begins after now.
func (a *Attached) Heartbeat(sequence uint64) {
	a.m.mu.Lock()
	defer a.m.mu.Unlock()
	a.m.asked = append(a.m.asked, heartbeat{a, sequence, time.Now()})
}

// Beaten implements committer.Sessions: it answers the heartbeats that arrived before the beat began. lost reports that
// this server was declared gone: all sessions end here with ErrDetached.
func (m *Manager) Beaten(began time.Time, lost bool) {
	if lost {
		m.mu.Lock()
		m.name = ""
		m.mu.Unlock()
		m.endAll(ErrDetached)
		return
	}
	m.mu.Lock()
	m.beaten = began
	n := 0
	for n < len(m.asked) && m.asked[n].at.Before(began) {
		n++
	}
	answered := m.asked[:n:n]
	m.asked = append([]heartbeat(nil), m.asked[n:]...)
	m.mu.Unlock()
	for _, h := range answered {
		h.session.push(Event{Sequence: h.sequence, Beat: true, answers: true})
	}
}
