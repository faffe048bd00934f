package mysql

import (
	"context"
	"database/sql"
	"errors"
	"maps"
	"sync"
	"sync/atomic"

	"github.com/locket-service/locket/db"
)

// Without a binary log InnoDB shows a commit to other connections, and lets its locks go, before the commit is in the
// redo log on disk. A crash in between takes back what a read has seen. So there is one rule: a result is returned only
// when all commits that the read can have seen are durable.
//
// Each commit that changes claims or sessions writes a row of the feed, and the redo log is one sequence. So a look at
// the ends of the feed, after the read, names all commits that the read can have seen, the last one of each server; and
// a commit that begins after the look, once it is acknowledged, makes them durable (a barrier). A server knows which
// commits are durable: its own that were acknowledged, and what earlier barriers covered. Where the look names no
// others nothing is written.
//
// The writes of the beat, the janitor and DetachSilent have no row in the feed, and need none: if they are lost, they
// are repeated.

const (
	feedLastSQL = "SELECT server, MAX(n) FROM feed GROUP BY server"
	// barrierSQL always changes a row, which nothing else reads: a transaction that changes none does not wait for the disk.
	barrierSQL = "INSERT INTO meta (one, seen, outage, floor) VALUES (2, 0, 0, 0) ON DUPLICATE KEY UPDATE floor = floor + 1"
)

// barriers records what is known to be durable, and the reads that wait for it.
type barriers struct {
	needed atomic.Bool // whether the database shows commits before they are durable: see showsEarly

	mu      sync.Mutex
	durable db.Position // for each server a commit that is durable, and so are those before it
	next    *round      // what a read joins; nil when none has joined it yet
	running bool        // whether a goroutine carries out rounds
}

// round is a look at the feed, and a barrier if need be, for all reads that ended before it began.
type round struct {
	done chan struct{} // closed when the round has ended
	err  error
}

// withRetry retries on a pool. Callers' reads use the reader's connections: there it returns only when everything that
// do has read is durable.
func (s *Store) withRetry(ctx context.Context, from *pool, do func(*sql.Conn) error) error {
	err := s.pools.withRetry(ctx, from, do)
	if from == s.reader && (err == nil || errors.Is(err, sql.ErrNoRows)) { // nothing is an answer too
		if early := s.awaitDurable(ctx); early != nil {
			return early
		}
	}
	return err
}

// awaitDurable returns when all that the caller has read until now is durable. Those who call it while a round is under way share
// the next one.
func (s *Store) awaitDurable(ctx context.Context) error {
	if !s.barriers.needed.Load() {
		return nil
	}
	r := s.joinRound()
	select {
	case <-r.done:
		return r.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *Store) joinRound() *round {
	b := &s.barriers
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.next == nil {
		b.next = &round{done: make(chan struct{})}
	}
	if !b.running {
		b.running = true
		go s.runRounds()
	}
	return b.next
}

// runRounds carries out rounds, one after the other, while reads wait for one. The timeouts of the connections bound each.
func (s *Store) runRounds() {
	for r := s.barriers.begin(); r != nil; r = s.barriers.begin() {
		r.err = s.carryOut(context.Background())
		close(r.done)
	}
}

// begin returns the next round, which no read joins any more, or nil.
func (b *barriers) begin() *round {
	b.mu.Lock()
	defer b.mu.Unlock()
	r := b.next
	b.next, b.running = nil, r != nil
	return r
}

func (s *Store) carryOut(ctx context.Context) error {
	ends := make(db.Position)
	err := s.each(ctx, s.control, feedLastSQL, nil, func() { clear(ends) }, func(rows *sql.Rows) error {
		var server string
		var n uint64
		err := rows.Scan(&server, &n)
		ends[server] = n
		return err
	})
	if err != nil {
		return err
	}
	s.barriers.forget(ends)
	return s.makeDurable(ctx, ends)
}

// makeDurable returns when the commits up to a position that has been read are durable. It waits for a commit of this
// server that is under way.
func (s *Store) makeDurable(ctx context.Context, ends db.Position) error {
	for s.barriers.needed.Load() {
		early, underWay := s.barriers.missing(ends, &s.name)
		switch {
		case early:
			if err := s.commitBarrier(ctx); err != nil {
				return err
			}
			s.barriers.covered(ends)
			return nil
		case underWay == nil:
			return nil
		}
		select {
		case <-underWay:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// commitBarrier returns when all that was visible when it was called is durable.
func (s *Store) commitBarrier(ctx context.Context) error {
	return s.withRetry(ctx, s.control, func(conn *sql.Conn) error {
		_, err := conn.ExecContext(ctx, barrierSQL)
		return err
	})
}

// missing reports whether a commit up to a position is not known to be durable. underWay is closed when more is known of one
// of this server that has not been acknowledged; it is nil if there is none.
func (b *barriers) missing(ends db.Position, own *feedName) (early bool, underWay <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for server, n := range ends {
		if n <= b.durable[server] {
			continue
		}
		acknowledged, next := own.acknowledged(server, n)
		switch {
		case acknowledged:
		case next != nil:
			underWay = next
		default:
			early = true
		}
	}
	return early, underWay
}

// covered notes that a barrier has followed a position.
func (b *barriers) covered(ends db.Position) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for server, n := range ends {
		b.durable[server] = max(b.durable[server], n)
	}
}

// forget forgets the servers that are not in the feed any more.
func (b *barriers) forget(there db.Position) {
	b.mu.Lock()
	defer b.mu.Unlock()
	maps.DeleteFunc(b.durable, func(server string, _ uint64) bool {
		_, is := there[server]
		return !is
	})
}
