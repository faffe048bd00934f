// Package db, for this module only, is the contract between the servers and their database: what a Store
// must do, which errors it returns, and how its clocks run. The engines are the
// packages below it; package dbtest is the test suite for all of them.
package db

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/locket-service/locket/internal/rules/claim"
)

var (
	// ErrUnavailable is returned when the database cannot be reached or does not
	// answer. Nothing was changed.
	ErrUnavailable = errors.New("the database is not available")
	// ErrNoQuorum is the ErrUnavailable of a server of a cluster that is cut off from the others, or whose log has no
	// quorum. Nothing was changed.
	ErrNoQuorum = fmt.Errorf("%w: no server of the cluster can commit, or this one is cut off from the others", ErrUnavailable)
	// ErrConflict is returned when each attempt of a transaction conflicted with other servers' transactions.
	// Nothing was changed.
	ErrConflict = errors.New("other transactions came first")
	// ErrRowLocked is the error of the commands on a resource or a session whose row another server's
	// transaction keeps locked, usually because that server failed. The command has changed
	// nothing. The other commands of the transaction are not affected.
	ErrRowLocked = errors.New("another server's transaction keeps the row locked")
	// ErrOutcomeUnknown is returned when the connection broke during a commit and the
	// outcome could not be read back in time, or when the disk did not confirm it: in time, or at all.
	ErrOutcomeUnknown = errors.New("the outcome of the commit is not known")
	// ErrListTooLong is returned by List for a filter that requires reading too many claims,
	// and while many such lists wait.
	ErrListTooLong = errors.New("the list reads too many claims")
	// ErrNewerSchema is returned by Open when the database was migrated by a newer
	// Locket than this one.
	ErrNewerSchema = errors.New("the database's schema is newer than this locket")
	// ErrInUse is returned by Open when an embedded database has a server already.
	ErrInUse = errors.New("the database is in use by another locket server")
)

// Store stores the queues durably. Its methods may be called concurrently, except that there is one caller of Transact
// and Beat, and one of the Pruner. Each part of a server takes only the interface that it needs.
//
// The end of a context ends each method, with an error. Engines document exceptions: the embedded engine cannot
// interrupt a read of a disk that does not answer.
type Store interface {
	Reader
	Due
	Usages
	Transactor
	Sessions
	Pulse
	Feed
	Members
	Pruner

	// About returns this server's knowledge of the database. It asks nothing of it.
	About() About

	// Close ends all use of the database. It waits some seconds at most for a database
	// that does not answer.
	Close() error
}

// About describes a database and its state.
type About struct {
	// Engine is the name of the engine, and Version the version of the database in its own words, when the store was opened.
	Engine, Version string
	// Warnings are problems that an operator should fix although the database takes commits.
	Warnings []string
	// Broken is closed when the store takes no more commits until it is opened again, and nil if that cannot happen. Failure
	// then says why.
	Broken  <-chan struct{}
	Failure error
}

// Transactor carries out transactions.
type Transactor interface {
	// Transact carries out the requests of a batch, one after the other, in one read-write transaction, and
	// commits it durably: no crash of the store or of the server then loses what was
	// answered. After a conflict with another transaction the store rolls back and tries again. The refusal of
	// a request is in its answer. An error concerns the whole batch, and nothing is saved: it is
	// ErrUnavailable, ErrConflict, or another one for a fault in the database or in the rules. After
	// ErrOutcomeUnknown the whole batch may be saved.
	//
	// It may return before the commit, with a Completion, and the outcome that the batch has if the commit succeeds.
	// Then no caller may learn the outcome before the commit has succeeded, and the next batch may be carried out
	// meanwhile: the end of ctx ends its wait for earlier batches. Without a Completion the batch is committed.
	Transact(ctx context.Context, batch Batch) (Outcome, Completion, error)

	// Prepare says that a command will be in a batch. Its caller calls read, unless it is nil, before that, and release,
	// unless it is nil, when the command has been decided, or will not be: then its transaction reads no file. read may
	// last as long as the disk takes, and the other commands need not wait for it. Its error is ErrUnavailable.
	Prepare(cmd claim.Command) (read func(context.Context) error, release func())
}

