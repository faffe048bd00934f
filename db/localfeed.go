package db

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/locket-service/locket/internal/rules/claim"
)

// LocalFeed is the Feed of an engine with one server: the last commits of this process, in memory, for as long as
// they are being read. After a restart the server has another name, so earlier positions give ErrFeedGap.
type LocalFeed struct {
	wall    func() time.Time // the clock that End reads
	mu      sync.Mutex
	server  string
	asked   time.Time // when somebody asked last; zero while nothing is kept
	last    uint64
	commits []localCommit // the last of them, in order
	bytes   int
}

type localCommit struct {
	at     time.Time
	record []byte
}

// NewLocalFeed returns an empty feed of an engine with a clock.
func NewLocalFeed(wall func() time.Time) *LocalFeed {
	return &LocalFeed{wall: wall, server: uuid.NewString()[:23]}
}

// Committed adds a commit.
func (f *LocalFeed) Committed(wall claim.Time, changes []claim.Transition) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last++
	now := time.Now()
	if now.Sub(f.asked) > FeedAge {
		f.commits, f.bytes = nil, 0
		return
	}
	record := AppendRecord(nil, wall, changes)
	f.commits = append(f.commits, localCommit{now, record})
	f.bytes += len(record)
	for now.Sub(f.commits[0].at) > FeedAge || f.bytes > FeedBytes {
		f.bytes -= len(f.commits[0].record)
		f.commits[0].record = nil
		f.commits = f.commits[1:]
	}
}

// End implements Feed. With own, what is committed from now on is kept.
func (f *LocalFeed) End(_ context.Context, own bool) (Position, claim.Time, error) {
	now := claim.Time(f.wall().UnixMicro())
	if !own {
		return Position{}, now, nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = time.Now()
	return Position{f.server: f.last}, now, nil
}

// Changes implements Feed.
func (f *LocalFeed) Changes(_ context.Context, after Position, own bool) ([]Commit, error) {
	if !own {
		return nil, nil
	}
	n, kept, err := f.since(after)
	if err != nil {
		return nil, err
	}
	commits := make([]Commit, len(kept))
	for i, k := range kept {
		at, changes, err := ReadRecord(k.record)
		if err != nil {
			return nil, err
		}
		commits[i] = Commit{Server: f.server, N: n + 1 + uint64(i), At: at, Changes: changes, Record: k.record, Own: true}
	}
	return commits, nil
}

// since returns the number of the last commit before a position, and those after it.
func (f *LocalFeed) since(position Position) (n uint64, kept []localCommit, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = time.Now()
	n, known := position[f.server]
	switch {
	case known && n >= f.last:
		return n, nil, nil
	case !known || f.last-n > uint64(len(f.commits)):
		return n, nil, ErrFeedGap
	}
	return n, slices.Clone(f.commits[uint64(len(f.commits))-(f.last-n):]), nil
}
