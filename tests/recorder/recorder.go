// Package recorder records at the wire what real clients send and receive: gRPC by interceptors, HTTP by a transport.
// So it records any client unchanged, and each attempt separately. Package history checks the record.
package recorder

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/locket-service/locket/internal/rules/claim"
	"github.com/locket-service/locket/tests/history"
)

// Recorder is one record. Its methods may be called from any goroutine.
type Recorder struct {
	began time.Time

	mu       sync.Mutex
	busy     bool
	ops      []history.Operation
	sessions map[string]*session
	taps     []*sessionTap
	streams  []*history.Stream
	watches  []*watch
	cursors  map[string]place
}

// New returns an empty record, which begins now.
func New() *Recorder {
	return &Recorder{began: time.Now(), sessions: make(map[string]*session), cursors: make(map[string]place)}
}

// Busy notes that clients begin to make changes: from now on claims may change while a watch reads its snapshot.
func (r *Recorder) Busy() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.busy = true
}

func (r *Recorder) now() int64 { return int64(time.Since(r.began)) }

// add notes a request that was sent at some time and has been answered now, unless the answer is unknown.
func (r *Recorder) add(call int64, request history.Request, out history.Output) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.note(call, request, out)
}

func (r *Recorder) note(call int64, request history.Request, out history.Output) {
	op := history.Operation{Call: call, Return: r.now(), Request: request, Output: out}
	if out.Unknown {
		op.Return = history.Forever
	}
	r.ops = append(r.ops, op)
}

// Check checks the record against the final claims of the store. No watch may be open, and every session must have
// ended or be about to end.
func (r *Recorder) Check(stored []claim.Claim) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, tap := range r.taps {
		tap.end() // everything without an answer
	}
	err := history.Check(stored, named(r.ops, stored))
	for _, s := range r.streams {
		err = errors.Join(err, history.CheckStream(stored, s))
	}
	return errors.Join(err, r.checkWatches(stored))
}

// CheckWatches checks the reports to watches; open watches must have received everything.
func (r *Recorder) CheckWatches(stored []claim.Claim) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, w := range r.watches {
		w.Complete = w.open && w.ctx.Err() == nil
	}
	return r.checkWatches(stored)
}

func (r *Recorder) checkWatches(stored []claim.Claim) (err error) {
	for _, w := range r.watches {
		err = errors.Join(err, history.CheckWatch(stored, &w.Watch))
	}
	return err
}

// named returns the operations with the resources of the claims that they name. A request about a missing claim has
// no resource.
func named(ops []history.Operation, stored []claim.Claim) (all []history.Operation) {
	resources := make(map[string]string, len(stored))
	for i := range stored {
		resources[stored[i].ID] = stored[i].Resource
	}
	for _, op := range ops {
		if op.Resource == "" && op.ID != "" {
			if op.Resource = resources[op.ID]; op.Resource == "" && (op.Unknown || op.Refused == history.NotFound) {
				continue
			}
		}
		all = append(all, op)
	}
	return all
}

// String shows how much there is.
func (r *Recorder) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	unknown, told := 0, 0
	for i := range r.ops {
		if r.ops[i].Unknown {
			unknown++
		}
	}
	for _, s := range r.streams {
		told += len(s.Reports)
	}
	seen := 0
	for _, w := range r.watches {
		seen += len(w.Reports)
	}
	return fmt.Sprintf("%d requests (%d of them not answered), %d sessions with %d streams that were told %d things, %d watches that saw %d",
		len(r.ops), unknown, len(r.sessions), len(r.streams), told, len(r.watches), seen)
}

// Unknown counts the requests for new claims whose outcome the clients do not know, by whether the store has the claim.
func (r *Recorder) Unknown(stored []claim.Claim) map[bool]int {
	made := make(map[string]bool, len(stored))
	for i := range stored {
		made[stored[i].ID] = true
	}
	count := make(map[bool]int)
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.ops {
		if op := &r.ops[i]; op.Unknown && op.Creates() {
			count[made[op.ID]]++
		}
	}
	return count
}
