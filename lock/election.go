package lock

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"

	"github.com/locket-service/locket/lock/internal/base"
	"github.com/locket-service/locket/lock/internal/feed"
	"github.com/locket-service/locket/lock/internal/stream"
	"github.com/locket-service/locket/models"
)

// ErrCampaigning is the error of Campaign while another one of the same election is under way, or has been won.
var ErrCampaigning = errors.New("the election has a campaign already")

// Leader is who has been elected. The zero Leader is nobody.
type Leader struct {
	Owner, Value string
	// Token is the fencing token: it is greater with each leader.
	Token uint64
}

// Election elects one leader among those who campaign for a resource, first come, first served. Its
// methods may be called by any number of goroutines.
type Election struct {
	client  *Client
	name    string
	options []AcquireOption

	mu       sync.Mutex
	campaign bool
	hold     *Hold
}

// NewElection returns the election of a name, which is a resource. An invalid name is an error of Campaign.
func NewElection(client *Client, name string, options ...AcquireOption) *Election {
	return &Election{client: client, name: name, options: options}
}

// Campaign waits until it is elected, and tells the others a value. What it returns is held for as long as
// it leads: its context ends with that. To release it is to resign.
func (e *Election) Campaign(ctx context.Context, value string) (*Hold, error) {
	if err := e.begin(); err != nil {
		return nil, fmt.Errorf("election %q: %w", e.name, err)
	}
	alone := acquireFunc(func(w *stream.Want) { w.Alone = new(byte) })
	hold, err := e.client.Acquire(ctx, e.name, append([]AcquireOption{WithValue(value), alone}, e.options...)...)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.campaign, e.hold = false, hold
	return hold, err
}

func (e *Election) begin() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.campaign || e.hold != nil && e.hold.Err() == nil {
		return ErrCampaigning
	}
	e.campaign = true
	return nil
}

// Resign gives the leadership up, and returns when the servers know, as Hold.Release does. Without the leadership it
// does nothing.
func (e *Election) Resign(ctx context.Context) error {
	e.mu.Lock()
	hold := e.hold
	e.hold = nil
	e.mu.Unlock()
	if hold == nil {
		return nil
	}
	return hold.Release(ctx)
}

// Observe returns the leader as it is, and then each time that it is another one or has another value,
// until the loop ends, ctx is done, or the servers refuse, which is an error. Without a leader it is the zero Leader.
// A loop that takes its time misses leaders in between, and never the last one.
func (e *Election) Observe(ctx context.Context) iter.Seq2[Leader, error] {
	return func(yield func(Leader, error) bool) {
		if err := base.CheckResource(e.name); err != nil {
			yield(Leader{}, fmt.Errorf("election %q: %w", e.name, err))
			return
		}
		ctx, cancel := context.WithCancel(ctx)
		leaders := make(chan *models.Claim, 1)
		failed := make(chan error, 1)
		f := &feed.Follower{Client: e.client.rpc, Request: &models.WatchRequest{Resource: &e.name}, Changed: func(claims map[string]*models.Claim) {
			select { // the latest one counts
			case <-leaders:
			default:
			}
			leaders <- holderOf(claims)
		}}
		var following sync.WaitGroup
		following.Go(func() { failed <- f.Run(ctx) })
		defer following.Wait()
		defer cancel()
		e.observe(leaders, failed, yield)
	}
}

// observe yields leaders that differ from the one before.
func (e *Election) observe(leaders <-chan *models.Claim, failed <-chan error, yield func(Leader, error) bool) {
	for last, first := (Leader{}), true; ; {
		select {
		case claim := <-leaders:
			leader := Leader{claim.GetOwner(), claim.GetValue(), claim.GetToken()}
			if leader == last && !first {
				continue
			}
			if last, first = leader, false; !yield(leader, nil) {
				return
			}
		case err := <-failed:
			yield(Leader{}, fmt.Errorf("election %q: %w", e.name, err))
			return
		}
	}
}

// holderOf returns the claim that holds, nil if none does.
func holderOf(claims map[string]*models.Claim) (holder *models.Claim) {
	for _, c := range claims {
		if c.GetStatus() == models.Status_STATUS_ACTIVE && c.GetToken() > holder.GetToken() {
			holder = c
		}
	}
	return holder
}
