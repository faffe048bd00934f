package committer

import (
	"context"
	"log/slog"
	"os"
	"time"

	"github.com/locket-service/locket/db"
)

const (
	followInterval = 20 * time.Millisecond
	// idleFollow is how often the feed is read when nobody waits here.
	idleFollow = time.Second
)

// Follower tells the calls that await claims on this server what other servers did to
// those claims.
type Follower struct {
	store     db.Store
	committer *Committer
	log       *slog.Logger

	last   time.Time
	missed bool // the last read failed, so changes may have been missed
}

// NewFollower returns a follower of the store for the calls that wait at the committer.
func NewFollower(store db.Store, committer *Committer, log *slog.Logger) *Follower {
	return &Follower{store: store, committer: committer, log: log}
}

// Run implements ifrit.Runner.
func (f *Follower) Run(signals <-chan os.Signal, ready chan<- struct{}) error {
	return every(followInterval, signals, ready, f.follow)
}

func (f *Follower) follow(ctx context.Context) {
	if f.committer.hub.len() == 0 && time.Since(f.last) < idleFollow {
		return
	}
	f.last = time.Now()
	ids, err := f.store.Changes(ctx)
	if err != nil {
		f.missed = true
		f.log.Debug("the changes of other servers cannot be read", "error", err)
		return
	}
	if f.missed {
		f.missed = false
		f.committer.hub.notifyAll()
		return
	}
	for _, id := range ids {
		f.committer.hub.notify(id, nil)
	}
}
