package committer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/locket-service/locket/claim"
	"github.com/locket-service/locket/db"
)

// DefaultBatch is the largest number of requests in one transaction.
const DefaultBatch = 512

// Config says how to commit.
type Config struct {
	// MaxBatch is the largest number of requests in one transaction; DefaultBatch when it
	// is 0.
	MaxBatch int
	// Timeout is how long a transaction may take before it is given up.
	Timeout time.Duration
	Log     *slog.Logger
	Metrics *Metrics
	// Listeners are told what each transaction changed.
	Listeners []Listener
}

// Listener is told what a transaction has changed: after its commit, before its callers are
// answered, one transaction after the other.
type Listener interface {
	Committed(now claim.Instant, changes []claim.Transition)
}

// ErrStopping is returned for requests that the server no longer takes, because it shuts
// down. Another server can.
var ErrStopping = errors.New("the server is shutting down")

// Store is what a committer asks of a store.
type Store interface {
	db.Transactor
	db.Pulse
}

// Result is the answer to a command.
type Result struct {
	// Claim is empty for a command that is about no claim.
	Claim claim.Claim
	// Now is the time of the transaction.
	Now claim.Instant
}

// request is a command on its way through a batch.
type request struct {
	ctx  context.Context
	cmd  claim.Command
	done chan struct{}

	result Result
	err    error
}

// Committer carries commands to the store in batches.
type Committer struct {
	store     Store
	maxBatch  int
	timeout   time.Duration
	log       *slog.Logger
	metrics   *Metrics
	listeners []Listener
	requests  sync.Pool // not shared: the channels of one synctest bubble work in no other

	wake    chan struct{}
	failing bool // the database did not take the last commit
	gap     bool // nor all commits since the last beat

	mu      sync.Mutex
	pending []*request
	stopped bool
}

// New returns a committer for a store.
func New(store Store, config Config) *Committer {
	return &Committer{
		store: store, maxBatch: cmp.Or(config.MaxBatch, DefaultBatch), timeout: config.Timeout,
		log: config.Log, metrics: config.Metrics, listeners: append([]Listener{config.Metrics}, config.Listeners...),
		requests: sync.Pool{New: func() any { return &request{done: make(chan struct{}, 1)} }},
		wake:     make(chan struct{}, 1),
	}
}

// Do carries out one command. It returns the errors of package claim, those of db.Store,
// ErrStopping, or that of ctx. When ctx ends first the outcome is open: the command may
// still be carried out, and may be sent again.
func (c *Committer) Do(ctx context.Context, cmd claim.Command) (Result, error) {
	r := c.requests.Get().(*request)
	r.ctx, r.cmd, r.result, r.err = ctx, cmd, Result{}, nil
	if !c.enqueue(r) {
		return Result{}, ErrStopping
	}
	select {
	case <-r.done:
		result, err := r.result, r.err
		r.ctx, r.cmd = nil, nil
		c.requests.Put(r)
		return result, err
	case <-ctx.Done():
		return Result{}, context.Cause(ctx) // r is the batch's now, not the pool's
	}
}

func (c *Committer) enqueue(r *request) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped {
		return false
	}
	c.pending = append(c.pending, r)
	if len(c.pending) == 1 {
		c.wakeUp()
	}
	return true
}

func (c *Committer) wakeUp() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// Run implements ifrit.Runner. When it is told to stop it finishes the batch under way;
// requests that come later get ErrStopping.
func (c *Committer) Run(signals <-chan os.Signal, ready chan<- struct{}) error {
	beat := time.NewTicker(db.BeatInterval)
	defer beat.Stop()
	_ = c.beat() // reported; requests are told by themselves
	close(ready)
	for {
		select { // the end comes first: with a database that hangs, each of the others takes long
		case <-signals:
			c.stop()
			return nil
		default:
		}
		select {
		case <-signals:
			c.stop()
			return nil
		case <-beat.C:
			_ = c.beat()
		case <-c.wake:
			if c.gap { // first, before a lease is looked at; and callers need not wait for two timeouts
				if err := c.beat(); err != nil {
					c.answer(c.take(), err)
					continue
				}
			}
			c.gather()
			c.commit(c.take())
		}
	}
}

