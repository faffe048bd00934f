package stream

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/locket-service/locket/lock/internal/base"
)

// Pool has the sessions of a client. It opens one on first use, and a new one when the last is over. Sessions beside
// the client's own are closed soon after their last use.
type Pool struct {
	// config returns the config of a session with a TTL, or an error if it is invalid.
	config func(ttl time.Duration, owner string) (Config, error)
	// own is the key of the client's own session.
	own poolKey

	mu       sync.Mutex
	sessions map[poolKey]*Session
	closed   bool
	closings sync.WaitGroup // of sessions that are not used any more
}

// poolKey identifies a session of a pool.
type poolKey struct {
	ttl   time.Duration
	owner string
	// number counts the sessions of one TTL and owner.
	number int
}

// maxSessions is how many sessions of one TTL and owner a pool has at most. A session has one claim per resource, so
// shared holds with different claims need several sessions.
const maxSessions = 64

// KeepUnused is how long a session beside the client's own stays open without use.
const KeepUnused = 10 * time.Second

// NewPool returns a pool without sessions. The client's own session has this TTL and owner.
func NewPool(config func(ttl time.Duration, owner string) (Config, error), ttl time.Duration, owner string) *Pool {
	return &Pool{config: config, own: poolKey{ttl: ttl, owner: owner}, sessions: make(map[poolKey]*Session)}
}

// Own returns the client's own session that is in use. It is an error if the pool was closed.
func (p *Pool) Own() (*Session, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.session(p.own)
}

// session returns a session, and opens it if there is none. The caller has the lock.
func (p *Pool) session(key poolKey) (*Session, error) {
	if p.closed {
		return nil, base.ErrClosed
	}
	if s := p.there(key); s != nil {
		return s, nil
	}
	config, err := p.config(key.ttl, key.owner)
	if err != nil {
		return nil, err
	}
	if key != p.own {
		config.Unused = func(s *Session) { p.closeUnused(key, s) }
	}
	s := New(config)
	p.sessions[key] = s
	return s, nil
}

// there returns an open session, or nil. The caller has the lock.
func (p *Pool) there(key poolKey) *Session {
	if s := p.sessions[key]; s != nil && s.Err() == nil {
		return s
	}
	return nil
}

// join adds a hold to the first session where it need not wait for holds that share the resource by a different claim.
// If there is none, it opens another session; the last one takes any hold.
func (p *Pool) join(key poolKey, h *hold) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s, err := p.session(key); err != nil || s.join(h, false) {
		return err
	}
	free := maxSessions - 1
	for key.number = 1; key.number < maxSessions; key.number++ {
		if s := p.there(key); s == nil {
			free = min(free, key.number)
		} else if s.join(h, false) {
			return nil
		}
	}
	key.number = free
	s, err := p.session(key)
	if err == nil {
		s.join(h, true)
	}
	return err
}

// closeUnused closes a session that nobody has used for a while.
func (p *Pool) closeUnused(key poolKey, s *Session) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.sessions[key] == s && !s.used() {
		delete(p.sessions, key)
		p.closings.Go(func() { _ = closeInTime(s) }) // it holds nothing
	}
}

// Close closes all sessions, each within its release timeout.
func (p *Pool) Close() error {
	p.mu.Lock()
	sessions := p.sessions
	p.closed, p.sessions = true, nil
	p.mu.Unlock()
	errs := make(chan error, len(sessions))
	for _, s := range sessions {
		p.closings.Go(func() { errs <- closeInTime(s) })
	}
	p.closings.Wait()
	close(errs)
	var err error
	for e := range errs {
		err = errors.Join(err, e)
	}
	return err
}

// closeInTime closes a session within its release timeout.
func closeInTime(s *Session) error {
	ctx, cancel := context.WithTimeout(context.Background(), s.ReleaseTimeout)
	defer cancel()
	return s.Close(ctx)
}
