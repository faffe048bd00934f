package lock

import (
	"cmp"
	"errors"
	"slices"

	"github.com/locket-service/locket/lock/internal/stream"
)

// NewSessionRunner returns a runner that holds a resource over the session of a client: all runners of a process share
// one heartbeat, and a loss is known at once. Like the runner of NewClaimRunner it waits in the queue, is ready once
// it holds, and ends with an error that wraps ErrLost. It has the owner and the TTL of the client; with others
// (WithOwner, WithTTL) it uses another session of the client. Runners wait independently of each other, so deadlocks
// are allowed unless WithAllowDeadlock says otherwise.
//
// If the session is lost, all its runners lose their locks together. Later runs use a new session.
func NewSessionRunner(client *Client, resource string, options ...SessionRunnerOption) *Runner {
	r := newSessionRunner(client, resource, options)
	r.exitOnLoss = true
	return r
}

// NewSessionPresenceRunner returns a runner that announces a value, such as an address, over the session of a client.
// Like the runner of NewPresenceRunner it announces a lost presence again, until the client is closed. While another
// owner announces the resource, it waits in the queue.
func NewSessionPresenceRunner(client *Client, resource, value string, options ...SessionRunnerOption) *Runner {
	return newSessionRunner(client, resource, append([]SessionRunnerOption{WithPresence(value)}, options...))
}

func newSessionRunner(client *Client, resource string, options []SessionRunnerOption) *Runner {
	var c sessionRunnerConfig
	for _, option := range options {
		option.runner(&c)
	}
	want, err := newWant(resource, true, c.asked)
	ttl := want.TTL
	var pool *stream.Pool
	if client != nil {
		c.options = append([]Option{WithOwner(client.owner)}, c.options...)
		ttl, pool = cmp.Or(ttl, client.config.ttl), client.pool
	}
	s := newSettings(ttl, 0, maxSessionTTL, c.options)
	if client != nil {
		s.observers = slices.Concat(client.observers, s.observers)
	}
	s.wrong = errors.Join(s.wrong, err)
	return &Runner{settings: s, key: resource, owner: s.Owner, usable: client != nil, holder: &stream.Holder{
		Pool: pool, TTL: s.TTL, Owner: s.Owner, Resource: resource, Want: want,
		RetryInterval: s.RetryInterval, ReleaseTimeout: s.ReleaseTimeout, Log: s.Log,
	}}
}

// sessionRunnerConfig are the options of a runner by a session.
type sessionRunnerConfig struct {
	options []Option
	asked   []AcquireOption
}
