package lock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"
)

// NewSessionRunner returns a runner like that of NewClaimRunner that holds a resource by the session of a client: any number
// of runners of a process share one heartbeat, and a loss is known at once rather than at the next renewal. It
// has the owner and the TTL of the client; with another one (WithOwner, WithTTL) it uses another session of
// the client. Deadlocks are allowed unless AllowDeadlock says otherwise, since the runners
// of a session wait independently of each other.
//
// If the session is lost, all its runners lose their locks together. What is started after that uses a new one.
func NewSessionRunner(client *Client, resource string, options ...SessionRunnerOption) *Runner {
	r := newSessionRunner(client, resource, options)
	r.exitOnLoss = true
	return r
}

// NewSessionPresenceRunner returns a runner like that of NewPresenceRunner that announces a value, such as an address, by
// the session of a client. It waits for its turn if another owner announces the resource. NewSessionRunner says the rest.
func NewSessionPresenceRunner(client *Client, resource, value string, options ...SessionRunnerOption) *Runner {
	return newSessionRunner(client, resource, append([]SessionRunnerOption{WithPresence(value)}, options...))
}

func newSessionRunner(client *Client, resource string, options []SessionRunnerOption) *Runner {
	h := &sessionHolder{client: client, resource: resource}
	for _, option := range options {
		option.sessionRunner(h)
	}
	a, err := newAcquisition(resource, true, h.asked)
	ttl := a.ttl
	if client != nil {
		h.options = append([]Option{WithOwner(client.owner)}, h.options...)
		ttl = cmp.Or(ttl, client.config.ttl)
	}
	h.settings, h.acquisition = newSettings(ttl, 0, maxSessionTTL, h.options), a
	h.wrong = errors.Join(h.wrong, err)
	h.key = sessionKey{ttl: h.ttl, owner: h.owner}
	return &Runner{settings: h.settings, key: resource, owner: h.owner, holder: h, usable: client != nil}
}

// sessionHolder holds by a session of a client.
type sessionHolder struct {
	settings
	client      *Client
	key         sessionKey
	resource    string
	acquisition acquisition
	// options and asked are those that it was made with.
	options []Option
	asked   []AcquireOption
}

func (h *sessionHolder) acquire(ctx context.Context, o observer) (*Hold, error) {
	a := h.acquisition
	a.observer = &o
	for {
		t, err := h.client.join(h.key, h.resource, a, false)
		if err != nil {
			return nil, fmt.Errorf("lock %q: %w", h.resource, err)
		}
		hold, err := t.await(ctx)
		switch {
		case err == nil:
			return hold, nil
		case ctx.Err() != nil:
			releasing, cancel := context.WithTimeout(context.WithoutCancel(ctx), h.releaseTimeout)
			defer cancel()
			_ = t.Release(releasing) // goes on in the background if it must
			return nil, err
		case isOver(t.gate.session.whether(ctx, err)):
			continue // with a new session
		}
		if !h.worthAnother(err) {
			return nil, err
		}
		h.log.Info("lock not acquired", "lock", h.resource, "error", err)
		select {
		case <-time.After(jittered(h.retryInterval)):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// worthAnother reports whether another attempt may succeed where one has failed with err.
func (h *sessionHolder) worthAnother(err error) bool {
	return classify(err) == unclear && !errors.Is(err, ErrClosed) && !errors.As(err, new(claimEndedError))
}

func (h *sessionHolder) claimID() string { return "" }
