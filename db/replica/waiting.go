package replica

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/db/replica/order"
	"github.com/locket-service/locket/db/replica/record"
	"github.com/locket-service/locket/internal/rules/claim"
)

// While a record is being committed, batches wait: of this server's callers and, in a cluster, of other servers. The next record
// carries out one batch of each server. So a cluster needs one append for the callers of all its servers.

// waiting is a batch that waits for a record.
type waiting struct {
	batch db.Batch
	// from is the origin of another server's batch. It is zero for a batch of this server's callers.
	from  record.Origin
	bytes int // of the message that it came in

	// decided is closed when the batch is carried out, or never will be. Then the following is set.
	decided  chan struct{}
	part     db.Part
	outcome  []byte // the encoded outcome of another server's batch
	repeated bool   // an earlier record has the outcome
	p        *proposal
	err      error
}

// queue has the batches that wait, in order.
type queue struct {
	mu      sync.Mutex
	waiting []*waiting
	enough  chan struct{} // closed when enough wait; nil when nobody asks
	last    gathered      // the last record; once it is committed, with the batches that waited then
	took    time.Duration // its commit
}

// gathered is a number of batches, and of their requests.
type gathered struct{ batches, requests int }

// plus adds batches.
func (g gathered) plus(more ...*waiting) gathered {
	for _, w := range more {
		g = gathered{g.batches + 1, g.requests + len(w.batch.Requests)}
	}
	return g
}

// maxTogether bounds the bytes of the batches of one record, and of their outcomes, if there is more than one.
const maxTogether = order.MaxRecord / 2

func (q *queue) add(w *waiting) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting = append(q.waiting, w)
	if q.enough != nil && q.hasEnough() {
		close(q.enough)
		q.enough = nil
	}
}

// hasEnough reports whether all servers with callers have sent a batch, or nine tenths of as many requests wait as these had. A server
// sends no other batch meanwhile.
func (q *queue) hasEnough() bool {
	now := gathered{}.plus(q.waiting...)
	return now.batches >= q.last.batches || now.requests*10 >= q.last.requests*9
}

// maxGather is how long a decider gathers at most.
const maxGather = 20 * time.Millisecond

// gather waits until the callers of all servers have sent their next requests, as hasEnough says; but for no
// longer than the commit of that record took. Each append costs three machines about 1 ms of processor time, so fewer and fuller
// records are faster.
func (q *queue) gather() {
	q.mu.Lock()
	if q.hasEnough() {
		q.mu.Unlock()
		return
	}
	enough := make(chan struct{})
	q.enough = enough
	late := time.NewTimer(min(q.took, maxGather))
	q.mu.Unlock()
	defer late.Stop()
	select {
	case <-enough:
	case <-late.C:
	}
}

// committed notes that a record is committed, and how long that took.
func (q *queue) committed(took time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.last, q.took = q.last.plus(q.waiting...), took
}

// remove removes a batch, and reports whether it was there.
func (q *queue) remove(w *waiting) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := slices.Index(q.waiting, w)
	if n >= 0 {
		q.waiting = slices.Delete(q.waiting, n, n+1)
	}
	return n >= 0
}

// take takes the batches of the next record: one of each server, and this server's last.
func (q *queue) take() (taken []*waiting) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.enough = nil
	var left []*waiting
	bytes, servers := 0, make(map[uint64]bool)
	for _, w := range q.waiting {
		if servers[w.from.Node] || len(taken) > 0 && bytes+w.bytes > maxTogether {
			left = append(left, w)
			continue
		}
		taken, bytes, servers[w.from.Node] = append(taken, w), bytes+w.bytes, true
	}
	q.waiting, q.last = left, gathered{}.plus(taken...)
	slices.SortStableFunc(taken, func(a, b *waiting) int {
		switch {
		case b.isOwn() && !a.isOwn():
			return -1
		case a.isOwn() && !b.isOwn():
			return 1
		}
		return 0
	})
	return taken
}

// putBack puts batches that were taken before the others.
func (q *queue) putBack(first []*waiting) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting = slices.Concat(first, q.waiting)
}

func (w *waiting) isOwn() bool { return w.from.Node == 0 }

// ids are the claims that the batch names.
func (w *waiting) ids() (ids []string) {
	for _, r := range w.batch.Requests {
		for _, target := range r.Command.Targets() {
			if target.ID != "" {
				ids = append(ids, target.ID)
			}
		}
	}
	return ids
}

var errDecided = errors.New("another batch's caller has decided this one")

