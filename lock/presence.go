package lock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/locket-service/locket/internal/base/periodic"
	"github.com/locket-service/locket/lock/internal/base"
	"github.com/locket-service/locket/lock/internal/stream"
)

// presence is a client's announcement by Acquire. After a loss it is announced again, until it is released or the client is closed.
type presence struct {
	client *Client
	holder stream.Holder // for the next announcement
	// ctx is done when it is given up: its cause says why.
	ctx context.Context
	end context.CancelCauseFunc
	// gone is closed when it has been given up; failure is why the servers may not know that.
	gone    chan struct{}
	failure error

	mu   sync.Mutex
	hold *Hold // the last one
}

var _ base.Hold = (*presence)(nil)

// announce keeps a presence announced that has just been acquired.
func (c *Client) announce(ctx context.Context, holder *stream.Holder, hold *Hold) *Hold {
	p := &presence{client: c, holder: *holder, gone: make(chan struct{}), hold: hold}
	p.holder.Try, p.holder.ReleaseTimeout = false, c.releaseTimeout
	p.ctx, p.end = context.WithCancelCause(context.WithoutCancel(ctx))
	go p.keep()
	return &Hold{p}
}

// keep announces the presence again after each loss, until it is given up.
func (p *presence) keep() {
	defer close(p.gone)
	for {
		select {
		case <-p.ctx.Done():
			p.failure = p.release()
			return
		case <-p.last().Done():
		}
		for err := p.last().Err(); err != nil; err = p.announceAgain() {
			if errors.Is(err, ErrClosed) {
				p.end(err)
			}
			if p.ctx.Err() != nil {
				return
			}
			p.client.log.Warn("presence not announced; it is tried again", "lock", p.holder.Resource, "owner", p.holder.Owner, "error", err)
			_ = periodic.Pause(p.ctx, base.Jittered(min(DefaultRetryInterval, p.holder.TTL/10)))
		}
	}
}

// announceAgain waits until the presence is announced.
func (p *presence) announceAgain() error {
	hold, err := p.client.acquire(p.ctx, &p.holder)
	if err == nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.hold = hold
	}
	return err
}

// release gives up what is announced.
func (p *presence) release() error {
	ctx, cancel := context.WithTimeout(context.Background(), p.client.releaseTimeout)
	defer cancel()
	return p.last().Release(ctx)
}

func (p *presence) last() *Hold {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.hold
}

// Token implements base.Hold: it returns the last announcement's token.
func (p *presence) Token() uint64 { return p.last().Token() }

// Deadline implements base.Hold: it has passed while the presence is not announced.
func (p *presence) Deadline() time.Time { return p.last().Deadline() }

// Check implements base.Hold. No clock ends a presence.
func (*presence) Check() {}

func (p *presence) Context() context.Context { return p.ctx }

func (p *presence) Release(ctx context.Context) error {
	p.end(base.ErrReleased)
	select {
	case <-p.gone:
		return p.failure
	case <-ctx.Done():
		return fmt.Errorf("unlock %q: %w", p.holder.Resource, ctx.Err())
	}
}

func (p *presence) StopClock() { p.last().held.StopClock() }
