package replica

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/db/replica/record"
)

// A server that does not decide sends its batches to the decider, one at a time, each with a number: server and number are
// its record.Origin. The decider puts the origin and the outcome of a batch into the record, and the state keeps the
// last one of each server. So a batch that comes again, to whichever server decides then, gets the same answer and is not
// carried out again. Every batch gets a record, even one that changes nothing, or fails: it might change something
// later.

// maxOutcomeBytes bounds what is kept of the outcome of a batch. A batch with a larger one is not carried out; its
// committer divides it.
const maxOutcomeBytes = 32 << 20

// ErrOldBatch is returned for a batch that comes after a later one of its server: it was carried out long ago, or never
// will be.
var ErrOldBatch = errors.New("a later batch of its server was carried out")

// CarryOut carries out a message from another server: a batch of its Forwarder, or a job. It returns the encoded outcome
// when that is committed. It returns the errors of Transact, ErrNotDecider, ErrOldBatch, and record.ErrFormat.
func (s *Store) CarryOut(ctx context.Context, message []byte) (outcome []byte, err error) {
	if job, is := record.ReadJob(message); is && s.cluster != nil {
		done, err := s.cluster.do(ctx, job)
		if err != nil {
			return nil, err
		}
		return record.WriteDone(&done)
	}
	from, batch, err := record.ReadBatch(message)
	if err != nil {
		return nil, err
	}
	w := &waiting{batch: batch, from: from, bytes: len(message)}
	if err = s.carryOut(ctx, w); err == nil && w.p != nil {
		err = s.await(ctx, w.p, new(atomic.Bool))
	}
	if err != nil {
		return nil, err
	}
	return w.outcome, nil
}

// Forwarder carries out the batches of a server that does not decide. It has one caller of Transact.
type Forwarder struct {
	last record.Origin
	// clock is where a number begins at least: a table that is full drops the batches with the lowest numbers.
	clock func() uint64
	// unknown has the numbers of batches whose outcome is unknown to their callers. They may be committed later.
	unknown []uint64
	mu      sync.Mutex // guards unknown
	// lost returns an error when nobody can carry out a batch; nil: that is not known.
	lost func(ctx context.Context) error
	// closed ends what is under way.
	closed <-chan struct{}
	send   func(ctx context.Context, batch []byte) (outcome []byte, err error)
}

// NewForwarder returns the forwarder of a server. No other server, and no other run of it, has the same node.
// send has the decider carry out a batch (Store.CarryOut), and returns its result. It may have it carried out more
// than once, and return without knowing the outcome.
func NewForwarder(node uint64, send func(ctx context.Context, batch []byte) (outcome []byte, err error)) *Forwarder {
	return &Forwarder{last: record.Origin{Node: node}, send: send}
}

// resendPause is the pause before a batch is sent again.
const resendPause = 20 * time.Millisecond

// Transact sends the batch until there is an answer, or until ctx ends. The error is then db.ErrOutcomeUnknown, or
// db.ErrUnavailable if no server has begun to carry it out.
func (f *Forwarder) Transact(ctx context.Context, batch db.Batch) (db.Outcome, error) {
	f.last.Seq++
	if f.clock != nil {
		f.last.Seq = max(f.last.Seq, f.clock())
	}
	message, err := record.WriteBatch(f.last, batch)
	if err != nil {
		return db.Outcome{}, err
	}
	outcome, err := f.deliver(ctx, message)
	if err != nil {
		f.mu.Lock()
		f.unknown = append(f.unknown, f.last.Seq)
		f.mu.Unlock()
		return db.Outcome{}, err
	}
	return record.ReadOutcome(outcome)
}

// answers reports whether the caller of a committed batch learns its outcome. It is called once for each batch, in order.
func (f *Forwarder) answers(of record.Origin) bool {
	if of.Node != f.last.Node {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	answers := !slices.Contains(f.unknown, of.Seq)
	f.unknown = slices.DeleteFunc(f.unknown, func(seq uint64) bool { return seq <= of.Seq }) // none of them is committed any more
	return answers
}

// deliver is Transact for a message.
func (f *Forwarder) deliver(ctx context.Context, message []byte) (outcome []byte, err error) {
	began, done := time.Now(), false // done: it may have been carried out
	for {
		outcome, err := f.send(ctx, message)
		switch {
		case err == nil:
			return outcome, nil
		case errors.Is(err, ErrOldBatch): // another process is this server
			return nil, fmt.Errorf("%w: %w", db.ErrOutcomeUnknown, err)
		case errors.Is(err, record.ErrNotSent):
			return nil, err
		case !errors.Is(err, ErrNotDecider) && !errors.Is(err, db.ErrUnavailable):
			done = true
		}
		switch lost := f.lostSince(ctx, began); {
		case lost != nil && done:
			return nil, fmt.Errorf("%w: no server has answered: %v", db.ErrOutcomeUnknown, lost) //nolint:errorlint // it may have changed something
		case lost != nil:
			return nil, lost
		}
		select {
		case <-time.After(resendPause):
			continue
		case <-ctx.Done():
		case <-f.closed:
		}
		if done {
			return nil, fmt.Errorf("%w: no server has answered: %w", db.ErrOutcomeUnknown, err)
		}
		return nil, fmt.Errorf("%w: no server has carried it out: %w", db.ErrUnavailable, err)
	}
}

// lostSince returns why nobody can carry out a batch that was sent at a time, nil while somebody may.
func (f *Forwarder) lostSince(ctx context.Context, began time.Time) error {
	if f.lost == nil || time.Since(began) < answerTimeout {
		return nil
	}
	return f.lost(ctx)
}
