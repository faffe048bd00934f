package watch

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"time"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/periodic"
)

const (
	followInterval = 20 * time.Millisecond
	// idleFollow is how often the feed is read when nobody waits for news here.
	idleFollow = 2 * time.Second
	// tidyInterval is how often servers that are gone are forgotten.
	tidyInterval = time.Minute
)

// Follower reads the feed and tells a hub what other servers did.
type Follower struct {
	feed db.Feed
	hub  *Hub
	log  *slog.Logger

	position db.Position // nil: at the end, wherever that is
	tidied   time.Time
	missed   bool // changes may have been missed
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
	commits, err := f.read(ctx)
	switch {
	case errors.Is(err, db.ErrFeedGap):
		f.missed = true
	case err != nil:
		f.missed = true // it may take long to read them
		f.log.Debug("the changes of other servers cannot be read", "error", err)
		return
	}
	if f.missed {
		f.missed = false
		f.hub.notifyAll()
		return
	}
	f.hub.heard(commits)
}

// read returns the new commits, and moves the position behind them. At first, and when there are
// too many, it goes to the end of the feed; in that case it returns db.ErrFeedGap, as it does
// when commits are missing.
func (f *Follower) read(ctx context.Context) (commits []db.Commit, err error) {
	if err := f.tidy(ctx); err != nil {
		return nil, err
	}
	commits, err = f.feed.Changes(ctx, f.position, false)
	if errors.Is(err, db.ErrFeedGap) {
		f.position = nil
		return nil, errors.Join(err, f.tidy(ctx))
	}
	for _, c := range commits {
		err = errors.Join(err, f.position.Follow(c))
	}
	return commits, err
}

// tidy finds the end of the feed if there is no position yet. Else it forgets the servers of
// which the feed has nothing any more: they are gone.
func (f *Follower) tidy(ctx context.Context) error {
	if f.position != nil && time.Since(f.tidied) < tidyInterval {
		return nil
	}
	end, _, err := f.feed.End(ctx)
	if err != nil {
		return err
	}
	f.tidied = time.Now()
	if f.position == nil {
		f.position = end
	}
	for server := range f.position {
		if _, there := end[server]; !there {
			delete(f.position, server)
		}
	}
	return nil
}
