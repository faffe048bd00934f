package replica

import (
	"bytes"
	"context"
	"math/rand/v2"
	"time"

	"github.com/locket-service/locket/db/replica/order"
)

// The decider is alive if its records or beats appear in the log. A server that needs one, and has seen none for
// silentTicks, raises the epoch. It decides once it has applied everything before its epoch in the log.

// beginEpoch notes an epoch. Everything before it in the log is applied. It reports whether the epoch is new: it is not when the
// log was lost and is followed again.
func (c *cluster) beginEpoch(e order.Epoch) (isNew bool) {
	c.applying.Lock()
	defer c.applying.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	if e.Number <= c.epoch.Number {
		return false
	}
	c.epoch = e
	mine := e.Number == c.raised && bytes.Equal(e.Decider, c.Peers.About())
	c.s.startClock(mine)
	switch {
	case mine:
		c.mine = e.Number
		clear(c.alive)
		clear(c.gone)
		c.s.options.Log.Info("this server decides", "epoch", e.Number)
	case c.mine != 0:
		c.mine = 0
		c.s.options.Log.Info("another server decides", "epoch", e.Number)
	}
	c.wakeWaiting()
	return true
}

// wakeWaiting wakes the calls that wait for a decider. The caller has mu.
func (c *cluster) wakeWaiting() {
	close(c.changed)
	c.changed = make(chan struct{})
}

// depose ends this server's decisions in an epoch.
func (c *cluster) depose(epoch uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mine == epoch {
		c.mine, c.raised = 0, 0
		c.wakeWaiting()
	}
}

// decides returns the epoch that this server decides in, 0 if it does not decide.
func (c *cluster) decides() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mine
}

// decider returns the decider, empty for none, and what is closed when there may be another one.
func (c *cluster) decider() (decider []byte, changed <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.epoch.Decider, c.changed
}

// watch looks for a decider, and becomes it if there is none.
func (c *cluster) watch(ctx context.Context) {
	tick := time.NewTicker(clusterTick)
	defer tick.Stop()
	patience := silentTicks + rand.IntN(jitterTicks+1)
	for {
		_, changed := c.decider()
		ticked := false
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			ticked = true
		case <-changed:
		case <-c.wanted:
		}
		if c.lacks(patience, ticked) {
			c.raise(ctx)
			patience = silentTicks + rand.IntN(jitterTicks+1)
		}
	}
}

// lacks counts a tick if there was one, and reports whether this server needs a decider and there is none. A server needs one
// for the calls that wait, and so that leases end.
func (c *cluster) lacks(patience int, ticked bool) bool {
	c.s.mu.RLock()
	live := c.s.state.ShortestTTL() > 0 || c.s.state.Lease < c.s.state.Quarantine
	c.s.mu.RUnlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.mine != 0, !live && c.wanting.Load() == 0, c.s.refused.Load(), c.s.noRoom.err() != nil:
		c.silent = 0
		return false
	case !c.s.HistoryComplete(): // the others know more about claims that have ended
		patience *= incompletePatience
	case len(c.epoch.Decider) == 0:
		return true
	}
	if ticked {
		c.silent++
	}
	return c.silent > patience
}

// raise raises the epoch. This server decides when it sees its own epoch in the log.
func (c *cluster) raise(ctx context.Context) {
	c.mu.Lock()
	after := c.epoch.Number
	c.raised = after + 1
	c.silent = 0
	c.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	if err := c.Log.Raise(ctx, after, c.last(), c.Peers.About()); err != nil {
		c.s.options.Log.Debug("this server cannot become the decider", "error", err)
	}
}

// resign tells the other servers that nobody decides, if this server does.
func (c *cluster) resign() {
	c.mu.Lock()
	epoch := c.mine
	c.mine, c.raised = 0, 0
	c.mu.Unlock()
	if epoch == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), answerTimeout)
	defer cancel()
	if err := c.Log.Raise(ctx, epoch, c.last(), nil); err != nil {
		c.s.options.Log.Debug("the other servers could not be told that this one stops", "error", err)
	}
}

// startClock begins lease time where the state is, for a server that decides or does not. It begins with the decider's time.
func (s *Store) startClock(decides bool) {
	s.mu.RLock()
	lease := s.state.Lease
	s.mu.RUnlock()
	if lease == 0 && decides {
		lease = s.clock.wallTime()
	}
	s.clock.start(lease)
}
