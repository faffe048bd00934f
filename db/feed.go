package db

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/locket-service/locket/internal/rules/claim"
)

const (
	// FeedAge is for how long a server's commits are kept in the feed, and FeedBytes how many
	// bytes of their Records: older ones are deleted first; the last one of all is kept.
	FeedAge   = 10 * time.Minute
	FeedBytes = 64 << 20
)

// ErrFeedGap is returned when commits after a position are no longer in the feed, cannot be read, or are more than may
// be read at once.
var ErrFeedGap = errors.New("changes after the position are no longer kept")

// Feed has the commits of all servers of a database. Each server numbers its commits from 1 on, without gaps; a server
// that does not know how a commit of its own ended continues under a new name.
type Feed interface {
	// Arrived gets a value when another server's commit is in the feed. It is nil where only reading the feed tells.
	Arrived() <-chan struct{}

	// End returns the last commit of each server that is in the feed, at one moment, and what
	// time it is. This server is there with own only.
	End(ctx context.Context, own bool) (Position, claim.Time, error)

	// Changes returns the commits after a position, all at one moment: a commit comes together with all commits that it
	// builds on. They are ordered by server and number. This server's changes come with own only. It returns ErrFeedGap
	// if there are more than FeedBytes, or if one cannot be read; the caller finds out with Follow whether commits are
	// missing before the first one.
	Changes(ctx context.Context, after Position, own bool) ([]Commit, error)
}

// Position is a place in the feed: for each server the number of its last commit before it. A
// server that is not there has committed nothing before it.
type Position map[string]uint64

// Commit has the changes of one transaction of a server.
type Commit struct {
	Server string
	N      uint64
	// At is the time of the transaction.
	At claim.Time
	// Changes are the changes of status, value or type, in order: After is without UserData, and
	// without a Value of more than MaxFeedValue bytes; Before has ID, Resource, Type, Version and Status alone.
	Changes []claim.Transition
	// Record is At and Changes as AppendRecord wrote them.
	Record []byte
	// Others are the Changes that this server has not made, under the name that it has now.
	Others []claim.Transition
}

// Follow moves a position behind a commit. It returns ErrFeedGap when commits between the two
// are missing.
func (p Position) Follow(c Commit) error {
	last := p[c.Server]
	p[c.Server] = max(last, c.N)
	if c.N != last+1 {
		return fmt.Errorf("%w: commit %d of %s comes after %d", ErrFeedGap, c.N, c.Server, last)
	}
	return nil
}
