package committer

import (
	"errors"
	"sync"
	"time"

	"github.com/locket-service/locket/internal/base/periodic"
	"github.com/locket-service/locket/internal/rules/claim"
)

// ErrOverloaded is returned for a request that found too many others waiting for a transaction. It was not carried out.
var ErrOverloaded = errors.New("too many requests wait for the database")

// DefaultPending is how many requests may wait for a transaction.
const DefaultPending = 32_768

// maxPendingBytes is how much memory the waiting requests may keep.
const maxPendingBytes = 64 << 20

// queue holds the requests that wait for the next transaction. It is bounded, so that memory is bounded while the
// database is slow. From half of the bounds on, it refuses new work (what may make a lock or a claim), so that renewals
// and releases find room. Up to three quarters, an identity may still add new work while it has less than an equal share
// of that half: so one identity that fills the queue does not keep out the others.
type queue struct {
	limit int
	holds func(claim.Acquire) bool // whether it renews a lock that is held
	wake  chan struct{}

	mu      sync.Mutex
	pending []*request
	all     load
	of      map[string]load // waiting requests by identity
	stopped bool
	most    int           // requests that await waits for
	enough  chan struct{} // closed when so many wait; nil when nobody waits for them
}

// load is the size of some waiting requests.
type load struct{ requests, bytes int }

func (l load) plus(r *request) load  { return load{l.requests + 1, l.bytes + r.bytes} }
func (l load) minus(r *request) load { return load{l.requests - 1, l.bytes - r.bytes} }

// exceeds reports whether a load is more than a part of the bounds.
func (q *queue) exceeds(l load, part float64) bool {
	return float64(l.requests) > part*float64(q.limit) || float64(l.bytes) > part*maxPendingBytes
}

func newQueue(limit int, holds func(claim.Acquire) bool) *queue {
	return &queue{limit: limit, holds: holds, wake: make(chan struct{}, 1), of: make(map[string]load)}
}

// add puts a request at the end. It returns ErrStopping or ErrOverloaded.
func (q *queue) add(r *request) error {
	r.queued, r.bytes = time.Now(), size(r.cmd)
	q.mu.Lock()
	defer q.mu.Unlock()
	all, own := q.all.plus(r), q.of[r.caller.Name].plus(r)
	switch {
	case q.stopped:
		return ErrStopping
	case q.exceeds(all, 1), q.exceeds(all, newWork) && q.isNew(r.cmd) && !q.hasShare(all, own):
		return ErrOverloaded
	}
	q.put(r)
	return nil
}

// again puts a request whose command is partly done at the end of the queue. It returns ErrStopping.
func (q *queue) again(r *request) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.stopped {
		return ErrStopping
	}
	r.queued = time.Now()
	q.put(r)
	return nil
}

// put adds a request; the caller has checked that there is room.
func (q *queue) put(r *request) {
	q.pending = append(q.pending, r)
	q.all, q.of[r.caller.Name] = q.all.plus(r), q.of[r.caller.Name].plus(r)
	if q.all.requests == 1 {
		q.wakeUp()
	}
	if q.enough != nil && len(q.pending) >= q.most {
		close(q.enough)
		q.enough = nil
	}
}

// await waits until so many requests wait, for a time at most.
func (q *queue) await(most int, limit time.Duration) {
	q.mu.Lock()
	if len(q.pending) >= most || limit <= 0 {
		q.mu.Unlock()
		return
	}
	enough := make(chan struct{})
	q.most, q.enough = most, enough
	q.mu.Unlock()
	late := time.NewTimer(limit)
	defer late.Stop()
	select {
	case <-enough:
	case <-late.C:
	}
}

const (
	// New work is refused once newWork of the bounds is used.
	newWork = 0.5
	// mostNewWork is the same for identities that have less than their share.
	mostNewWork = 0.75
)

// hasShare reports whether an identity may add new work beyond newWork. own is its load with the new request, all is the
// load of all identities.
func (q *queue) hasShare(all, own load) bool {
	identities := len(q.of)
	if own.requests == 1 {
		identities++ // it has nothing there yet
	}
	return identities > 1 && !q.exceeds(all, mostNewWork) && !q.exceeds(own, newWork/float64(identities))
}

