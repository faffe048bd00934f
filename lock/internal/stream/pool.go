package stream

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/locket-service/locket/lock/internal/base"
)

// Pool has the sessions of a client: it opens one when it is needed, and another one when the last is over.
type Pool struct {
	// config returns that of a session with a TTL, or what is wrong with it.
	config func(ttl time.Duration, owner string) (Config, error)

	mu       sync.Mutex
	sessions map[poolKey]*Session
	closed   bool
}

// poolKey is what the sessions of a pool differ in.
type poolKey struct {
	ttl   time.Duration
	owner string
	// number counts the sessions of one TTL and owner.
	number int
}

// maxSessions is how many sessions of one TTL and owner a pool has at most. A session has one claim of a resource, so what
// shares a resource by claims that differ needs several.
const maxSessions = 64

// NewPool returns a pool without sessions.
func NewPool(config func(ttl time.Duration, owner string) (Config, error)) *Pool {
	return &Pool{config: config, sessions: make(map[poolKey]*Session)}
}

// Session returns the session of a TTL and an owner that is in use. It is an error if the pool was closed.
func (p *Pool) Session(ttl time.Duration, owner string) (*Session, error) {
	return p.session(poolKey{ttl: ttl, owner: owner})
}

func (p *Pool) session(key poolKey) (*Session, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, base.ErrClosed
	}
	if s := p.sessions[key]; s != nil && s.Err() == nil {
		return s, nil
	}
	config, err := p.config(key.ttl, key.owner)
	if err != nil {
		return nil, err
	}
	s := New(config)
	p.sessions[key] = s
	return s, nil
}

// join adds a hold to the first session in which it need not wait for others that share the resource as it does, but by a
// claim that differs.
func (p *Pool) join(key poolKey, h *hold) error {
	for {
		s, err := p.session(key)
		if err != nil {
			return err
		}
		key.number++
		if s.join(h, key.number == maxSessions) {
			return nil
		}
	}
}

// Close closes all sessions, each within its release timeout.
func (p *Pool) Close() error {
	p.mu.Lock()
	sessions := p.sessions
	p.closed, p.sessions = true, nil
	p.mu.Unlock()
	var all sync.WaitGroup
	errs := make(chan error, len(sessions))
	for _, s := range sessions {
		all.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), s.ReleaseTimeout)
			defer cancel()
			errs <- s.Close(ctx)
		})
	}
	all.Wait()
	close(errs)
	var err error
	for e := range errs {
		err = errors.Join(err, e)
	}
	return err
}
