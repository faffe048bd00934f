package session

import (
	"context"
	"fmt"
	"time"

	"github.com/locket-service/locket/db"
)

// register returns the name under which this server keeps its sessions alive. If the server has no sessions and its
// last beat is some time ago, it takes a new name, because it may have been declared gone.
func (m *Manager) register(ctx context.Context) (string, error) {
	m.registering.Lock()
	defer m.registering.Unlock()
	m.mu.Lock()
	name, fresh := m.name, len(m.attached) > 0 || time.Since(m.beaten) < db.ServerTimeout/2
	m.mu.Unlock()
	if name != "" && fresh {
		return name, nil
	}
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	begin := time.Now()
	m.names++
	name = fmt.Sprintf("%s-%d", m.config.Name, m.names)
	m.setName("", begin) // also if this fails: no beat keeps anything alive under the name before
	if err := m.queues.Register(ctx, name); err != nil {
		return "", err
	}
	m.setName(name, begin)
	return name, nil
}

func (m *Manager) setName(name string, beaten time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.name, m.beaten = name, beaten
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