// Batch is the requests of one transaction. It is plain data, without references to the store.
type Batch struct {
	Requests []claim.Request
}

// Outcome is the result of a transaction. It is plain data. What it points to does not change.
type Outcome struct {
	// Now is the time of the transaction.
	Now claim.Instant
	// Answers are those to the requests of the batch, in their order.
	Answers []claim.Answer
	// Changes are the net changes of claims (claim.Net).
	Changes []claim.Transition
	// Committed says whether there was anything to commit.
	Committed bool
	// Unsettled are the resources with claims that can be granted, more than one transaction grants.
	Unsettled []string
}

// Completion is the commit of a batch that is under way.
type Completion interface {
	// Done is closed when the commit has ended.
	Done() <-chan struct{}
	// Wait waits until the commit has ended, or ctx has, and returns an error as Transact does.
	Wait(ctx context.Context) error
}

// Pulse shows that a server can commit renewals, so that lease time advances: see Clock.
type Pulse interface {
	// Beat commits a transaction on Transact's connection, in the tables that a renewal writes, and advances lease time. So
	// it fails when no renewal could be committed. Call it every BeatInterval while
	// there are leases. resumes says that this server could not commit until now: because a commit has failed, because it
	// has just started, or because it was stopped. Then none of the time since the last beat of any server
	// counts.
	Beat(ctx context.Context, resumes bool) error

	// Register stores a name; sessions will be attached to this server under it. From then on each Beat
	// also records, in the same commit, that this server is alive, until one returns
	// ErrServerGone, or Register is called again. The name is new each time; "" stops it. A Beat
	// that runs meanwhile is about the name before, or about none.
	Register(ctx context.Context, name string) error
}

// ReadingInterval is the lease time between two readings of the clocks that are stored (Pruner.Remember), and ReadingAge how long they are kept.
const (
	ReadingInterval = 15 * time.Second
	ReadingAge      = 2 * time.Hour
)

// Pruner deletes what is no longer needed, and counts what there is.
type Pruner interface {
	Clocks

	// Remember stores a reading of the clocks, unless the last one is less than ReadingInterval of lease time old, and returns the earlier
	// ones of the last ReadingAge, and one before that, oldest first: for Past.Resume. It may be called seldom.
	Remember(ctx context.Context, now claim.Instant) (earlier []claim.Instant, err error)

	// Prune deletes up to limit finished claims that ended before a moment, oldest
	// first, and returns how many it deleted.
	Prune(ctx context.Context, before claim.Time, limit int) (int, error)

	// PruneResources looks at up to limit rows of resources, by name from after on, and deletes rows without live
	// claims that have not changed since before. It returns the name to continue from, "" at the end; with an error, the
	// name behind the rows that could not be deleted, "" if the caller must repeat the call. If a deleted row is made
	// again, its version is never lower, even if the clock was set back.
	PruneResources(ctx context.Context, after string, before claim.Time, limit int) (next string, err error)

	// Census counts the claims, and finds the end of the keep-th newest finished claim, for keep above 0. It costs a
	// scan of indexes: call it rarely.
	Census(ctx context.Context, keep int) (Census, error)
}

// Clocks reads the database's clocks.
type Clocks interface {
	// Now reads the clocks.
	Now(ctx context.Context) (claim.Instant, error)

	// ClockState returns the state of the clocks when this server last read them. It asks nothing of the database.
	ClockState() ClockState
}

// Due finds what must be ended.
type Due interface {
	// Due returns the names of due items, or, for a query that asks for none, when something will be due.
	Due(ctx context.Context, query DueQuery) (Overdue, error)
}

