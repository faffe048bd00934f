package db

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/locket-service/locket/internal/rules/claim"
)

// LocalFeed is the Feed of an engine whose servers see each commit: the last commits, in memory, for as long as they are
// being read. A server by itself has another name after a restart, so earlier positions give ErrFeedGap.
//
// The servers of a cluster share one feed: all commits are of one name, the cluster's, and have the numbers of its log.
// A commit may have changes of several servers. It comes without own too, but then without this server's changes.
type LocalFeed struct {
	wall    func() time.Time // the clock that End reads
	mu      sync.Mutex
	server  string
	shared  bool
	arrived chan struct{} // nil unless it is shared
	asked   time.Time     // when somebody asked last; zero while nothing is kept
	last    uint64
	commits []localCommit // the last of them, in order
	bytes   int
}

type localCommit struct {
	at   time.Time
	wall claim.Time
	// record has all changes, and others what is left without this server's: nil for nothing.
	record, others []byte
}

// NewLocalFeed returns an empty feed of an engine with a clock.
func NewLocalFeed(wall func() time.Time) *LocalFeed {
	return &LocalFeed{wall: wall, server: uuid.NewString()[:23]}
}

// Share makes it the feed of a cluster with a name, whose last commit had a number.
func (f *LocalFeed) Share(cluster string, last uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.server, f.shared, f.last, f.arrived = cluster, true, last, make(chan struct{}, 1)
}

// Committed adds a commit with changes. others are the ones that this server has not made.
func (f *LocalFeed) Committed(wall claim.Time, changes, others []claim.Transition) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last++
	if f.shared && len(others) > 0 {
		select {
		case f.arrived <- struct{}{}:
		default: // nobody has looked since the last one
		}
	}
	now := time.Now()
	if now.Sub(f.asked) > FeedAge {
		f.commits, f.bytes = nil, 0
		return
	}
	kept := localCommit{at: now, wall: wall, record: AppendRecord(nil, wall, changes)}
	switch len(others) {
	case 0:
	case len(changes):
		kept.others = kept.record
	default:
		kept.others = AppendRecord(nil, wall, others)
	}
	f.commits = append(f.commits, kept)
	f.bytes += kept.bytes()
	for now.Sub(f.commits[0].at) > FeedAge || f.bytes > FeedBytes {
		f.bytes -= f.commits[0].bytes()
		f.commits[0] = localCommit{}
		f.commits = f.commits[1:]
	}
}

func (c *localCommit) bytes() int { return len(c.record) + len(c.others) }

// read returns the commit, with or without this server's changes.
func (c *localCommit) read(own bool) (Commit, error) {
	read := Commit{At: c.wall}
	if len(c.others) > 0 {
		_, changes, err := ReadRecord(c.others)
		if err != nil {
			return read, err
		}
		read.Others, read.Changes, read.Record = changes, changes, c.others
	}
	if !own || len(c.record) == len(c.others) {
		return read, nil
	}
	_, changes, err := ReadRecord(c.record)
	read.Changes, read.Record = changes, c.record
	return read, err
}

// End implements Feed. With own, what is committed from now on is kept.
func (f *LocalFeed) End(_ context.Context, own bool) (Position, claim.Time, error) {
	now := claim.Time(f.wall().UnixMicro())
	f.mu.Lock()
	defer f.mu.Unlock()
	if !own && !f.shared {
		return Position{}, now, nil
	}
	f.asked = time.Now()
	return Position{f.server: f.last}, now, nil
}

func (f *LocalFeed) Changes(_ context.Context, after Position, own bool) ([]Commit, error) {
	if !own && !f.isShared() {
		return nil, nil
	}
	n, kept, err := f.since(after)
	if err != nil {
		return nil, err
	}
	commits := make([]Commit, len(kept))
	for i := range kept {
		if commits[i], err = kept[i].read(own); err != nil {
			return nil, err
		}
		commits[i].Server, commits[i].N = f.server, n+1+uint64(i)
	}
	return commits, nil
}

// since returns the number of the last commit before a position, and those after it.
func (f *LocalFeed) since(position Position) (n uint64, kept []localCommit, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = time.Now()
	n, known := position[f.server]
	known = known || f.shared // from its first commit on
	switch {
	case known && n >= f.last:
		return n, nil, nil
	case !known || f.last-n > uint64(len(f.commits)):
		return n, nil, ErrFeedGap
	}
	return n, slices.Clone(f.commits[uint64(len(f.commits))-(f.last-n):]), nil
}

func (f *LocalFeed) isShared() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.shared
}

func (f *LocalFeed) Arrived() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.arrived
}
