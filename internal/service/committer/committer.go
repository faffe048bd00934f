package committer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tedsuo/ifrit"
	"golang.org/x/time/rate"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/base/inbox"
	"github.com/locket-service/locket/internal/base/outage"
	"github.com/locket-service/locket/internal/base/periodic"
	"github.com/locket-service/locket/internal/rules/access"
	"github.com/locket-service/locket/internal/rules/claim"
)

// DefaultBatch is the largest number of requests in one transaction.
const DefaultBatch = 512

// Config says how to commit.
type Config struct {
	// MaxBatch is the largest number of requests in one transaction; DefaultBatch if it
	// is 0.
	MaxBatch int
	// Timeout is the deadline of a transaction, and how long a request waits for one.
	Timeout time.Duration
	// MaxPending is how many requests may wait for a transaction; DefaultPending if it is 0.
	MaxPending int
	// Gather is how long a batch waits at most for the callers of the last one. It is for stores where each commit is expensive,
	// and that commit one transaction after the other: 0 for others.
	Gather  time.Duration
	Log     *slog.Logger
	Metrics *Metrics
	// Listeners get what each transaction changed.
	Listeners []Listener
	// Guard, unless it is nil, is asked for each request that may make a claim.
	Guard Guard
	// Refused, unless it is nil, is called on the goroutine that commits for each request that claims a resource and is
	// refused (claim.Refused).
	Refused func(resource string)
}

// ErrStopping is returned for requests that the server no longer takes, because it shuts
// down. Another server can.
var ErrStopping = errors.New("the server is shutting down")

// Store is the part of a store that a committer uses.
type Store interface {
	db.Transactor
	db.Pulse
}

// Guard decides which claims may be made, before their commands are in a batch.
type Guard interface {
	Listener
	// Admit is called for each command that may make a claim, before the command joins a batch. It returns two
	// functions, which may be nil. The committer calls read first; its error is the answer to the command. It calls
	// release when the command has been decided, or will never be.
	Admit(caller access.Caller, cmd claim.Command) (read func(context.Context) error, release func())
}

// Result is the answer to a command.
type Result struct {
	// Claim is empty for a command that is about no claim.
	Claim claim.Claim
	// Position is Claim's place in the queue, 1 for the next; 0 if it is not known, or the claim does not wait.
	Position int
	// Now is the time of the transaction.
	Now claim.Instant
}

// request is a command on its way through a batch.
type request struct {
	ctx    context.Context
	caller access.Caller
	cmd    claim.Command
	queued time.Time
	bytes  int
	done   chan struct{}
	then   func(Result, error) // goes to the inbox in place of a value in done, unless it is nil
	to     *inbox.Inbox
	// releases free what the guard and the store keep for the command.
	releases [2]func()

	result Result
	err    error
}

// decided releases what is kept for a command that has been decided, or will never be.
func (r *request) decided() {
	for i, release := range r.releases {
		if release != nil {
			release()
			r.releases[i] = nil
		}
	}
}

// Committer carries commands to the store in batches.
type Committer struct {
	store     Store
	maxBatch  int
	timeout   time.Duration
	gathers   time.Duration
	callers   int           // requests of the last batch that has ended, and the ones that waited then
	took      time.Duration // the time of that batch
	log       *slog.Logger
	metrics   *Metrics
	listeners listeners
	refused   func(resource string)
	guard     Guard // nil: every claim may be made
	leases    leases
	tracer    Tracer       // nil: no traces
	sessions  Sessions     // nil: no sessions
	beats     *inbox.Inbox // for the sessions
	// registered is the name whose sessions the beats keep alive, nil for none.
	registered atomic.Pointer[string]
	flight     *flight // the batch that is decided, and not committed yet; nil for none
	health     health
	requests   sync.Pool // not shared: the channels of one synctest bubble work in no other

	queue   *queue
	failing bool // the database did not take the last commit
	outages *outage.Log
	// failures and cuts bound the lines in the log about requests that make their transaction fail: any number may.
	failures, cuts rate.Sometimes
	// until is the last time when this server could commit; zero after a failed commit or beat. See inService.
	until time.Time
	time  leaseTime
}

// New returns a committer for a store.
func New(store Store, config Config) *Committer {
	known := &holders{owners: make(map[string]string)}
	c := &Committer{
		store: store, maxBatch: cmp.Or(config.MaxBatch, DefaultBatch), timeout: config.Timeout, gathers: config.Gather,
		log: config.Log, metrics: config.Metrics, refused: config.Refused, guard: config.Guard,
		requests: sync.Pool{New: func() any { return &request{done: make(chan struct{}, 1)} }},
		queue:    newQueue(cmp.Or(config.MaxPending, DefaultPending), known.holds),
		outages:  outage.New(config.Log, slog.LevelError, "the database takes no commits", "the database takes commits again"),
		failures: rate.Sometimes{First: 100, Interval: time.Second}, cuts: rate.Sometimes{First: 100, Interval: time.Second},
	}
	c.beats = inbox.New(maxBeats, nil)
	c.time.start()
	c.listeners.all = append([]Listener{config.Metrics, known, &c.leases}, config.Listeners...)
	if c.guard != nil {
		c.listeners.all = append(c.listeners.all, c.guard)
	}
	c.metrics.watch(c.queue)
	return c
}