// DueQuery is the query of Due.
type DueQuery struct {
	// Idle is for how long a lease that has run out is kept while no claim waits for its resource.
	Idle time.Duration
	// Resources, Waiters and Sessions are the maximum numbers of names of each kind; 0 for none.
	Resources, Waiters, Sessions int
}

// Names returns for how many names the query asks.
func (q *DueQuery) Names() int { return q.Resources + q.Waiters + q.Sessions }

// Overdue is the answer of Due.
type Overdue struct {
	// Resources are the names of resources with a holder whose lease has run out.
	Resources []string
	// Waiters are the ids of claims that wait and that nobody has asked about for their WaitTTL. Sessions are the ids
	// of sessions that are detached and due. In both the longest due come first.
	Waiters, Sessions []string
	// Next is the lease time when Due for all kinds, and DetachSilent for ServerTimeout, must be called again, if
	// they have just returned nothing and nothing changes before: then a lease is due, or has been due for Idle, a
	// waiting claim is abandoned, a session is due, or another registered server has been silent. It is 0 when no
	// lease is live, no waiting claim has a WaitTTL, and there is no session, and claim.Forever when
	// all of these last forever. It is set only for a query for no names. It costs a few look-ups in an index, however
	// many leases there are.
	Next claim.Time
	// Now is the time of the answer.
	Now claim.Instant
}

// Usages counts the claims of identities.
type Usages interface {
	// Usage counts the live claims of an identity, except the claims with some ids, each given once. "", the identity of callers that are not
	// authenticated, has none. The answer contains everything that any server acknowledged before the call.
	Usage(ctx context.Context, identity string, except []string) (claim.Count, error)
}

// Getter reads single claims.
type Getter interface {
	// Get returns a claim, live or finished, or claim.ErrNotFound. If the claim waits, it also counts the claims that wait
	// before it, up to limit. Both are of one moment.
	Get(ctx context.Context, id string, limit int) (c claim.Claim, ahead int, now claim.Instant, err error)
}

// Reader has the reads that callers may request. An answer contains everything that any server
// acknowledged before the call.
type Reader interface {
	Getter
	Resources

	// Holder returns the claim that has held the resource for longest, or claim.ErrNotFound.
	Holder(ctx context.Context, resource string) (claim.Claim, error)

	// Live returns live claims (see LiveOf) whose ids come after the page's, in the order of their ids (as bytes), as
	// many as Limit and Bytes allow. A claim that is live from the first page to the last is in exactly one.
	Live(ctx context.Context, of LiveOf, page Page) ([]claim.Claim, error)

	// List returns the claims that pass the filter, by the time of their creation, then by id:
	// all of them, or as many as Limit and Bytes allow. Lists are
	// limited in time, by ErrListTooLong, and in how many of the expensive ones run at once, so
	// that they do not delay anything else. A filter by creation time, by a final status, or by the
	// live statuses of a resource is cheap, and so is one by live statuses where there are few of these,
	// or few under its prefix.
	List(ctx context.Context, f Filter) ([]claim.Claim, claim.Instant, error)

	// Queue returns the queue of a resource at one moment. A name without a row is a free resource with version 0.
	Queue(ctx context.Context, resource string, limit int) (Snapshot, claim.Instant, error)

	// WaitsOf returns claims that wait, of any of the owners: all of them, or limit. They are in
	// no order, and come without UserData and Value. The zero Party has none.
	WaitsOf(ctx context.Context, owners []claim.OwnerKey, limit int) ([]claim.Claim, error)
}

// LiveOf says which live claims to return. The zero value is all of them. One field at most is set.
type LiveOf struct {
	// Resource is the name of their resource. These claims, and all claims, come without UserData, and without a Value of
	// more than MaxFeedValue bytes.
	Resource *string
	// Session is the id of their session. These come all at once, in order of arrival, without UserData and Value; the page
	// must be the zero value. There are none if there is no such session.
	Session string
	// Held is the type of active claims. These come with all their data. Without a Limit they come all at once, in no order.
	Held *claim.Type
}

