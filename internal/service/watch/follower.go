package watch

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"os"
	"time"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/base/periodic"
	"github.com/locket-service/locket/internal/rules/claim"
)

const (
	followInterval = 20 * time.Millisecond
	// busyFollow is the minimum time between two reads of the feed.
	busyFollow = 5 * time.Millisecond
	// idleFollow is how often the feed is read while no call, session or watcher waits for changes here.
	idleFollow = 2 * time.Second
	// tidyInterval is how often servers that have no more commits in the feed are removed from the position.
	tidyInterval = time.Minute
)

// Follower reads the feed. It reports the commits of other servers to a hub, and the commits of all servers to the
// watchers.
type Follower struct {
	feed db.Feed
	hub  *Hub
	log  *slog.Logger

	position db.Position // nil: the end of the feed
	own      bool        // the position counts this server's own commits too
	missed   bool        // changes may have been missed
	read     time.Time   // when the last read began

	tidied time.Time  // when the end of the feed was last read
	clock  claim.Time // the database's time then
	past   *db.Past   // of the database's clock
}

// NewFollower returns a follower of the feed for a hub.
func NewFollower(feed db.Feed, hub *Hub, log *slog.Logger) *Follower {
	return &Follower{feed: feed, hub: hub, log: log, past: db.NewPast(db.FeedAge)}
}

// Run implements ifrit.Runner. It reads the feed at once, because the earlier commits of other servers are not known
// here.
func (f *Follower) Run(signals <-chan os.Signal, ready chan<- struct{}) error {
	f.hub.poke()
	if arrived := f.feed.Arrived(); arrived != nil {
		ended := make(chan struct{})
		defer close(ended)
		go f.arrive(arrived, ended)
	}
	return periodic.Paced(f.pause, f.hub.wake, f.follow).Run(signals, ready)
}

// pause returns the time to the next read of the feed.
func (f *Follower) pause() time.Duration {
	if watched, _ := f.hub.log.wanted(); !watched && !f.hub.waits() {
		return idleFollow
	}
	return followInterval
}

// arrive has the feed read when a commit has arrived that somebody waits for, until ended is closed.
func (f *Follower) arrive(arrived <-chan struct{}, ended <-chan struct{}) {
	for {
		select {
		case <-ended:
			return
		case <-arrived:
			if f.pause() < idleFollow {
				f.hub.poke()
			}
		}
	}
}

func (f *Follower) follow(ctx context.Context) {
	if pause := busyFollow - time.Since(f.read); pause > 0 && f.feed.Arrived() == nil { // one read for several commits in a row
		if periodic.Pause(ctx, pause) != nil {
			return
		}
	}
	f.read = time.Now()
	if err := f.followOnce(ctx); err != nil {
		f.missed = true // the next read may come much later
		f.log.Debug("the changes of other servers cannot be read", "error", err)
		return
	}
	if f.missed {
		f.missed = false
		f.hub.notifyAll()
	}
}

func (f *Follower) followOnce(ctx context.Context) error {
	if err := f.tidy(ctx); err != nil {
		return err
	}
	if wanted, on := f.hub.log.wanted(); wanted && !on {
		return f.beginLog(ctx)
	} else if !wanted {
		f.own = false
	}
	commits, err := f.feed.Changes(ctx, f.position, f.own)
	if errors.Is(err, db.ErrFeedGap) { // too many commits, or one that is no longer kept or cannot be read
		f.lost()
		f.position = nil
		return f.tidy(ctx)
	}
	if err != nil {
		return err
	}
	f.advance(commits)
	commits = merge(commits)
	f.hub.applyFeed(commits)
	if f.own {
		f.hub.log.grow(commits, f.position, f.time(), f.oldest(), f.read)
	}
	return nil
}

// advance moves the position behind commits.
func (f *Follower) advance(commits []db.Commit) {
	for _, c := range commits {
		if f.position.Follow(c) != nil {
			f.lost()
		}
	}
}

// lost notes that commits of the feed were missed.
func (f *Follower) lost() {
	f.missed = true
	f.hub.log.cut()
}

// beginLog begins the log of the watchers at the end of the feed. The commits before it are reported to the hub only.
func (f *Follower) beginLog(ctx context.Context) error {
	end, now, err := f.feed.End(ctx, true)
	if err != nil {
		return err
	}
	commits, err := f.feed.Changes(ctx, f.position, false)
	if err != nil && !errors.Is(err, db.ErrFeedGap) {
		return err
	}
	f.missed = f.missed || err != nil
	f.hub.applyFeed(commits)
	f.position, f.own = end, true
	f.saw(now, f.read)
	f.hub.log.begin(maps.Clone(end), now, f.oldest(), f.read)
	return nil
}

// time returns the database's time when the last read began.
func (f *Follower) time() claim.Time { return f.clock.Add(f.read.Sub(f.tidied)) }

// oldest returns the age limit of commits in the feed. Where the database's clock has stepped, it is an
// earlier one.
func (f *Follower) oldest() claim.Time { return min(f.time().Add(-db.FeedAge), f.past.Low()) }

// saw notes the database's time at a time of this server's clock.
func (f *Follower) saw(now claim.Time, at time.Time) {
	if at.Sub(f.tidied) > db.FeedAge/2 { // the clock may have stepped unseen
		f.past = db.NewPast(db.FeedAge)
	}
	f.past.Saw(now)
	f.tidied, f.clock = at, now
}

// tidy reads the end of the feed if there is no position yet. Otherwise, once in tidyInterval, it removes from the
// position the servers that have no more commits in the feed.
func (f *Follower) tidy(ctx context.Context) error {
	if f.position != nil && time.Since(f.tidied) < tidyInterval {
		return nil
	}
	begin := time.Now()
	end, now, err := f.feed.End(ctx, f.own)
	if err != nil {
		return err
	}
	f.saw(now, begin)
	if f.position == nil {
		f.position, f.own, f.missed = end, false, true
	}
	for server := range f.position {
		if _, there := end[server]; !there {
			delete(f.position, server)
		}
	}
	return nil
}
