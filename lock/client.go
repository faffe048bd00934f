package lock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/locket-service/locket/lock/conn"
	"github.com/locket-service/locket/models"
)

// Client holds locks by a session, which it opens when it first needs one. If the session is lost, what it
// held is lost with it, and what is acquired after that is held by a new one. Its methods may be called by any
// number of goroutines, which exclude each other as those of different clients do. Those that ask for the same share one claim,
// and its token; docs/go.md says how.
type Client struct {
	config         *clientConfig
	owner          string
	releaseTimeout time.Duration

	mu       sync.Mutex
	sessions map[sessionKey]*Session
	conn     *conn.Conn // for watches; nil until one is needed
	closed   bool

	ended    chan struct{} // closed when Close has ended
	closeErr error         // its error
}

// sessionKey is what sessions of one client differ in.
type sessionKey struct {
	ttl   time.Duration
	owner string
	lane  int
}

// maxLanes is how many sessions of one TTL and owner a client has at most. A session has one claim of a resource, so what
// shares a resource by claims that differ needs several.
const maxLanes = 64

// NewClient returns a client of the servers with these addresses, which are those of Dial. It is to be
// closed. It is an error if an address or an option is invalid.
func NewClient(addresses []string, options ...ClientOption) (*Client, error) {
	config, err := newClientConfig(addresses, options)
	if err != nil {
		return nil, err
	}
	settings := config.settings(config.ttl)
	return &Client{config: config, owner: settings.ownerOr(""), releaseTimeout: settings.releaseTimeout, sessions: make(map[sessionKey]*Session), ended: make(chan struct{})}, nil
}

// Owner returns the owner of what the client holds, as the servers and their lists name it.
func (c *Client) Owner() string { return c.owner }

// Session returns the session that the client uses at present: a new one if there was none, or the last one
// is over. It is an error if the client was closed.
func (c *Client) Session() (*Session, error) {
	return c.session(sessionKey{ttl: c.config.ttl, owner: c.owner})
}

func (c *Client) session(key sessionKey) (*Session, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, ErrClosed
	}
	if s := c.sessions[key]; s != nil && s.Err() == nil {
		return s, nil
	}
	settings := c.config.settings(key.ttl)
	if err := settings.validateSession(); err != nil {
		return nil, err
	}
	s := c.config.newSession(key.ttl, key.owner)
	c.sessions[key] = s
	return s, nil
}

// Acquire waits for its turn, and returns when it holds the lock. The context bounds the wait only: the
// lock is held until it is released or lost. If the session is lost during the wait, the wait goes on with
// a new one, at the end of the queue.
func (c *Client) Acquire(ctx context.Context, key string, options ...AcquireOption) (*Hold, error) {
	return c.acquire(ctx, key, options, false)
}

// TryAcquire returns the lock, or at once an error for which errors.Is(err, models.ErrLockCollision) is true,
// and whose text names the holder, if it is held or others wait for it.
func (c *Client) TryAcquire(ctx context.Context, key string, options ...AcquireOption) (*Hold, error) {
	return c.acquire(ctx, key, options, true)
}

func (c *Client) acquire(ctx context.Context, key string, options []AcquireOption, try bool) (*Hold, error) {
	a, err := newAcquisition(key, true, options)
	if err != nil {
		return nil, fmt.Errorf("lock %q: %w", key, err)
	}
	if a.ttl == 0 {
		a.ttl = c.config.ttl
	}
	a.timeout = c.config.timeout
	for {
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("lock %q: %w", key, err)
		}
		t, err := c.join(sessionKey{ttl: a.ttl, owner: c.owner}, key, a, try)
		if err != nil {
			return nil, fmt.Errorf("lock %q: %w", key, err)
		}
		hold, err := t.await(ctx)
		if err == nil || !isOver(t.gate.session.whether(ctx, err)) || ctx.Err() != nil {
			return hold, err
		}
	}
}

// join adds a turn to those of a session that want the resource: the first session at which it need not wait for others that
// share the resource as it does, but by a claim that differs.
func (c *Client) join(key sessionKey, resource string, a acquisition, try bool) (*turn, error) {
	for {
		s, err := c.session(key)
		if err != nil {
			return nil, err
		}
		if key.lane++; key.lane == maxLanes {
			return s.join(resource, a, try), nil
		}
		if t := s.joinIfAlike(resource, a, try); t != nil {
			return t, nil
		}
	}
}

// isOver reports whether a session was lost, so that another one may fare better.
func isOver(err error) bool { return errors.Is(err, ErrSessionEnded) || errors.Is(err, ErrTimeUp) }

// Do waits for its turn, calls a function while it holds the lock, and releases it. The function gets the
// fencing token, and a context that ends when ctx does, or the lock is lost, as Hold.Context does: context.Cause then says why. The loss is
// also part of the error that Do returns, beside that of the function.
func (c *Client) Do(ctx context.Context, key string, f func(ctx context.Context, token uint64) error, options ...AcquireOption) (err error) {
	hold, err := c.Acquire(ctx, key, options...)
	if err != nil {
		return err
	}
	held := newHoldContext(ctx, hold)
	defer held.cancel(nil)
	defer context.AfterFunc(hold.Context(), held.look)()
	defer func() {
		if lost := hold.Err(); lost != nil {
			err = errors.Join(err, lost)
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.releaseTimeout)
		defer cancel()
		_ = hold.Release(ctx) // goes on in the background if it must
	}()
	return f(held, hold.Token())
}

// rpc returns a client for calls beside the session.
func (c *Client) rpc() (models.LocketClient, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, ErrClosed
	}
	if c.conn == nil {
		opened, err := c.config.dialer.Dial()
		if err != nil {
			return nil, err
		}
		c.conn = opened
	}
	return models.NewLocketClient(c.conn), nil
}

// Close releases everything, and ends the client: holders are told before the servers are. It returns when a
// server has carried that out, or after the release timeout (WithReleaseTimeout) with an error; then what
// was held is free when its TTL has passed. To close again returns the same, when that is known.
func (c *Client) Close() error {
	c.mu.Lock()
	again := c.closed
	c.closed = true
	sessions, opened := c.sessions, c.conn
	c.sessions, c.conn = nil, nil
	c.mu.Unlock()
	if !again {
		c.closeErr = closeAll(sessions, opened)
		close(c.ended)
	}
	<-c.ended
	return c.closeErr
}

func closeAll(sessions map[sessionKey]*Session, opened *conn.Conn) error {
	var all sync.WaitGroup
	errs := make(chan error, len(sessions)+1)
	for _, s := range sessions {
		all.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), s.releaseTimeout)
			defer cancel()
			errs <- s.Close(ctx)
		})
	}
	all.Wait()
	if opened != nil {
		errs <- opened.Close()
	}
	close(errs)
	var err error
	for e := range errs {
		err = errors.Join(err, e)
	}
	return err
}
