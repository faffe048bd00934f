package replica

import (
	"context"
	"fmt"
	"sync"

	"github.com/locket-service/locket/db"
)

// barrier makes reads wait until the state has everything that any server acknowledged before they came. A round asks
// the log for its last record. Reads that come during a round share the next one: this round's answer may be older than
// they are.
type barrier struct {
	wake chan struct{} // there are reads without a round

	mu    sync.Mutex // guards the following
	next  *round
	asked []answer // the rounds whose answers the state does not have yet
}

// round is a question to the log. ended is closed when the state has the answer, or when there is none: then err says why.
type round struct {
	ended chan struct{}
	err   error
}

// answer is the last record of the log when a round asked.
type answer struct {
	index uint64
	round *round
}

// wait waits until the state has everything acknowledged before the call.
func (c *cluster) wait(ctx context.Context) error {
	return c.awaitRound(ctx, c.barrier.join())
}

// awaitRound waits until a round has ended.
func (c *cluster) awaitRound(ctx context.Context, r *round) error {
	ctx, cancel := context.WithTimeoutCause(ctx, answerTimeout, db.ErrNoQuorum)
	defer cancel()
	select {
	case <-r.ended:
		return clusterUnavailable(r.err)
	case <-c.s.broken:
		return fmt.Errorf("%w: %w", db.ErrUnavailable, c.s.Failure())
	case <-c.s.closed:
		return fmt.Errorf("%w: %w", db.ErrUnavailable, errClosed)
	case <-ctx.Done():
		return clusterUnavailable(context.Cause(ctx))
	}
}

// join returns the round that has not begun.
func (b *barrier) join() *round {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.next == nil {
		b.next = &round{ended: make(chan struct{})}
		select {
		case b.wake <- struct{}{}:
		default: // it is awake
		}
	}
	return b.next
}

// readRounds asks the log, one round after the other.
func (c *cluster) readRounds(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.barrier.wake:
		}
		b := &c.barrier
		b.mu.Lock()
		r := b.next
		b.next = nil
		b.mu.Unlock()
		limited, cancel := context.WithTimeout(ctx, answerTimeout)
		last, err := c.Log.Last(limited, c.last())
		cancel()
		c.answered(err)
		if err != nil {
			r.err = err
			close(r.ended)
			continue
		}
		b.mu.Lock()
		b.asked = append(b.asked, answer{last, r})
		b.mu.Unlock()
		b.reached(c.last())
	}
}

// reached ends the rounds that the state is new enough for.
func (b *barrier) reached(index uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for len(b.asked) > 0 && b.asked[0].index <= index {
		close(b.asked[0].round.ended)
		b.asked = b.asked[1:]
	}
}

// confirmed is the db.Completion of a transaction that changes nothing. The decider gives its answers only if it still decides
// after a later question to the log. Otherwise another server may have changed what the answers say.
type confirmed struct {
	c     *cluster
	epoch uint64
	round *round
}

// Done implements db.Completion.
func (q confirmed) Done() <-chan struct{} { return q.round.ended }

// Wait implements db.Completion.
func (q confirmed) Wait(ctx context.Context) error {
	if err := q.c.awaitRound(ctx, q.round); err != nil {
		return err
	}
	if q.c.decides() != q.epoch {
		return fmt.Errorf("%w: %w", db.ErrUnavailable, ErrNotDecider)
	}
	return nil
}
