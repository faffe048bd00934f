package lock

import (
	"context"
	"errors"
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
	h := &sessionHolder{client: client, resource: claim.GetResource(), noWait: claim.GetNoWait()}
	if client != nil {
		h.key = sessionKey{ttl: client.config.ttl, owner: client.owner}
		options = append([]Option{WithOwner(client.owner)}, options...)
		if claim.GetOwner() != "" {
			options = append([]Option{WithOwner(claim.GetOwner())}, options[1:]...)
		}
	}
	settings := newSettings(h.key.ttl, 0, maxSessionTTL, options)
	if claim.GetTtl() != 0 {
		settings = newClaimSettings(claim.GetTtl(), maxSessionTTL, options)
	}
	h.settings = settings
	h.key.ttl, h.key.owner = settings.ttl, settings.owner
	h.acquisition = acquisition{
		mode: claim.GetMode(), value: claim.GetValue(), typeCode: claim.GetTypeCode(), circle: true, userData: claim.UserData,
	}
	return &Runner{
		settings: settings, key: claim.GetResource(), owner: settings.owner,
		holder: h, usable: client != nil && claim != nil,
	}
}

// sessionHolder holds by a session of a client.
type sessionHolder struct {
	settings
	client      *Client
	key         sessionKey
	resource    string
	acquisition acquisition
	noWait      bool
}

func (h *sessionHolder) acquire(ctx context.Context, o observer) (*Hold, error) {
	if err := checkResource(h.resource); err != nil {
		return nil, err
	}
	a := h.acquisition
	a.observer = &o
	for {
		t, err := h.client.join(h.key, h.resource, a, h.noWait)
		if err != nil {
			return nil, err
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
		case <-time.After(h.jittered(h.retryInterval)):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// worthAnother reports whether another attempt may succeed where one has failed with err.
func (h *sessionHolder) worthAnother(err error) bool {
	return classify(err) == unclear && !errors.Is(err, ErrClosed) && !errors.Is(err, models.ErrLockCollision) && !errors.As(err, new(claimEndedError))
}

func (h *sessionHolder) claimID() string { return "" }
