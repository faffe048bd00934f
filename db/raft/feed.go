package raft

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/locket-service/locket/claim"
	"github.com/locket-service/locket/db"
)

// feed has the last commits, for as long as somebody asks for them. After a restart the server has another name.
type feed struct {
	mu      sync.Mutex
	server  string
	asked   time.Time // when somebody asked last; zero while nothing is kept
	last    uint64
	commits []feedCommit // the last of them, in order
	bytes   int
}

type feedCommit struct {
	at     time.Time
	record []byte
}

func newFeed() *feed { return &feed{server: uuid.NewString()[:23]} }

// committed adds a commit.
func (f *feed) committed(wall claim.Time, changes []claim.Transition) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last++
	now := time.Now()
	if now.Sub(f.asked) > db.FeedAge {
		f.commits, f.bytes = nil, 0
		return
	}
	record := db.AppendRecord(nil, wall, changes)
	f.commits = append(f.commits, feedCommit{now, record})
	f.bytes += len(record)
	for now.Sub(f.commits[0].at) > db.FeedAge || f.bytes > db.FeedBytes {
		f.bytes -= len(f.commits[0].record)
		f.commits[0].record = nil
		f.commits = f.commits[1:]
	}
}

// End implements db.Feed. With own, what is committed from now on is kept.
func (s *Store) End(_ context.Context, own bool) (db.Position, claim.Time, error) {
	if !own {
		return db.Position{}, wallTime(), nil
	}
	f := s.feed
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = time.Now()
	return db.Position{f.server: f.last}, wallTime(), nil
}

// Changes implements db.Feed. Positions of an earlier process are too old.
func (s *Store) Changes(_ context.Context, after db.Position, own bool) ([]db.Commit, error) {
	if !own {
		return nil, nil
	}
	n, kept, err := s.feed.after(after)
	if err != nil {
		return nil, err
	}
	commits := make([]db.Commit, len(kept))
	for i, k := range kept {
		at, changes, err := db.ReadRecord(k.record)
		if err != nil {
			return nil, err
		}
		commits[i] = db.Commit{Server: s.feed.server, N: n + 1 + uint64(i), At: at, Changes: changes, Record: k.record, Own: true}
	}
	return commits, nil
}

// after returns the number of the last commit before a position, and those after it.
func (f *feed) after(position db.Position) (n uint64, kept []feedCommit, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = time.Now()
	n, known := position[f.server]
	switch {
	case known && n >= f.last:
		return n, nil, nil
	case !known || f.last-n > uint64(len(f.commits)):
		return n, nil, db.ErrFeedGap
	}
	return n, slices.Clone(f.commits[uint64(len(f.commits))-(f.last-n):]), nil
}
