package watch

import (
	"context"
	"log/slog"
	"os"
	"time"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/periodic"
)

const (
	followInterval = 20 * time.Millisecond
	// idleFollow is how often the feed is read when no call waits here.
	idleFollow = 2 * time.Second
	// longestGap is how long the feed may go unread by a server that misses nothing. Rows are
	// kept for a minute; a process that was stopped for longer has missed some.
	longestGap = 10 * time.Second
)

// Follower wakes the calls at a hub for what other servers did to their claims.
type Follower struct {
	feed db.Feed
	hub  *Hub
	log  *slog.Logger

	last   time.Time // when the feed was read last
	missed bool      // changes may have been missed
}

// NewFollower returns a follower of the other servers' feed for the calls that wait at a hub.
func NewFollower(feed db.Feed, hub *Hub, log *slog.Logger) *Follower {
	return &Follower{feed: feed, hub: hub, log: log}
}

// Run implements ifrit.Runner.
func (f *Follower) Run(signals <-chan os.Signal, ready chan<- struct{}) error {
	return periodic.Paced(f.pause, f.hub.began, f.follow).Run(signals, ready)
}

// pause returns how long to leave the feed alone.
func (f *Follower) pause() time.Duration {
	if f.hub.len() == 0 {
		return idleFollow
	}
	return followInterval
}

func (f *Follower) follow(ctx context.Context) {
	if !f.last.IsZero() && since(f.last) > longestGap {
		f.missed = true
	}
	f.last = time.Now()
	ids, err := f.feed.Changes(ctx)
	if err != nil {
		f.missed = true
		f.log.Debug("the changes of other servers cannot be read", "error", err)
		return
	}
	if f.missed {
		f.missed = false
		f.hub.notifyAll()
		return
	}
	for _, id := range ids {
		f.hub.notify(id, nil)
	}
}

// since returns how long ago a moment was, by the clock that says more: a machine that sleeps
// stops the monotonic one.
func since(t time.Time) time.Duration {
	return max(time.Since(t), time.Now().Round(0).Sub(t.Round(0)))
}
