package lock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/locket-service/locket/lock/conn"
	"github.com/locket-service/locket/lock/internal/base"
	"github.com/locket-service/locket/lock/internal/stream"
	"github.com/locket-service/locket/models"
)

// Client holds locks over a session, which it opens on first use. If the session is lost, so are its locks, and the
// client uses a new session. Any number of goroutines may call its methods. They exclude each other as if each had a
// client of its own. Goroutines that ask for the same lock in the same way share one claim and its token; see
// docs/go.md.
type Client struct {
	config         *clientConfig
	owner          string
	releaseTimeout time.Duration
	log            *slog.Logger
	observers      observers
	pool           *stream.Pool

	mu      sync.Mutex
	session *Session   // the last one of Session
	conn    *conn.Conn // for watches; nil until one is needed
	closed  bool

	ended    chan struct{} // closed when Close has ended
	closeErr error         // its error
}

// NewClient returns a client of the servers with these addresses ("host:port"; see Dial). It does not wait for a
// connection. Close it after use. It returns an error if an address or an option is invalid.
func NewClient(addresses []string, options ...ClientOption) (*Client, error) {
	config, err := newClientConfig(addresses, options)
	if err != nil {
		return nil, err
	}
	settings := config.settings(config.ttl)
	owner := settings.ownerOr("")
	return &Client{
		config: config, owner: owner, releaseTimeout: settings.ReleaseTimeout, log: settings.Log, observers: settings.observers,
		pool: stream.NewPool(config.session, config.ttl, owner), ended: make(chan struct{}),
	}, nil
}

// Owner returns the owner of the client's locks, as servers and lists show it.
func (c *Client) Owner() string { return c.owner }

// Session returns the session that the client uses at present, and opens a new one if there is none or the last one is
// over. It returns ErrClosed if the client was closed.
func (c *Client) Session() (*Session, error) {
	used, err := c.pool.Own()
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.session == nil || c.session.stream != used {
		c.session = &Session{used, c.observers}
	}
	return c.session, nil
}

// Acquire waits in the queue and returns when it holds the lock. ctx bounds the wait only: the lock is held until it
// is released or lost. If the session is lost during the wait, the wait continues with a new session, at the end of
// the queue.
func (c *Client) Acquire(ctx context.Context, key string, options ...AcquireOption) (*Hold, error) {
	return c.acquireOrAnnounce(ctx, key, options, false)
}

// TryAcquire returns the lock, or fails at once if it is held or others wait for it. Then errors.Is(err,
// models.ErrLockCollision) is true, and the text names the holder.
func (c *Client) TryAcquire(ctx context.Context, key string, options ...AcquireOption) (*Hold, error) {
	return c.acquireOrAnnounce(ctx, key, options, true)
}

func (c *Client) acquireOrAnnounce(ctx context.Context, key string, options []AcquireOption, try bool) (*Hold, error) {
	holder, err := c.holder(key, options, try)
	if err != nil {
		return nil, err
	}
	hold, err := c.acquire(ctx, holder)
	if err == nil && holder.Want.TypeCode == models.TypeCode_PRESENCE {
		hold = c.announce(ctx, holder, hold)
	}
	return hold, err
}

func (c *Client) holder(key string, options []AcquireOption, try bool) (*stream.Holder, error) {
	want, err := newWant(key, true, options)
	if err != nil {
		return nil, fmt.Errorf("lock %q: %w", key, err)
	}
	want.Timeout = c.config.timeout
	return &stream.Holder{Pool: c.pool, TTL: cmp.Or(want.TTL, c.config.ttl), Owner: c.owner, Resource: key, Want: want, Try: try}, nil
}

func (c *Client) acquire(ctx context.Context, holder *stream.Holder) (*Hold, error) {
	return c.observers.acquire(ctx, holder.Resource, c.owner, holder, base.Observer{})
}

// Do waits in the queue, calls f while it holds the lock, and releases the lock. f gets the fencing token, and a
// context that ends when ctx ends or the lock is lost; context.Cause then returns the reason. After a loss Do returns
// the loss joined with f's error.
func (c *Client) Do(ctx context.Context, key string, f func(ctx context.Context, token uint64) error, options ...AcquireOption) (err error) {
	hold, err := c.Acquire(ctx, key, options...)
	if err != nil {
		return err
	}
	working, end := context.WithCancelCause(ctx)
	defer end(nil)
	check := func() {
		if err := hold.Err(); err != nil {
			end(err)
		}
	}
	defer context.AfterFunc(hold.Context(), check)()
	defer func() {
		if lost := hold.Err(); lost != nil {
			err = errors.Join(err, lost)
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.releaseTimeout)
		defer cancel()
		_ = hold.Release(ctx) // continues in the background if necessary
	}()
	return f(holdContext{working, check}, hold.Token())
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

// Close releases all locks and ends the client. Holders are notified first. It returns when a server has released the
// locks, or after the release timeout (WithReleaseTimeout) with an error; the locks are then free when their TTL has
// passed. Closing again returns the same.
func (c *Client) Close() error {
	c.mu.Lock()
	again := c.closed
	c.closed = true
	opened := c.conn
	c.conn = nil
	c.mu.Unlock()
	if !again {
		c.closeErr = c.pool.Close()
		if opened != nil {
			c.closeErr = errors.Join(c.closeErr, opened.Close())
		}
		close(c.ended)
	}
	<-c.ended
	return c.closeErr
}

// Dial returns a connection to one or several servers, for models.NewLocketClient, NewLockRunner, NewPresenceRunner
// and NewClaimRunner. Close it after use. Package conn has the options and explains how it connects.
func Dial(addresses []string, options ...conn.Option) (*conn.Conn, error) {
	return conn.Dial(addresses, options...)
}