// gone notes that a request no longer waits.
func (q *queue) gone(r *request) {
	q.all = q.all.minus(r)
	if own := q.of[r.caller.Name].minus(r); own.requests > 0 {
		q.of[r.caller.Name] = own
	} else {
		delete(q.of, r.caller.Name)
	}
}

func (q *queue) wakeUp() { periodic.Wake(q.wake) }

func (q *queue) len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.pending)
}

// maxBatchBytes bounds the size of the requests of one transaction; the last of them may exceed it.
const maxBatchBytes = 4 << 20

// take returns up to limit requests for a transaction, of maxBatchBytes, and drops requests whose callers have left. If
// more wait, renewals and ends of claims come before new work. Within both, identities take turns.
func (q *queue) take(limit int) []*request {
	q.mu.Lock()
	defer q.mu.Unlock()
	batch := make([]*request, 0, min(len(q.pending), limit))
	left := q.pending[:0]
	more := len(q.pending) > limit || q.all.bytes > maxBatchBytes
	if more {
		takeTurns(q.pending)
	}
	bytes := 0
	fits := func() bool { return len(batch) < limit && bytes < maxBatchBytes }
	for _, r := range q.pending {
		switch {
		case r.then == nil && r.ctx.Err() != nil: // nobody reads its answer
			q.gone(r)
			r.decided()
		case fits() && (!more || !q.isNew(r.cmd)):
			batch = append(batch, r)
			bytes += r.bytes
		default:
			left = append(left, r)
		}
	}
	room := 0
	for ; room < len(left) && fits(); room++ { // what is left is new work
		batch = append(batch, left[room])
		bytes += left[room].bytes
	}
	left = append(left[:0], left[room:]...)
	for _, r := range batch {
		q.gone(r)
	}
	clear(q.pending[len(left):])
	q.pending = left
	if len(left) > 0 {
		q.wakeUp()
	}
	return batch
}

// takeOlder returns the requests that were queued before a time.
func (q *queue) takeOlder(than time.Time) (old []*request) {
	q.mu.Lock()
	defer q.mu.Unlock()
	left := q.pending[:0]
	for _, r := range q.pending {
		if r.queued.Before(than) {
			old = append(old, r)
			q.gone(r)
		} else {
			left = append(left, r)
		}
	}
	clear(q.pending[len(left):])
	q.pending = left
	return old
}

// takeAll returns all requests.
func (q *queue) takeAll() []*request {
	q.mu.Lock()
	defer q.mu.Unlock()
	all := q.pending
	q.pending, q.all = nil, load{}
	clear(q.of)
	return all
}

// stop refuses all later requests, and returns the waiting ones.
func (q *queue) stop() []*request {
	q.mu.Lock()
	q.stopped = true
	q.mu.Unlock()
	return q.takeAll()
}

// isNew reports whether a command may make a claim.
func (q *queue) isNew(cmd claim.Command) bool {
	switch cmd := cmd.(type) {
	case claim.Create:
		return true
	case claim.Acquire:
		return cmd.Token == 0 && !q.holds(cmd)
	default:
		return false
	}
}

// commandBytes is the approximate memory of a request in addition to its caller's data.
const commandBytes = 512

// size returns about how much memory a command keeps.
func size(cmd claim.Command) int {
	switch cmd := cmd.(type) {
	case claim.Create:
		return commandBytes + len(cmd.ID) + len(cmd.Resource) + len(cmd.Owner) + len(cmd.UserData) + len(cmd.Value)
	case claim.Acquire:
		return commandBytes + len(cmd.Resource) + len(cmd.Owner) + len(cmd.Value)
	case claim.Expire:
		return commandBytes * (1 + len(cmd.Resources) + len(cmd.Waiters))
	case claim.KeepWaiting:
		return commandBytes * (1 + len(cmd.IDs))
	default:
		return commandBytes
	}
}

// rouse wakes the committer to look at the queue.
func (q *queue) rouse() {
	if q.len() > 0 {
		q.wakeUp()
	}
}
