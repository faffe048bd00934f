// Package db is the contract between the servers and their database: what a Store
// must do, in which errors it answers, and how its clocks run. The engines live in the
// packages below it; the suite that each of them passes is package dbtest.
package db

import (
	"context"
	"errors"
	"time"

	"github.com/locket-service/locket/claim"
)

var (
	// ErrUnavailable is returned when the database cannot be reached or does not
	// answer. What was asked for has not happened.
	ErrUnavailable = errors.New("the database is not available")
	// ErrConflict is returned when other servers' transactions came first, again and
	// again. What was asked for has not happened.
	ErrConflict = errors.New("other transactions came first")
	// ErrOutcomeUnknown is returned when the connection broke during a commit and the
	// outcome could not be read back in time.
	ErrOutcomeUnknown = errors.New("the outcome of the commit is not known")
	// ErrNewerSchema is returned by Open when the database was migrated by a newer
	// Locket than this one.
	ErrNewerSchema = errors.New("the database's schema is newer than this locket")
	// ErrInUse is returned by Open when an embedded database has a server already.
	ErrInUse = errors.New("the database is in use by another locket server")
)

// Store is one durable home of the queues. All methods may be called at once, except
// that there is one caller of Transact, Beat and Resume.
type Store interface {
	Reader

	// Transact runs fn in one read-write transaction and commits it durably: when it
	// returns nil, no crash of the server or of the database loses what fn saved.
	// The store rolls back and runs fn again when other transactions came first, so
	// fn must have no effect except through its Tx. An error of fn is returned as it
	// is, with nothing saved. Other errors are ErrUnavailable, ErrConflict,
	// ErrOutcomeUnknown, or tell of a fault in the database.
	Transact(ctx context.Context, fn func(Tx) error) error

	// Beat records that a server is there to take renewals; see Clock. It is to be
	// called every BeatInterval.
	Beat(ctx context.Context) error

	// Resume is the first Beat after a time in which this server could not commit. Unless
	// another server has beaten meanwhile, all of the time since the last beat becomes an
	// outage, however short it was.
	Resume(ctx context.Context) error

	// Changes returns the ids of waiting claims that other servers have granted or
	// ended since the last call, in the order of each server's commits. An id may
	// come more than once. An engine that allows one server only returns none.
	Changes(ctx context.Context) ([]string, error)

	// Prune deletes up to limit finished claims that ended before a moment, oldest
	// first, and returns how many it deleted.
	Prune(ctx context.Context, before claim.Time, limit int) (int, error)

	// PruneResources looks at up to limit rows of resources, in the order of their
	// names from after on, deletes those that have no live claims and have not
	// changed since before, and returns the name at which to go on, "" at the end.
	// However low the clock falls later on, a resource's version never comes below
	// that of a row deleted here.
	PruneResources(ctx context.Context, after string, before claim.Time, limit int) (next string, err error)

	// Close ends all use of the database.
	Close() error
}

// Reader is what can be asked without changing anything. Answers hold everything that
// was acknowledged, by any server, before the question.
type Reader interface {
	// Get returns a claim, live or finished, or claim.ErrNotFound.
	Get(ctx context.Context, id string) (claim.Claim, claim.Instant, error)

	// Holder returns a claim that holds the resource, the one that has held it for
	// longest if there are several, or claim.ErrNotFound.
	Holder(ctx context.Context, resource string) (claim.Claim, error)

	// Held returns all active claims of a type, in no order.
	Held(ctx context.Context, t claim.Type) ([]claim.Claim, error)

	// List returns the claims that pass the filter, oldest first (by the time of
	// their creation, then by id).
	List(ctx context.Context, f Filter) ([]claim.Claim, claim.Instant, error)

	// Queue returns the queue of a resource as it is at one moment. A name that has no
	// row is that of a free resource with version 0.
	Queue(ctx context.Context, resource string, limit int) (Snapshot, claim.Instant, error)

	// Ahead counts the waiting claims of a resource that stand before a position, up
	// to limit.
	Ahead(ctx context.Context, resource string, position uint64, limit int) (int, error)

	// Due returns the names of up to limit resources with a holder whose lease has
	// run out: at once where somebody waits, after idle otherwise.
	Due(ctx context.Context, idle time.Duration, limit int) ([]string, error)

	// Count returns the number of waiting, active and finished claims. It costs a
	// scan of an index: call it rarely.
	Count(ctx context.Context) (Counts, error)

	// HistoryCutoff returns the moment that the keep-th newest finished claim ended,
	// or 0 when there are fewer. It costs a scan of an index: call it rarely.
	HistoryCutoff(ctx context.Context, keep int) (claim.Time, error)

	// Now reads the clocks.
	Now(ctx context.Context) (claim.Instant, error)
}

// Snapshot is a resource's queue at one moment.
type Snapshot struct {
	claim.Row
	// Holders and Waiters are in the order in which the claims came; limit of Queue
	// bounds each. They come without UserData and Value, which may be large.
	Holders, Waiters []claim.Claim
}

// Counts is how many claims there are.
type Counts struct {
	Waiting, Active, Finished int64
}

// Tx is one transaction. It is used by one goroutine.
type Tx interface {
	// Load reads the queues of the resources and of the claims with the given ids,
	// and keeps other transactions from changing them. It is called once. Each queue
	// knows its exclusive holder, its shared holders that are due (all, or the first
	// few hundred), and those of the given claims that belong to it.
	Load(resources, ids []string) (*Queues, error)

	// Save writes what changed in the queues.
	Save(q *Queues) error
}

// Queues is what a transaction has loaded.
type Queues struct {
	// Now is the time of the transaction: read after it began, so not before any of
	// the requests that it serves.
	Now claim.Instant

	byResource map[string]*claim.Queue
	byID       map[string]*claim.Queue
}

// NewQueues returns an empty set of queues.
func NewQueues(now claim.Instant, size int) *Queues {
	return &Queues{
		Now:        now,
		byResource: make(map[string]*claim.Queue, size),
		byID:       make(map[string]*claim.Queue),
	}
}

// Put adds a queue.
func (qs *Queues) Put(q *claim.Queue) { qs.byResource[q.Resource] = q }

// Add makes a claim known to the queue of its resource, which is there already.
func (qs *Queues) Add(c *claim.Claim) { qs.byResource[c.Resource].Add(c) }

// Name records which queue a claim that was asked for by its id is in.
func (qs *Queues) Name(id, resource string) { qs.byID[id] = qs.byResource[resource] }

// Resource returns the queue of a resource that was loaded by its name.
func (qs *Queues) Resource(name string) *claim.Queue { return qs.byResource[name] }

// Claim returns the queue of the claim with an id, nil when there is no such claim.
func (qs *Queues) Claim(id string) *claim.Queue { return qs.byID[id] }

// Changed returns the queues that must be saved.
func (qs *Queues) Changed() []*claim.Queue {
	changed := make([]*claim.Queue, 0, len(qs.byResource))
	for _, q := range qs.byResource {
		if q.Changed() {
			changed = append(changed, q)
		}
	}
	return changed
}

// Err returns the first error of reading more of a queue while commands ran.
func (qs *Queues) Err() error {
	for _, q := range qs.byResource {
		if err := q.Err(); err != nil {
			return err
		}
	}
	return nil
}