// carryOut has a batch carried out, and returns when that is decided: it is committed when w.p is. The caller whose turn it is
// to decide does so for all batches that wait.
func (s *Store) carryOut(ctx context.Context, w *waiting) error {
	ids := w.ids()
	s.ahead.keep(ids)
	defer s.ahead.release(ids)
	if err := s.lookUp(ctx, s.unknown(ids)); err != nil {
		return err
	}
	w.decided = make(chan struct{})
	s.queue.add(w)
	for {
		err := s.acquire(ctx, w.decided)
		if err == nil {
			s.queue.gather()
			err = s.decideWaiting(ctx)
		}
		switch {
		case errors.Is(err, errDecided):
			return w.err
		case err == nil:
		case s.queue.remove(w):
			return err
		default: // somebody has taken it, and decides it or puts it back
			select {
			case <-w.decided:
				return w.err
			case s.writing <- struct{}{}:
				s.release()
			}
		}
	}
}

// decideWaiting decides batches that wait. The caller has acquired the right to decide, and loses it. The error is the
// caller's: it keeps no other caller from deciding.
func (s *Store) decideWaiting(ctx context.Context) error {
	var taken []*waiting
	p, err := s.beginOnTurn(ctx, func(d decision) (r *record.Record, err error) {
		taken, r = s.carryOutWaiting(d)
		return r, nil
	})
	if err != nil && len(taken) == 0 {
		return err
	}
	last := s.lastDecided()
	for _, w := range taken {
		if w.p = p; p == nil || w.repeated { // it depends on earlier proposals
			w.p = last
		}
		if w.err == nil && !w.repeated {
			w.err = err
		}
		close(w.decided)
	}
	return nil
}

// carryOutWaiting carries out the batches that wait, and returns them with their record, nil for none. If they fail together, or
// are too large, it carries out the first half of them.
func (s *Store) carryOutWaiting(d decision) (taken []*waiting, r *record.Record) {
	taken = s.queue.take()
	known, fresh := s.withoutKnown(taken)
	for len(fresh) > 1 {
		r, err := s.carryOutTogether(d, fresh)
		if err == nil {
			return append(known, fresh...), r
		}
		half := len(fresh) / 2
		s.queue.putBack(fresh[half:])
		fresh = fresh[:half]
	}
	if len(fresh) == 1 {
		r = s.carryOutAlone(d, fresh[0])
	}
	return append(known, fresh...), r
}

// withoutKnown separates the batches that were carried out before, or come too late, from the others.
func (s *Store) withoutKnown(taken []*waiting) (known, fresh []*waiting) {
	for _, w := range taken {
		last, old := record.Batch{}, false
		if !w.isOwn() {
			last, old = s.state.LastBatch(w.from)
		}
		switch {
		case !w.isOwn() && w.from.Seq == last.Seq:
			w.outcome, w.repeated = last.Outcome, true
		case old:
			w.err = fmt.Errorf("%w: batch %d of server %x comes after batch %d", ErrOldBatch, w.from.Seq, w.from.Node, last.Seq)
		default:
			fresh = append(fresh, w)
			continue
		}
		known = append(known, w)
	}
	return known, fresh
}

// carryOutTogether carries out batches, one after the other. After an error nothing has happened.
func (s *Store) carryOutTogether(d decision, together []*waiting) (*record.Record, error) {
	t := &tx{s: s, now: d.now}
	batches := make([]db.Batch, len(together))
	for i, w := range together {
		batches[i] = w.batch
	}
	parts, err := db.CarryOutAll(t, batches)
	if err != nil {
		return nil, err
	}
	var claims []claim.Transition
	var carried []record.Batch
	bytes := 0
	for i, w := range together {
		w.part = parts[i]
		made := record.Merge(w.part.Transitions)
		claims = append(claims, made...)
		if w.isOwn() {
			continue
		}
		if w.outcome, err = record.WriteOutcome(w.part.Outcome, nil); err != nil {
			return nil, err
		}
		carried = append(carried, record.Batch{Origin: w.from, Claims: len(made), Outcome: w.outcome})
		bytes += len(w.outcome)
	}
	limit := s.options.OutcomeBytes
	if len(together) > 1 {
		limit = min(limit, maxTogether)
	}
	if bytes > limit {
		return nil, fmt.Errorf("the outcome of a batch has %d bytes, and %d are the limit", bytes, limit)
	}
	return t.record(claims, carried), nil
}

// carryOutAlone carries out one batch. If another server's batch fails, the error is its outcome.
func (s *Store) carryOutAlone(d decision, w *waiting) *record.Record {
	r, err := s.carryOutTogether(d, []*waiting{w})
	if err == nil {
		return r
	}
	if !w.isOwn() {
		w.outcome, err = record.WriteOutcome(db.Outcome{}, err)
	}
	if w.err = err; err != nil {
		return nil
	}
	t := &tx{s: s, now: d.now}
	return t.record(nil, []record.Batch{{Origin: w.from, Outcome: w.outcome}})
}
