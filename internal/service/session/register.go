package session

import (
	"context"
	"fmt"
	"time"
)

// register returns the name of this server for its sessions: a new one if it has none, or was declared gone.
func (m *Manager) register(ctx context.Context) (name string, err error) {
	select {
	case m.registering <- struct{}{}:
		defer func() { <-m.registering }()
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
	if name := m.queues.Registered(); name != "" {
		return name, nil
	}
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	m.names++
	name = fmt.Sprintf("%s-%d", m.config.Name, m.names)
	return name, m.queues.Register(ctx, name)
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

// Beaten implements committer.Sessions: it answers the heartbeats that arrived before the beat began, of the sessions that are still
// attached to this server. Another server may have attached one meanwhile, for a stream that its client had given up, and have left
// it: then its TTL runs out, although it has a stream here. lost reports that this server was declared gone: all sessions end here
// with ErrDetached, except sessions attached under a newer name.
func (m *Manager) Beaten(began time.Time, lost bool) {
	if lost {
		m.endLost()
		return
	}
	asked := m.takeAsked(began)
	if len(asked) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), readTimeout)
	defer cancel()
	here, err := m.attachedHere(ctx)
	if err != nil { // the next beat answers them
		m.mu.Lock()
		defer m.mu.Unlock()
		m.asked = append(asked, m.asked...)
		return
	}
	for _, h := range asked {
		if here[h.session.ID] {
			h.session.push(Event{Sequence: h.sequence, Beat: true, answers: true})
		} else {
			h.session.findOut()
		}
	}
}

// takeAsked takes the heartbeats that arrived before a time.
func (m *Manager) takeAsked(before time.Time) []heartbeat {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := 0
	for n < len(m.asked) && m.asked[n].at.Before(before) {
		n++
	}
	asked := m.asked[:n:n]
	m.asked = append([]heartbeat(nil), m.asked[n:]...)
	return asked
}

// attachedHere reads which sessions are attached to this server, by its present name: none without a name, which detached sessions
// share.
func (m *Manager) attachedHere(ctx context.Context) (here map[string]bool, err error) {
	name := m.queues.Registered()
	if name == "" {
		return nil, nil
	}
	ids, err := m.store.AttachedTo(ctx, name)
	here = make(map[string]bool, len(ids))
	for _, id := range ids {
		here[id] = true
	}
	return here, err
}

func (m *Manager) endLost() {
	name := m.queues.Registered()
	for _, a := range m.all() {
		if a.server != name {
			a.end(ErrDetached)
		}
	}
}