// Snapshot is a resource's queue at one moment.
type Snapshot struct {
	claim.Row
	// Holders and Waiters are in order of arrival; limit of Queue bounds each. They come without UserData, and with the
	// Beginning of their values.
	Holders, Waiters []claim.Claim
}

// MaxBeginning is the maximum length of a Beginning in bytes.
const MaxBeginning = 200

// Beginning returns as many whole characters of a value as a queue has.
func Beginning(value string) string {
	return strings.ToValidUTF8(value[:min(len(value), MaxBeginning)], "")
}

// Census says how many claims there are. Its parts need not be of one moment.
type Census struct {
	Waiting, Active, Finished int64
	// Sessions counts the sessions, attached or not.
	Sessions int64
	// OldestWaiting is when the waiting claim that came first was made, 0 if none waits.
	OldestWaiting claim.Time
	// Cutoff is when the keep-th newest finished claim ended, 0 if there are fewer.
	Cutoff claim.Time
}

// Wanted lists the resources, by name, and the claims and sessions, by id, that a transaction loads.
type Wanted struct {
	Resources, Claims, Sessions []string
	// WholeHolders are the Resources whose exclusive holders, and WholeClaims the Claims, that are loaded with all
	// their data. Any other claim may come without data longer than claim.MaxBrief (claim.Claim.Brief).
	WholeHolders, WholeClaims []string
	// Ending are the Sessions whose live claims are loaded too, and Withdrawing the Sessions whose waiting claims are:
	// at most claim.MaxEnds in total. Of each session waiting claims come first (claim.Queues.PutPart).
	Ending, Withdrawing []string
}

// MaxDue is how many shared holders that are due a transaction loads, and then still one of each queue.
const MaxDue = 1000

// CarryOut turns an Updater into a Transactor. Engines and their tests use it; a Store need not implement it.
type Updater interface {
	// Update runs fn in one read-write transaction, and commits it as Transact does. It runs fn again when other
	// transactions came first, so fn must have no effect except through its Tx. An error of fn is returned unchanged,
	// with nothing saved.
	Update(ctx context.Context, fn func(Tx) error) error
}

// Tx is one transaction. It is used by one goroutine.
type Tx interface {
	// Load reads the wanted sessions, and the queues of the wanted resources and claims,
	// and keeps other transactions from changing them. It is called once. Each queue
	// knows its exclusive holder, its shared holders that are due (MaxDue of all queues
	// together, and at least one of each), and any of the given claims that belong to it. A resource or a
	// session that another transaction keeps locked for longer than transactions take is not loaded: its
	// commands get ErrRowLocked (claim.Queues.Refuse and RefuseSession).
	Load(wanted Wanted) (*claim.Queues, error)

	// Save writes the rows of the queues and of the sessions that changed, and the claims of
	// their Changes.
	Save(queues *claim.Queues) error
}

// OnlyEnds reports whether a change only ends a stored claim: only Status, Version, Finished,
// Reason and EndedBy differ. Most writes of a busy server are of this kind, and engines have a
// cheaper statement for it.
func OnlyEnds(change claim.Transition) bool {
	before, after := change.Before, change.After
	return before != nil && after.Status.Final() &&
		before.Token == after.Token && before.Activated == after.Activated && before.Deadline == after.Deadline &&
		before.TTL == after.TTL && before.Type == after.Type && !change.SetsValue()
}

// Sooner returns the earlier one of two times; 0 means never. Engines compute Overdue.Next with it.
func Sooner(a, b claim.Time) claim.Time {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}

// LookAt returns Overdue.Next for a lease with this deadline: the deadline; or, if it has passed, the deadline
// and idle, because Due would have returned the resource already if claims waited for it.
func LookAt(deadline, now claim.Time, idle time.Duration) claim.Time {
	if deadline <= now {
		return deadline.Add(idle)
	}
	return deadline
}

const (
	// AnnounceInterval is how often a server announces itself.
	AnnounceInterval = 10 * time.Second
	// MemberAge is for how long after its last announcement a server is still known.
	MemberAge = 5 * time.Minute
)