// beat is called between batches, not beside them: while the database does not take
// commits, no time must count against the leases. It returns the error that it has reported.
func (c *Committer) beat() error {
	ctx, cancel := context.WithTimeout(context.Background(), c.timeout)
	defer cancel()
	beat := c.store.Beat
	if c.gap {
		beat = c.store.Resume
	}
	err := beat(ctx)
	c.gap = err != nil
	c.report(err)
	return err
}

// report logs when the database stops taking commits, and when it takes them again, but not
// every attempt between.
func (c *Committer) report(err error) {
	switch failing := err != nil; {
	case failing && !c.failing:
		c.log.Error("the database takes no commits", "error", err)
	case failing:
		c.log.Debug("the database still takes no commits", "error", err)
	case c.failing:
		c.log.Info("the database takes commits again")
	}
	c.failing = err != nil
}

// gatherYields is how often gather steps aside at most.
const gatherYields = 20

// gather lets the handlers run that are about to bring requests, for as long as there are
// such. It does not wait: when nothing else is to run, it returns at once. Without it a
// busy server commits many small batches, each with less to gain.
func (c *Committer) gather() {
	before := 0
	for range gatherYields {
		c.mu.Lock()
		pending := len(c.pending)
		c.mu.Unlock()
		if pending == before || pending >= c.maxBatch {
			return
		}
		before = pending
		runtime.Gosched()
	}
}

func (c *Committer) take() []*request {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.pending) <= c.maxBatch {
		batch := c.pending
		c.pending = make([]*request, 0, len(batch)+len(batch)/4)
		return batch
	}
	batch := slices.Clone(c.pending[:c.maxBatch])
	c.pending = append(c.pending[:0], c.pending[c.maxBatch:]...)
	c.wakeUp()
	return batch
}

func (c *Committer) stop() {
	c.mu.Lock()
	c.stopped = true
	left := c.pending
	c.pending = nil
	c.mu.Unlock()
	c.answer(left, ErrStopping)
}

// commit carries out a batch and answers its callers. A batch that fails for a reason of
// its own, not of the database, is cut in two until the request that spoils it is alone.
func (c *Committer) commit(batch []*request) {
	if len(batch) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), c.timeout)
	start := time.Now()
	var queues *claim.Queues
	err := c.store.Transact(ctx, func(tx db.Tx) (err error) {
		queues, err = execute(tx, batch)
		return err
	})
	cancel()
	c.metrics.observe(len(batch), time.Since(start), err)
	switch {
	case err == nil:
		c.report(nil)
		c.tell(queues)
		c.answer(batch, nil)
	case errors.Is(err, db.ErrUnavailable), errors.Is(err, db.ErrOutcomeUnknown):
		c.gap = true
		c.report(err)
		c.answer(batch, err)
	case len(batch) == 1:
		c.log.Error("a request failed", "error", err)
		c.answer(batch, err)
	default:
		c.log.Warn("a batch is cut in two", "requests", len(batch), "error", err)
		c.commit(batch[:len(batch)/2])
		c.commit(batch[len(batch)/2:])
	}
}

// answer wakes the callers of a batch. err, if there is one, is the answer to all.
func (c *Committer) answer(batch []*request, err error) {
	for _, r := range batch {
		if err != nil {
			r.result, r.err = Result{}, err
		}
		r.done <- struct{}{}
	}
}

// tell tells the listeners what a transaction changed.
func (c *Committer) tell(queues *claim.Queues) {
	if queues == nil {
		return
	}
	for _, listener := range c.listeners {
		listener.Committed(queues.Now, queues.Changes())
	}
}

// execute runs the commands of a batch inside a transaction. It may run more than once;
// the last run decides.
func execute(tx db.Tx, batch []*request) (queues *claim.Queues, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic in a transaction: %v\n%s", p, debug.Stack())
		}
	}()
	cmds := make([]claim.Command, len(batch))
	for i, r := range batch {
		cmds[i] = r.cmd
	}
	return db.Execute(tx, cmds, func(queues *claim.Queues) {
		for _, r := range batch {
			r.run(queues)
		}
	})
}

// run carries the command out, unless its caller has gone.
func (r *request) run(queues *claim.Queues) {
	r.result = Result{Now: queues.Now}
	if r.err = r.ctx.Err(); r.err != nil {
		return
	}
	c, err := queues.Do(r.cmd)
	if r.err = err; c != nil {
		r.result.Claim = *c
	}
}
