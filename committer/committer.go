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
}

// ErrStopping is returned for requests that the server cannot take any more, or cannot
// wait for any longer, because it shuts down. Another server can.
var ErrStopping = errors.New("the server is shutting down")

// Result is the answer to a command.
type Result struct {
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
	store    db.Store
	maxBatch int
	timeout  time.Duration
	log      *slog.Logger
	metrics  *Metrics
	hub      *hub
	requests sync.Pool // not shared: the channels of one synctest bubble work in no other

	wake    chan struct{}
	failing bool // the database did not take the last commit
	gap     bool // nor all commits since the last beat

	mu      sync.Mutex
	pending []*request
	stopped bool
}

// New returns a committer for a store.
func New(store db.Store, config Config) *Committer {
	c := &Committer{
		store: store, maxBatch: cmp.Or(config.MaxBatch, DefaultBatch), timeout: config.Timeout,
		log: config.Log, metrics: config.Metrics, hub: newHub(),
		requests: sync.Pool{New: func() any { return &request{done: make(chan struct{}, 1)} }},
		wake:     make(chan struct{}, 1),
	}
	c.metrics.watch(c.hub)
	return c
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
		c.wakeAwaiting(queues)
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

// wakeAwaiting tells the calls that await claims on this server, and counts what the
// transaction did.
func (c *Committer) wakeAwaiting(queues *claim.Queues) {
	if queues == nil {
		return
	}
	for _, q := range queues.Changed() {
		_, changed := q.Changes()
		for _, cl := range changed {
			if cl.Status == claim.Expired {
				c.metrics.expiries.Inc()
			}
			if cl.LeftLine() {
				c.hub.notify(cl.ID, &Result{Claim: *cl, Now: queues.Now})
			}
		}
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
	resources, ids := targets(batch)
	if queues, err = tx.Load(resources, ids); err != nil {
		return nil, err
	}
	for _, r := range batch {
		if r.err = r.ctx.Err(); r.err == nil {
			r.result.Now = queues.Now
			r.result.Claim, r.err = run(queues, r.cmd)
		}
	}
	if err := queues.Err(); err != nil {
		return nil, err
	}
	return queues, tx.Save(queues)
}

// targets returns what a batch needs to have loaded, sorted, each once. The order keeps
// two servers that want the same rows from waiting for each other.
func targets(batch []*request) (resources, ids []string) {
	resources = make([]string, 0, len(batch))
	for _, r := range batch {
		resource, id := r.cmd.Target()
		if resource != "" {
			resources = append(resources, resource)
		}
		if id != "" {
			ids = append(ids, id)
		}
	}
	slices.Sort(resources)
	slices.Sort(ids)
	return slices.Compact(resources), slices.Compact(ids)
}

// run finds the queue of a command and lets the rules work on it.
func run(queues *claim.Queues, cmd claim.Command) (claim.Claim, error) {
	resource, id := cmd.Target()
	named := queues.Claim(id)
	q := named
	if resource != "" {
		q = queues.Resource(resource)
		if named != nil && named != q {
			return claim.Claim{}, claim.ErrIDTaken
		}
	}
	if q == nil {
		return claim.Claim{}, claim.ErrNotFound
	}
	c, err := q.Do(cmd, queues.Now)
	if err == nil && resource != "" && id != "" {
		queues.Name(id, resource) // for those that come later in the batch
	}
	return c, err
}