// Member is a server of a database.
type Member struct {
	// Name identifies the server process. No other process has had the same one.
	Name          string
	Host, Version string
	// Started is when it was started, by its own clock, and Seen when it last announced itself, by the database's, or in a
	// cluster by the clock of the server that answers.
	Started, Seen claim.Time
}

// Members are the servers that share a database. Nothing but the answer about the service's status depends on them.
type Members interface {
	// Announce notes that the server of this store is there now, or forgets it if it leaves, and forgets the servers that were
	// last announced longer than MemberAge ago.
	Announce(ctx context.Context, m Member, leaves bool) error

	// Members returns the servers in the order of their names (as bytes).
	Members(ctx context.Context) ([]Member, claim.Instant, error)
}

// Resources reads which resources have live claims.
type Resources interface {
	// Resources reads the rows of up to limit resources, in the order of their names (as bytes): names that begin with
	// a prefix and come after another name, which need not exist. It returns the resources with live claims, and the
	// name to continue from, "" at the end. Its cost does not depend on the number of claims.
	Resources(ctx context.Context, prefix, after string, limit int) (live []Resource, next string, now claim.Instant, err error)

	// Contended returns up to limit resources with waiting claims and a prefix, most waiters first, then by name; after
	// skips resources up to and including one. It costs a look-up in an index for each of these resources, however many
	// claims wait: for more than MaxContended of them it returns ErrListTooLong, and for more than ManyContended while
	// many expensive lists wait.
	Contended(ctx context.Context, prefix string, after *Contention, limit int) ([]Resource, claim.Instant, error)
}

// ManyContended is the number of resources with waiting claims that makes Contended an expensive list; few of these run
// concurrently.
const ManyContended = 1000

// MaxContended is the maximum number of resources with waiting claims among which Contended searches.
const MaxContended = 10_000

// Resource is a resource with live claims.
type Resource struct {
	claim.Row
	// First is the claim that has held the resource for longest. It comes without UserData and Value. Its ID is "" if
	// nobody holds the resource.
	First claim.Claim
	// WaitsSince is when the first waiter was created; 0 if no claim waits.
	WaitsSince claim.Time
}

// Contention is a resource's place in the order of Contended.
type Contention struct {
	Waiting  int
	Resource string
}

// ServerTimeout is how long, in lease time, a server with sessions may be silent until other servers declare it gone.
const ServerTimeout = 2 * time.Second

// ErrServerGone is returned by Beat, wrapped, when another server has declared this one
// gone. Its sessions are detached, or have moved; none are its own from then on. The beat itself
// was done.
var ErrServerGone = errors.New("this server was declared gone: its sessions are detached")

// Sessions reads sessions, and finds sessions that no server keeps alive. Sessions change by transactions (claim.Attach
// and the commands beside it), and when a server is gone.
type Sessions interface {
	// Session returns a session, or claim.ErrSessionEnded.
	Session(ctx context.Context, id string) (claim.Session, claim.Instant, error)

	// Sessions returns up to limit sessions whose ids come after one, in the order of their ids
	// (as bytes).
	Sessions(ctx context.Context, after string, limit int) ([]SessionCount, claim.Instant, error)

	// AttachedTo returns the ids of the sessions that are attached to a server, in no order.
	AttachedTo(ctx context.Context, server string) (ids []string, err error)

	// DetachSilent declares each server gone, except this one, that has not beaten for silence, in
	// lease time. In steps, it detaches the server's sessions: they fall due
	// when their TTL has passed since that server's last beat, or since they were attached if that
	// was later. It returns how many sessions it has detached. What an error leaves, another call detaches.
	DetachSilent(ctx context.Context, silence time.Duration) (detached int, err error)
}

// SessionCount is a session, and how many claims it has.
type SessionCount struct {
	claim.Session
	// Active and Waiting are the numbers of its claims with that status.
	Active, Waiting int
}
