package lock

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"

	"github.com/locket-service/locket/lock/internal/base"
	"github.com/locket-service/locket/lock/internal/feed"
	"github.com/locket-service/locket/models"
)

// ErrCampaigning is the error of Campaign while another one of the same election is under way, or has been won.
var ErrCampaigning = errors.New("the election has a campaign already")

// Leader is the elected leader. The zero Leader means that there is none.
type Leader struct {
	Owner, Value string
	// Token is the fencing token: it is greater with each leader.
	Token uint64
}

// Election elects one leader among the campaigns for a resource, first come, first served. Its methods may be called
// by any number of goroutines.
type Election struct {
	client  *Client
	name    string
	options []AcquireOption

	mu       sync.Mutex
	campaign bool
	hold     *Hold
}

// NewElection returns the election with a name, which is a resource. Campaign returns an error if the name is invalid.
func NewElection(client *Client, name string, options ...AcquireOption) *Election {
	return &Election{client: client, name: name, options: options}
}

// Campaign waits until it is elected, and publishes a value, such as the leader's address. The returned Hold lasts for
// as long as it leads. Releasing it resigns.
func (e *Election) Campaign(ctx context.Context, value string) (*Hold, error) {
	if err := e.begin(); err != nil {
		return nil, fmt.Errorf("election %q: %w", e.name, err)
	}
	var hold *Hold
	holder, err := e.client.holder(e.name, append([]AcquireOption{WithValue(value)}, e.options...), false)
	if err == nil {
		holder.Want.Alone = new(byte)
		hold, err = e.client.acquire(ctx, holder)
	}
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

// Resign gives up the leadership, and returns when the servers know. Without leadership it does nothing.
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

// Observe returns the current leader, and then each change of the leader or its value, until the loop ends, ctx is
// done, or the servers refuse; the last pair has the error. If there is no leader, it returns the zero Leader. A slow
// loop may miss leaders in between, but never the latest.
func (e *Election) Observe(ctx context.Context) iter.Seq2[Leader, error] {
	return func(yield func(Leader, error) bool) {
		if err := base.CheckResource(e.name); err != nil {
			yield(Leader{}, fmt.Errorf("election %q: %w", e.name, err))
			return
		}
		ctx, cancel := context.WithCancel(ctx)
		f := feed.Follow(ctx, e.client.rpc, &models.WatchRequest{Resource: &e.name})
		defer func() {
			cancel()
			<-f.Done()
		}()
		var last *Leader
		for {
			claims, changed := f.Claims()
			if leader := leaderOf(claims); claims != nil && (last == nil || leader != *last) {
				if last = &leader; !yield(leader, nil) {
					return
				}
			}
			select {
			case <-changed:
			case <-f.Done():
				yield(Leader{}, fmt.Errorf("election %q: %w", e.name, f.Err()))
				return
			}
		}
	}
}

// leaderOf returns whose claim holds, nobody if none does.
func leaderOf(claims map[string]*models.Claim) (leader Leader) {
	for _, c := range claims {
		if c.GetStatus() == models.Status_STATUS_ACTIVE && c.GetToken() > leader.Token {
			leader = Leader{c.GetOwner(), c.GetValue(), c.GetToken()}
		}
	}
	return leader
}