// Do carries out one command, for the caller of the context (access.WithCaller). A command that is too large for one
// transaction continues in the next, until it is done or ctx ends. Do returns errors of package claim and of db.Store,
// ErrStopping, ErrOverloaded, or ctx's error. When ctx ends first the outcome is unknown: the command may still be
// carried out, and may be sent again.
func (c *Committer) Do(ctx context.Context, cmd claim.Command) (Result, error) {
	r := c.requests.Get().(*request)
	r.ctx, r.caller, r.cmd = ctx, access.CallerOf(ctx), cmd
	if read := c.prepare(r); read != nil {
		if err := read(ctx); err != nil {
			r.decided()
			return Result{}, cmp.Or(context.Cause(ctx), err)
		}
	}
	if err := c.add(r); err != nil {
		return Result{}, err
	}
	select {
	case <-r.done:
		result, err := r.result, r.err
		c.recycle(r)
		return result, err
	case <-ctx.Done():
		return Result{}, context.Cause(ctx) // r is the batch's now, not the pool's
	}
}

// Submit queues a command for the caller of ctx and does not wait for its transaction. The inbox calls then with the
// result that Do would return. The end of ctx does not end the command. If Submit returns an error, ErrStopping or
// ErrOverloaded, then is not called.
func (c *Committer) Submit(ctx context.Context, cmd claim.Command, to *inbox.Inbox, then func(Result, error)) error {
	r := c.requests.Get().(*request)
	r.ctx, r.caller, r.cmd, r.to, r.then = ctx, access.CallerOf(ctx), cmd, to, then
	read := c.prepare(r)
	if read == nil {
		return c.add(r)
	}
	go func() {
		err := read(context.WithoutCancel(ctx))
		if err == nil {
			err = c.add(r)
		}
		if err != nil {
			c.answer([]*request{r}, err)
		}
	}()
	return nil
}

// recycle puts an answered request into the pool. Nothing else may refer to it.
func (c *Committer) recycle(r *request) {
	*r = request{done: r.done}
	c.requests.Put(r)
}

// prepare asks the guard whether a request may make its claim, and lets the store keep the data for its transaction.
// It returns a read that must be done, beside the commits, before the request joins a batch; nil for none.
func (c *Committer) prepare(r *request) func(context.Context) error {
	var check, read func(context.Context) error
	if c.guard != nil && c.queue.isNew(r.cmd) {
		check, r.releases[0] = c.guard.Admit(r.caller, r.cmd)
	}
	read, r.releases[1] = c.store.Prepare(r.cmd)
	switch {
	case check == nil:
		return read
	case read == nil:
		return check
	}
	return func(ctx context.Context) error {
		if err := check(ctx); err != nil {
			return err
		}
		return read(ctx)
	}
}

// add puts a request into the queue, or counts it as refused.
func (c *Committer) add(r *request) error {
	err := c.queue.add(r)
	if err != nil {
		r.decided()
		c.metrics.refused.Inc()
	}
	return err
}

// Run implements ifrit.Runner. On a signal it finishes the batch under way; requests that come
// later get ErrStopping.
func (c *Committer) Run(signals <-chan os.Signal, ready chan<- struct{}) (err error) {
	timeouts := ifrit.Background(periodic.New(max(c.timeout/20, time.Millisecond), c.answerOld))
	defer func() {
		timeouts.Signal(os.Interrupt)
		err = errors.Join(err, <-timeouts.Wait())
	}()
	beat := time.NewTicker(db.BeatInterval)
	defer beat.Stop()
	_ = c.beat() // reported; requests get their own errors
	close(ready)
	for {
		select { // the signal has priority: while the database hangs, each of the others takes long
		case <-signals:
			c.land()
			c.stop()
			return nil
		default:
		}
		select { // and so have beats: lease time stands still without them
		case <-beat.C:
			c.beatForLeases()
		default:
		}
		select { // then requests: where a beat takes as long as its interval, the next one is due by now
		case <-c.queue.wake:
			c.woken()
			continue
		default:
		}
		select {
		case <-signals:
			c.land()
			c.stop()
			return nil
		case <-beat.C:
			c.beatForLeases()
		case <-c.flight.done():
			c.land()
		case <-c.flight.late():
			c.land()
		case <-c.queue.wake:
			c.woken()
		}
	}
}

// woken begins the next batch, if worth allows it.
func (c *Committer) woken() {
	if !c.inService() {
		c.land()
	}
	if c.worth() {
		c.next()
	}
}

// next commits the requests that wait.
func (c *Committer) next() {
	if err := c.resume(); err != nil { // callers need not wait for two timeouts
		c.answer(c.queue.takeAll(), err)
		return
	}
	c.gather()
	c.commit(c.queue.take(c.maxBatch))
}

// answerOld answers the requests that have waited for longer than a transaction may take, and were not executed.
func (c *Committer) answerOld(context.Context) {
	old := c.queue.takeOlder(time.Now().Add(-c.timeout))
	c.answer(old, fmt.Errorf("%w: no transaction began within %s", db.ErrUnavailable, c.timeout))
}

func (c *Committer) stop() { c.answer(c.queue.stop(), ErrStopping) }
