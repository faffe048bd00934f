package lock

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/locket-service/locket/models"
)

// NewSessionRunner returns a runner like that of NewClaimRunner that holds by the session of a client: any number of
// runners of a process share one heartbeat, and a loss is known at once rather than at the next renewal. It
// has the owner and the TTL of the client; with another owner or TTL in the claim it uses another session of
// the client, as with the option TTL. The claim's id is not used: the server chooses it. Circles are allowed, since the runners
// of a session wait independently of each other.
//
// If the session is lost, all its runners lose their locks together. What is started after that uses a new one.
func NewSessionRunner(client *Client, claim *models.CreateClaimRequest, options ...Option) *Runner {
	r := newSessionRunner(client, claim, options)
	r.exitOnLoss = true
	return r
}

// NewSessionPresenceRunner returns a runner like that of NewPresenceRunner that announces by the session of a
// client. It waits for its turn if another owner announces the key. NewSessionRunner says the rest.
func NewSessionPresenceRunner(client *Client, resource *models.Resource, options ...Option) *Runner {
	resource = withType(resource, models.TypeCode_PRESENCE)
	if resource == nil {
		return newSessionRunner(client, nil, options)
	}
	return newSessionRunner(client, &models.CreateClaimRequest{
		Resource: resource.GetKey(), Owner: resource.GetOwner(), Value: resource.GetValue(), TypeCode: resource.GetTypeCode(),
	}, options)
}

func newSessionRunner(client *Client, claim *models.CreateClaimRequest, options []Option) *Runner {
	claim, _ = proto.Clone(claim).(*models.CreateClaimRequest)
	g := &sessionGrantor{client: client, resource: claim.GetResource(), noWait: claim.GetNoWait()}
	if client != nil {
		g.key = sessionKey{ttl: client.config.ttl, owner: client.owner}
		options = append([]Option{WithOwner(client.owner)}, options...)
		if claim.GetOwner() != "" {
			options = append([]Option{WithOwner(claim.GetOwner())}, options[1:]...)
		}
	}
	settings := newSettings(g.key.ttl, 0, maxSessionTTL, options)
	if claim.GetTtl() != 0 {
		settings = newClaimSettings(claim.GetTtl(), maxSessionTTL, options)
	}
	g.key.ttl, g.key.owner = settings.ttl, settings.owner
	g.acquisition = acquisition{
		mode: claim.GetMode(), value: claim.GetValue(), typeCode: claim.GetTypeCode(), circle: true, userData: claim.UserData,
	}
	return &Runner{
		settings: settings, key: claim.GetResource(), owner: settings.owner,
		grantor: g, usable: client != nil && claim != nil,
	}
}

// sessionGrantor holds by a session of a client. A renewal is a look at the trust window of the session.
type sessionGrantor struct {
	client      *Client
	key         sessionKey
	resource    string
	acquisition acquisition
	noWait      bool

	mu    sync.Mutex
	turn  *turn     // the one that waits or holds; nil without one
	until time.Time // of the lease as take has returned it
}

func (g *sessionGrantor) take(ctx, leave context.Context, token uint64) (uint64, time.Duration, error) {
	begun := time.Now()
	t, err := g.current(token)
	if err != nil {
		return 0, 0, err
	}
	if token == 0 {
		select {
		case <-t.decided:
		case <-ctx.Done():
			return 0, 0, errWaiting
		case <-leave.Done():
			return 0, 0, errWaiting
		}
	} else if err := g.verify(ctx, t, begun); err != nil && t.verdict() == nil {
		return 0, 0, err
	}
	if err := t.verdict(); err != nil {
		g.drop(t)
		if loss := new(lossError); errors.As(err, &loss) {
			return 0, 0, holdEndedError{loss.cause}
		}
		return 0, 0, cmp.Or(t.gate.session.whether(ctx, err), err)
	}
	lasts := t.gate.session.lasts(begun)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.until = begun.Add(lasts)
	return t.token, lasts, nil
}

// verify returns when a server was heard of since a third of the TTL, or with an error while half of what is left of the lease is.
func (g *sessionGrantor) verify(ctx context.Context, t *turn, begun time.Time) error {
	g.mu.Lock()
	left := g.until.Sub(begun)
	g.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, left/2)
	defer cancel()
	return t.gate.session.verify(ctx, begun.Add(-g.key.ttl/3))
}

// current returns the turn under way; without a token it makes one if there is none.
func (g *sessionGrantor) current(token uint64) (*turn, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.turn != nil || token != 0 {
		return g.turn, nil
	}
	if err := checkResource(g.resource); err != nil {
		return nil, errors.Join(errInvalid, err)
	}
	t, err := g.client.join(g.key, g.resource, g.acquisition, g.noWait)
	if err != nil {
		return nil, errors.Join(errInvalid, err)
	}
	g.turn = t
	return t, nil
}

// holdEndedError says why what was held has ended.
type holdEndedError struct{ error }

func (e holdEndedError) Unwrap() error { return e.error }

// errInvalid marks errors that another attempt would have too.
var errInvalid = errors.New("the lock cannot be taken")

// drop forgets a turn that is over.
func (g *sessionGrantor) drop(t *turn) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.turn == t {
		g.turn = nil
	}
}

func (g *sessionGrantor) release(ctx context.Context, token uint64) error {
	g.mu.Lock()
	t := g.turn
	g.mu.Unlock()
	if t == nil || token != 0 && t.token != token {
		return nil
	}
	err := t.giveUp(ctx)
	if err == nil {
		g.drop(t)
	}
	return err
}

// watch has a renewal find out, which also looks whether the whole session is over.
func (g *sessionGrantor) watch(ctx context.Context, _ uint64, look func()) error {
	g.mu.Lock()
	t := g.turn
	g.mu.Unlock()
	if t != nil {
		select {
		case <-t.done:
			look()
		case <-ctx.Done():
		}
	}
	return nil
}

func (g *sessionGrantor) exact(uint64) bool { return true }

func (g *sessionGrantor) timeout(token uint64) time.Duration {
	if token == 0 {
		return maxAttempt
	}
	return attemptTimeout(g.key.ttl)
}

func (g *sessionGrantor) classify(err error) verdict {
	switch {
	case errors.Is(err, errWaiting):
		return waiting
	case errors.As(err, new(holdEndedError)), errors.Is(err, ErrReleased):
		return ended
	case errors.Is(err, errInvalid), errors.Is(err, ErrClosed), errors.Is(err, models.ErrLockCollision), errors.As(err, new(claimEndedError)):
		return permanent
	default:
		return classify(err)
	}
}

func (g *sessionGrantor) next() grantor {
	return &sessionGrantor{client: g.client, key: g.key, resource: g.resource, acquisition: g.acquisition, noWait: g.noWait}
}

func (g *sessionGrantor) id() string { return "" }
