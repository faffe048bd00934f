package dbtest_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/db/dbtest"
	"github.com/locket-service/locket/internal/rules/claim"
)

// made and changed are faults in saved claims.
func made(fn func(*claim.Claim)) func(*broken) {
	return func(b *broken) {
		b.save = claims(func(c *claim.Claim, made bool) {
			if made {
				fn(c)
			}
		})
	}
}

func changed(fn func(*claim.Claim)) func(*broken) {
	return func(b *broken) {
		b.save = claims(func(c *claim.Claim, made bool) {
			if !made {
				fn(c)
			}
		})
	}
}

func filter(fn func(*db.Filter)) func(*broken) {
	return func(b *broken) {
		b.filter = func(f db.Filter) db.Filter { fn(&f); return f }
	}
}

// old undoes the changes of a claim's stored fields.
func old(b *broken, c *claim.Claim) {
	was, _, _, err := b.Store.Get(context.Background(), c.ID, 0)
	if err == nil {
		c.Type, c.TTL, c.Value, c.Status, c.Token, c.Version, c.Deadline, c.Activated, c.Finished, c.Reason =
			was.Type, was.TTL, was.Value, was.Status, was.Token, was.Version, was.Deadline, was.Activated, was.Finished, was.Reason
	}
}

// forgetful knows no floor.
func forgetful(b *broken) {
	b.load = func(tx db.Tx, wanted db.Wanted) (*claim.Queues, error) {
		queues, err := tx.Load(wanted)
		if err != nil {
			return nil, err
		}
		for _, r := range wanted.Resources {
			if q := queues.Resource(r); q.Stored().Version == 0 {
				queues.Put(claim.NewQueue(claim.Row{Resource: r}, 0, nil))
			}
		}
		return queues, nil
	}
}

// renamed takes names for one that become the same by a change, and stores that.
func renamed(change func(string) string) func(*broken) {
	return func(b *broken) {
		b.load = func(tx db.Tx, wanted db.Wanted) (*claim.Queues, error) {
			queues, err := tx.Load(wanted)
			if err != nil {
				return nil, err
			}
			for _, r := range wanted.Resources {
				if other := change(r); other != r && slices.Contains(wanted.Resources, other) {
					queues.Put(renamedQueue(queues.Resource(other), r))
				}
			}
			return queues, nil
		}
		b.save = claims(func(c *claim.Claim, _ bool) {
			c.Resource, c.Owner = change(c.Resource), change(c.Owner)
		})
	}
}

func renamedQueue(q *claim.Queue, name string) *claim.Queue {
	row := q.Stored()
	row.Resource = name
	return claim.NewQueue(row, 0, nil)
}

// stale makes Get repeat its first answer.
func stale(b *broken) {
	var mu sync.Mutex
	seen := map[string]claim.Claim{}
	b.claim = func(c *claim.Claim) {
		mu.Lock()
		defer mu.Unlock()
		if first, ok := seen[c.ID]; ok {
			*c = first
		}
		seen[c.ID] = *c
	}
}

// split loads in one transaction and saves in another.
func split(b *broken) {
	b.transact = func(ctx context.Context, fn func(db.Tx) error) error {
		return fn(&splitTx{ctx: ctx, s: b.Store})
	}
}

type splitTx struct {
	ctx context.Context
	s   db.Store
}

func (t *splitTx) Load(wanted db.Wanted) (queues *claim.Queues, err error) {
	err = dbtest.Update(t.ctx, t.s, func(tx db.Tx) error {
		loaded, err := tx.Load(wanted)
		if err == nil {
			queues = detached(t.s, loaded, wanted)
		}
		return err
	})
	time.Sleep(time.Microsecond) // real time: none, faults run in bubbles
	return queues, err
}

// detached copies queues, as far as anybody has asked for them, into ones that need no
// transaction to read more.
func detached(s db.Store, loaded *claim.Queues, wanted db.Wanted) *claim.Queues {
	queues := claim.NewQueues(loaded.Now, len(wanted.Resources))
	copied := func(q *claim.Queue) *claim.Queue {
		if queues.Resource(q.Resource) == nil {
			queues.Put(claim.NewQueue(q.Stored(), 0, firstOnly(s)))
			if h := q.Find(q.Holder); h != nil {
				queues.Add(h)
			}
		}
		return queues.Resource(q.Resource)
	}
	for _, r := range wanted.Resources {
		copied(loaded.Resource(r))
	}
	for _, id := range wanted.Claims {
		if q := loaded.QueueOf(id); q != nil {
			copied(q)
			queues.Add(q.Find(id))
		}
	}
	return queues
}

func (t *splitTx) Save(queues *claim.Queues) error {
	return dbtest.Update(t.ctx, t.s, func(tx db.Tx) error { return tx.Save(queues) })
}

// commits commits although fn failed.
func commits(b *broken) {
	b.transact = func(ctx context.Context, fn func(db.Tx) error) (err error) {
		if storeErr := dbtest.Update(ctx, b.Store, func(tx db.Tx) error { err = fn(tx); return nil }); storeErr != nil {
			return storeErr
		}
		return err
	}
}

// deletes makes Prune end live claims, too: it withdraws what was created before.
func deletes(b *broken) {
	b.prune = func(before claim.Time, limit int) (claim.Time, int) {
		ctx := context.Background()
		claims, _, _ := b.List(ctx, db.Filter{MaxCreated: &before})
		_ = dbtest.Update(ctx, b.Store, func(tx db.Tx) error {
			for _, c := range claims {
				if c.Status.Live() {
					queues, err := tx.Load(db.Wanted{Claims: []string{c.ID}})
					if err != nil {
						return err
					}
					_, _ = queues.Do(claim.SetStatus{ID: c.ID, Status: claim.Withdrawn})
					if err := tx.Save(queues); err != nil {
						return err
					}
				}
			}
			return nil
		})
		return before, limit
	}
}

// newest makes the queue a stack: a new claim goes before all others.
func newest(b *broken) {
	next := uint64(1 << 40)
	b.save = claims(func(c *claim.Claim, made bool) {
		if made {
			next--
			c.Enqueued = next
		}
	})
}

// wakesAlone reads only the head of the queue.
func wakesAlone(b *broken) {
	b.load = func(tx db.Tx, wanted db.Wanted) (*claim.Queues, error) {
		queues, err := tx.Load(wanted)
		if err != nil {
			return nil, err
		}
		return detached(b.Store, queues, wanted), nil
	}
}

// firstOnly reads the first 16 waiters and no more.
func firstOnly(s db.Store) claim.MoreWaiters {
	return func(resource string, after uint64) ([]*claim.Claim, error) {
		if after > 0 {
			return nil, nil
		}
		found, _, err := s.List(context.Background(), db.Filter{Resource: &resource, Statuses: []claim.Status{claim.Waiting}, Limit: 16})
		next := make([]*claim.Claim, len(found))
		for i := range found {
			next[i] = &found[i]
		}
		return next, err
	}
}

// another returns a holder that has not held for longest.
func another(b *broken) {
	b.holder = func(ctx context.Context, resource string) (claim.Claim, error) {
		claims, _, err := b.Store.List(ctx, db.Filter{Resource: &resource, Statuses: []claim.Status{claim.Active}})
		if err == nil && len(claims) == 0 {
			err = claim.ErrNotFound
		}
		if err != nil {
			return claim.Claim{}, err
		}
		return slices.MinFunc(claims, func(x, y claim.Claim) int { return strings.Compare(x.ID, y.ID) }), nil
	}
}

// exclusiveOnly knows no shared holders.
func exclusiveOnly(b *broken) {
	b.holder = func(ctx context.Context, resource string) (claim.Claim, error) {
		c, err := b.Store.Holder(ctx, resource)
		if c.Units == claim.Shared {
			return claim.Claim{}, claim.ErrNotFound
		}
		return c, err
	}
}

// inPieces reads a queue in several transactions.
func inPieces(b *broken) {
	b.queue = func(ctx context.Context, resource string, limit int) (db.Snapshot, claim.Instant, error) {
		s, now, err := b.Store.Queue(ctx, resource, limit)
		time.Sleep(time.Microsecond) // real time: none, faults run in bubbles
		later, _, laterErr := b.Store.Queue(ctx, resource, limit)
		s.Holders, s.Waiters = later.Holders, later.Waiters
		return s, now, errors.Join(err, laterErr)
	}
}

// as makes reads of queues go to the name that a change makes of theirs.
func as(change func(string) string) func(*broken) {
	return func(b *broken) {
		b.queue = func(ctx context.Context, resource string, limit int) (db.Snapshot, claim.Instant, error) {
			s, now, err := b.Store.Queue(ctx, change(resource), limit)
			s.Resource = resource
			return s, now, err
		}
	}
}

// counts has Place count which claims a function picks, beside the claim that is asked for.
func counts(counted func(other, c *claim.Claim) bool) func(*broken) {
	return func(b *broken) {
		b.place = func(ctx context.Context, id string, limit int) (claim.Claim, int, claim.Instant, error) {
			c, ahead, now, err := b.Store.Get(ctx, id, limit)
			if err != nil || c.Status != claim.Waiting {
				return c, ahead, now, err
			}
			all, _, err := b.Store.List(ctx, db.Filter{})
			ahead = 0
			for i := range all {
				if counted(&all[i], &c) {
					ahead++
				}
			}
			return c, min(ahead, limit), now, err
		}
	}
}

// waitsBefore reports whether Place counts a claim.
func waitsBefore(other, c *claim.Claim) bool {
	return other.Status == claim.Waiting && other.Resource == c.Resource && other.Enqueued < c.Enqueued
}

// waitsIn reports whether a claim waits for the same resource, after a change of their names.
func waitsIn(change func(string) string) func(other, c *claim.Claim) bool {
	return func(other, c *claim.Claim) bool {
		return other.Status == claim.Waiting && change(other.Resource) == change(c.Resource) && other.Enqueued < c.Enqueued
	}
}

// unbounded reads whole queues.
func unbounded(b *broken) {
	b.queue = func(ctx context.Context, resource string, _ int) (db.Snapshot, claim.Instant, error) {
		return b.Store.Queue(ctx, resource, lots)
	}
}

func read(fn func(*db.Snapshot)) func(*broken) {
	return func(b *broken) { b.snapshot = fn }
}

func byID(a, b claim.Claim) int { return strings.Compare(a.ID, b.ID) }

func noBeats(b *broken) {
	b.beat = func(ctx context.Context, resumes bool) error {
		if !resumes {
			return nil
		}
		return b.Store.Beat(ctx, resumes)
	}
}

func resumeBeats(b *broken) {
	b.beat = func(ctx context.Context, _ bool) error { return b.Store.Beat(ctx, false) }
}

// runsOn lets the clock of the leases run with the wall's.
func runsOn(b *broken) {
	b.now = func(at claim.Instant) claim.Instant { return claim.Instant{Wall: at.Wall, Lease: at.Wall} }
}

var stopped = claim.Instant{Wall: 1e15, Lease: 1e15}

// ofResources changes queries for resources; ofNothing changes queries that only ask when to ask again.
func ofResources(change func(*db.DueQuery)) func(*db.DueQuery) {
	return func(query *db.DueQuery) {
		if query.Resources > 0 {
			change(query)
		}
	}
}

func ofNothing(change func(*db.DueQuery)) func(*db.DueQuery) {
	return func(query *db.DueQuery) {
		if query.Names() == 0 {
			change(query)
		}
	}
}

// nextDueOf sees some leases only.
func nextDueOf(sees func(claim.Claim) bool) func(*broken) {
	return func(b *broken) {
		b.overdue = func(query db.DueQuery, o *db.Overdue) {
			claims, now, _ := b.Store.List(context.Background(), db.Filter{Statuses: []claim.Status{claim.Active}})
			o.Next = 0
			for _, c := range claims {
				if sees(c) && query.Names() == 0 {
					o.Next = db.Sooner(o.Next, db.LookAt(c.Deadline, now.Lease, query.Idle))
				}
			}
		}
	}
}

var faults = slices.Concat(sessionFaults, countFaults, largeFaults, resourceFaults, []fault{
	{"stores what a claim was first, not what became of it", func(b *broken) {
		b.save = func(tx db.Tx, queues *claim.Queues) error {
			for _, change := range queues.Changes() {
				first := slices.IndexFunc(queues.Transitions(), func(t claim.Transition) bool { return t.After.ID == change.After.ID })
				version := change.After.Version
				*change.After = *queues.Transitions()[first].After
				change.After.Version = version
			}
			return tx.Save(queues)
		}
	}, []string{"SeveralChangesOfOneClaim", "SameAsRules"}},
	{"loads no more than two resources", func(b *broken) {
		b.load = func(tx db.Tx, wanted db.Wanted) (*claim.Queues, error) {
			wanted.Resources = wanted.Resources[:min(2, len(wanted.Resources))]
			return tx.Load(wanted)
		}
	}, []string{"SeveralResourcesInOneCommand"}},
	{"loses user data", made(func(c *claim.Claim) { c.UserData = nil }), []string{"CreateIsStored", "SameAsRules"}},
	{"stores null for nothing", made(func(c *claim.Claim) {
		if c.UserData == nil {
			c.UserData = []byte("null")
		}
	}), []string{"CreateIsStored"}},
	{"stores nothing for empty", made(func(c *claim.Claim) {
		if len(c.UserData) == 0 {
			c.UserData = nil
		}
	}), []string{"CreateIsStored"}},
	{"cuts names off", made(func(c *claim.Claim) { c.Owner = c.Owner[:min(255, len(c.Owner))] }), []string{"CreateIsStored"}},
	{"cuts values off", made(func(c *claim.Claim) { c.Value = c.Value[:min(1<<16-1, len(c.Value))] }), []string{"CreateIsStored"}},
	{"counts seconds", made(func(c *claim.Claim) { c.TTL = c.TTL.Truncate(time.Second) }), []string{"CreateIsStored"}},
	{"loses the mode", made(func(c *claim.Claim) { c.Units = claim.Exclusive }), []string{"CreateIsStored", "ListEach"}},
	{"loses the type", made(func(c *claim.Claim) { c.Type = 0 }), []string{"CreateIsStored", "Held"}},
	{"loses updates of the value", func(b *broken) {
		b.save = claims(func(c *claim.Claim, made bool) {
			if was, _, _, err := b.Store.Get(context.Background(), c.ID, 0); err == nil && !made {
				c.Value = was.Value
			}
		})
	}, []string{"AcquireIsStored"}},
	{"loses updates of the type", changed(func(c *claim.Claim) { c.Type = claim.Lock }), []string{"AcquireIsStored", "Held"}},
	{"loses renewals", changed(func(c *claim.Claim) { c.TTL = time.Hour }), []string{"RenewalIsStored", "AcquireIsStored"}},
	{"loses deadlines", changed(func(c *claim.Claim) { c.Deadline-- }), []string{"RenewalIsStored", "AcquireIsStored"}},
	{"loses reasons", changed(func(c *claim.Claim) { c.Reason = "" }), []string{"EndIsStored"}},
	{"answers in another order", func(b *broken) { b.outcome = func(o *db.Outcome) { slices.Reverse(o.Answers) } }, []string{"Outcome"}},
	{"always commits", func(b *broken) { b.outcome = func(o *db.Outcome) { o.Committed = true } }, []string{"Outcome"}},
	{"never commits", func(b *broken) { b.outcome = func(o *db.Outcome) { o.Committed = false } }, []string{"Outcome"}},
	{"forgets what can be granted", func(b *broken) { b.outcome = func(o *db.Outcome) { o.Unsettled = nil } }, []string{"Outcome"}},
	{"keeps changes to itself", func(b *broken) { b.outcome = func(o *db.Outcome) { o.Changes = nil } }, []string{"Outcome"}},
	{"loses the identity", made(func(c *claim.Claim) { c.Identity = "" }), []string{"IdentityIsStored"}},
	{"loses who ended it", changed(func(c *claim.Claim) { c.EndedBy = "" }), []string{"IdentityIsStored"}},
	{"cuts reasons off", changed(func(c *claim.Claim) { c.Reason = c.Reason[:min(255, len(c.Reason))] }), []string{"EndIsStored"}},
	{"loses the end", changed(func(c *claim.Claim) { c.Finished = 0 }), []string{"EndIsStored", "History", "ExpiryIsStored", "HistoryCutoff", "Prune"}},
	{"loses the begin", changed(func(c *claim.Claim) { c.Activated = 0 }), []string{"History", "ListBounds"}},
	{"loses the token", changed(func(c *claim.Claim) { c.Token = 0 }), []string{"SameAsRules", "ManyShared"}},
	{"keeps versions in floats", made(func(c *claim.Claim) { c.Token = uint64(float64(c.Token)) }), []string{"LargeVersions"}},
	{"drops a changed claim", func(b *broken) {
		n := 0
		b.save = claims(func(c *claim.Claim, made bool) {
			if n++; !made && n%2 == 0 {
				old(b, c)
			}
		})
	}, []string{"SameAsRules", "ManyResources", "ManyShared", "LongQueue", "OrderOfWaiters"}},
	{"drops all changes of claims", func(b *broken) {
		b.save = claims(func(c *claim.Claim, _ bool) { old(b, c) })
	}, []string{"ExpiryIsStored", "Count", "PruneLeavesLive", "ManySharedDue", "ClaimAndResourceTogether", "RepeatedNames", "SurvivesReopen"}},
	{"saves nothing", func(b *broken) { b.save = func(db.Tx, *claim.Queues) error { return nil } }, []string{"SurvivesReopen", "SeenAtOnce"}},
	{"miscounts holders", rows(func(r *claim.Row) { r.Shared = min(r.Shared, 1) }), []string{"RowIsStored", "ManyShared", "ManySharedDue"}},
	{"miscounts the waiters of a short line", rows(func(r *claim.Row) { r.Waiting = min(r.Waiting, 30) }), []string{"Positions"}},
	{"miscounts waiters", rows(func(r *claim.Row) { r.Waiting = min(r.Waiting, 255) }), []string{"LongQueue"}},
	{"forgets holders", rows(func(r *claim.Row) { r.Holder = "" }), []string{"RowIsStored"}},
	{"trims trailing spaces", renamed(func(s string) string { return strings.TrimRight(s, " ") }), []string{"NamesAreBytes"}},
	{"folds case", renamed(strings.ToLower), []string{"NamesAreBytes"}},
	{"normalises names", renamed(func(s string) string { return strings.ReplaceAll(s, "a\u0301", "á") }), []string{"NamesAreBytes"}},
	{"returns waiters out of order", newest, []string{"OrderOfWaiters", "ClaimAndResourceTogether"}},
	{"reads one chunk of waiters", wakesAlone, []string{"ManyShared"}},
	{"commits although fn failed", commits, []string{"ErrorLeavesNothing"}},
	{"hides the error of fn", func(b *broken) {
		b.transact = func(ctx context.Context, fn func(db.Tx) error) error {
			if dbtest.Update(ctx, b.Store, fn) != nil {
				return errNoise
			}
			return nil
		}
	}, []string{"ErrorLeavesNothing"}},
	{"has rows of what was never claimed", rows(func(r *claim.Row) { r.Version = max(r.Version, 1) }), []string{"RefusalLeavesNothing"}},
	{"finds claims that are not there", func(b *broken) {
		b.load = func(tx db.Tx, wanted db.Wanted) (*claim.Queues, error) {
			wanted.Resources = append(slices.Clone(wanted.Resources), "invented")
			queues, err := tx.Load(wanted)
			for _, id := range wanted.Claims {
				if err == nil && queues.QueueOf(id) == nil {
					queues.Add(&claim.Claim{ID: id, Resource: "invented"})
				}
			}
			return queues, err
		}
	}, []string{"UnknownIDs"}},
	{"makes two queues of one resource", func(b *broken) {
		b.load = func(tx db.Tx, wanted db.Wanted) (*claim.Queues, error) {
			queues, err := tx.Load(wanted)
			for _, r := range wanted.Resources {
				if err == nil && queues.Resource(r).Stored().Version != 0 {
					queues.Put(renamedQueue(queues.Resource(r), r))
				}
			}
			return queues, err
		}
	}, []string{"RepeatedNames"}},
	{"does not look for ids", func(b *broken) {
		b.load = func(tx db.Tx, wanted db.Wanted) (*claim.Queues, error) {
			wanted.Claims = nil
			return tx.Load(wanted)
		}
	}, []string{"ClaimOfAnotherResource", "ClaimBehindPrunedRow", "SameID"}},
	{"loses rows beyond the 500th", func(b *broken) {
		b.load = func(tx db.Tx, wanted db.Wanted) (*claim.Queues, error) {
			queues, err := tx.Load(wanted)
			for _, r := range wanted.Resources[min(500, len(wanted.Resources)):] {
				queues.Put(claim.NewQueue(claim.Row{Resource: r}, 0, nil))
			}
			return queues, err
		}
	}, []string{"ManyResources"}},
	{"takes its time from before", func(b *broken) {
		at := time.Duration(0)
		b.load = func(tx db.Tx, wanted db.Wanted) (*claim.Queues, error) {
			queues, err := tx.Load(wanted)
			if err == nil {
				at += time.Second
				queues.Now.Wall = queues.Now.Wall.Add(-at)
			}
			return queues, err
		}
	}, []string{"TimeOfTransaction"}},
	{"forgets the floor", forgetful, []string{"TokensRise", "Floor", "ClaimBehindPrunedRow", "FloorOfOthers"}},
	{"hides the holder now and then", func(b *broken) {
		n := 0
		b.holder = func(ctx context.Context, resource string) (claim.Claim, error) {
			if n++; n%3 == 0 {
				return claim.Claim{}, claim.ErrNotFound
			}
			return b.Store.Holder(ctx, resource)
		}
	}, []string{"HolderWhileHandedOn", "Holder"}},
	{"knows no shared holders", exclusiveOnly, []string{"Holder", "LongestHolder"}},
	{"returns any holder", another, []string{"LongestHolder"}},
	{"mistakes types", func(b *broken) { b.held = func(claim.Type) claim.Type { return claim.Lock } }, []string{"Held"}},
	{"Queue leaves holders out", read(func(s *db.Snapshot) { s.Holders = nil }), []string{"Queue", "QueueShared", "SeenAtOnce"}},
	{"Queue leaves waiters out", read(func(s *db.Snapshot) { s.Waiters = nil }), []string{"Queue", "QueueOrder"}},
	{"Queue counts what it returns", read(func(s *db.Snapshot) { s.Waiting = len(s.Waiters) }), []string{"QueueLimit"}},
	{"Queue forgets the row", read(func(s *db.Snapshot) { s.Row = claim.Row{} }), []string{"Queue", "QueueOfUnknownName"}},
	{"Queue forgets the version", read(func(s *db.Snapshot) { s.Version = 0 }), []string{"Queue", "QueueShared", "LargeVersions"}},
	{"Queue shows the version of a free resource as new", read(func(s *db.Snapshot) { s.Version = max(s.Version, 1) }), []string{"QueueOfUnknownName"}},
	{"Queue sorts holders by id", read(func(s *db.Snapshot) { slices.SortFunc(s.Holders, byID) }), []string{"QueueShared"}},
	{"Queue sorts waiters by id", read(func(s *db.Snapshot) { slices.SortFunc(s.Waiters, byID) }), []string{"QueueOrder"}},
	{"Queue ignores its limit", unbounded, []string{"QueueLimit"}},
	{"Queue returns what is large", func(b *broken) {
		b.queue = func(ctx context.Context, resource string, limit int) (db.Snapshot, claim.Instant, error) {
			s, now, err := b.Store.Queue(ctx, resource, limit)
			for i, c := range s.Holders {
				s.Holders[i], _, _, _ = b.Store.Get(ctx, c.ID, 0)
			}
			return s, now, err
		}
	}, []string{"Queue"}},
	{"Queue is read in pieces", inPieces, []string{"QueueWhileHandedOn"}},
	{"Queue folds case", as(strings.ToLower), []string{"QueueNamesAreBytes", "QueueOfUnknownName"}},
	{"Queue trims trailing spaces", as(func(s string) string { return strings.TrimRight(s, " ") }), []string{"QueueNamesAreBytes"}},
	{"Place folds case", counts(waitsIn(strings.ToLower)), []string{"Place"}},
	{"Place trims trailing spaces", counts(waitsIn(func(s string) string { return strings.TrimRight(s, " ") })), []string{"Place"}},
	{"Place counts all lines", counts(waitsIn(func(string) string { return "" })), []string{"Place"}},
	{"Place counts the claim itself", counts(func(other, c *claim.Claim) bool {
		return waitsBefore(other, c) || other.ID == c.ID
	}), []string{"Place", "LargeVersions"}},
	{"Place counts the whole line", counts(func(other, c *claim.Claim) bool {
		return other.Status == claim.Waiting && other.Resource == c.Resource
	}), []string{"Place", "LargeVersions"}},
	{"Place keeps positions in floats", counts(func(other, c *claim.Claim) bool {
		return waitsBefore(other, c) && float64(other.Enqueued) < float64(c.Enqueued)
	}), []string{"LargeVersions"}},
	{"Place counts who has left", counts(func(other, c *claim.Claim) bool {
		return other.Status != claim.Active && other.Resource == c.Resource && other.Enqueued < c.Enqueued
	}), []string{"Place"}},
	{"Place counts who holds", counts(func(other, c *claim.Claim) bool {
		return !other.Status.Final() && other.Resource == c.Resource && other.Enqueued < c.Enqueued
	}), []string{"Place", "LargeVersions"}},
	{"Place ignores its limit", func(b *broken) {
		b.place = func(ctx context.Context, id string, _ int) (claim.Claim, int, claim.Instant, error) {
			return b.Store.Get(ctx, id, lots)
		}
	}, []string{"Place"}},
	{"Place counts for who does not wait", func(b *broken) {
		b.place = func(ctx context.Context, id string, limit int) (claim.Claim, int, claim.Instant, error) {
			c, ahead, now, err := b.Store.Get(ctx, id, limit)
			if err == nil && c.Status != claim.Waiting {
				queue, _, _ := b.Store.Queue(ctx, c.Resource, limit)
				ahead = len(queue.Waiters)
			}
			return c, ahead, now, err
		}
	}, []string{"Place"}},
	{"Place reads for those whose callers have left", func(b *broken) {
		b.place = func(ctx context.Context, id string, limit int) (claim.Claim, int, claim.Instant, error) {
			return b.Store.Get(context.WithoutCancel(ctx), id, limit)
		}
	}, []string{"CancelledReads"}},
	{"Queue reads for those whose callers have left", func(b *broken) {
		b.queue = func(ctx context.Context, resource string, limit int) (db.Snapshot, claim.Instant, error) {
			return b.Store.Queue(context.WithoutCancel(ctx), resource, limit)
		}
	}, []string{"CancelledReads"}},
	{"Transact works for those whose callers have left", func(b *broken) {
		b.transact = func(ctx context.Context, fn func(db.Tx) error) error {
			return dbtest.Update(context.WithoutCancel(ctx), b.Store, fn)
		}
	}, []string{"CancelledWrites"}},
	{"the Completion does not end", func(b *broken) { b.commit = endless{} }, []string{"Completion"}},
	{"Transact does not commit", func(b *broken) {
		b.transact = func(ctx context.Context, fn func(db.Tx) error) error {
			undone := errors.New("undone")
			if err := dbtest.Update(ctx, b.Store, func(tx db.Tx) error { return errors.Join(fn(tx), undone) }); !errors.Is(err, undone) {
				return err
			}
			return nil
		}
	}, []string{"Completion", "Outcome"}},
	{"Prepare's reads fail", func(b *broken) {
		b.prepare = func(context.Context) error { return db.ErrUnavailable }
	}, []string{"Prepare"}},
	{"About forgets the version", func(b *broken) { b.about = func(about *db.About) { about.Version = "" } }, []string{"About"}},
	{"Due ignores idle", func(b *broken) {
		b.due = ofResources(func(query *db.DueQuery) { query.Idle = 0 })
	}, []string{"Due"}},
	{"Due ignores its limit", func(b *broken) {
		b.due = ofResources(func(query *db.DueQuery) { query.Resources = lots })
	}, []string{"DueLimit"}},
	{"Due sees contended resources only", func(b *broken) {
		b.due = ofResources(func(query *db.DueQuery) { query.Idle = 1000 * time.Hour })
	}, []string{"Due", "DueLimit", "LeaseClockGoesOn"}},
	{"Due repeats names", func(b *broken) {
		b.overdue = func(_ db.DueQuery, o *db.Overdue) { o.Resources = append(o.Resources, o.Resources...) }
	}, []string{"Due"}},
	{"Abandoned sees nothing", func(b *broken) {
		b.overdue = func(_ db.DueQuery, o *db.Overdue) { o.Waiters = nil }
	}, []string{"Abandoned", "AbandonedLimit"}},
	{"Abandoned ignores its limit", func(b *broken) {
		b.due = func(query *db.DueQuery) {
			if query.Waiters > 0 {
				query.Waiters = lots
			}
		}
	}, []string{"AbandonedLimit"}},
	{"Abandoned sees every claim that waits", func(b *broken) {
		b.overdue = func(query db.DueQuery, o *db.Overdue) {
			claims, _, _ := b.Store.List(context.Background(), db.Filter{Statuses: []claim.Status{claim.Waiting}})
			o.Waiters = nil
			for _, c := range claims[:min(query.Waiters, len(claims))] {
				o.Waiters = append(o.Waiters, c.ID)
			}
		}
	}, []string{"Abandoned", "AbandonedLimit"}},
	{"WaitsOf sees the first owner", func(b *broken) {
		b.waitsOf = func(ctx context.Context, owners []claim.OwnerKey, limit int) ([]claim.Claim, error) {
			return b.Store.WaitsOf(ctx, owners[:min(1, len(owners))], limit)
		}
	}, []string{"WaitsOf", "WaitsOfLimit"}},
	{"WaitsOf sees no sessions", func(b *broken) {
		b.waitsOf = func(ctx context.Context, owners []claim.OwnerKey, limit int) ([]claim.Claim, error) {
			named := slices.DeleteFunc(slices.Clone(owners), func(p claim.OwnerKey) bool { return p.Session != "" })
			return b.Store.WaitsOf(ctx, named, limit)
		}
	}, []string{"WaitsOfSessions"}},
	{"WaitsOf ignores its limit", func(b *broken) {
		b.waitsOf = func(ctx context.Context, owners []claim.OwnerKey, _ int) ([]claim.Claim, error) {
			return b.Store.WaitsOf(ctx, owners, lots)
		}
	}, []string{"WaitsOfLimit", "WaitsOfMany"}},
	{"WaitsOf sees holders", func(b *broken) {
		b.waitsOf = func(ctx context.Context, owners []claim.OwnerKey, limit int) ([]claim.Claim, error) {
			waits, err := b.Store.WaitsOf(ctx, owners, limit)
			for _, p := range owners {
				held, _, _ := b.Store.List(ctx, db.Filter{Owner: &p.Owner, Statuses: []claim.Status{claim.Active}})
				waits = append(waits, held...)
			}
			return waits[:min(limit, len(waits))], err
		}
	}, []string{"WaitsOf"}},
	{"WaitsOf reads for those whose callers have left", func(b *broken) {
		b.waitsOf = func(ctx context.Context, owners []claim.OwnerKey, limit int) ([]claim.Claim, error) {
			return b.Store.WaitsOf(context.WithoutCancel(ctx), owners, limit)
		}
	}, []string{"CancelledReads"}},
	{"NextDue sees no waits", nextDueOf(func(claim.Claim) bool { return true }), []string{"NextDueOfWaits"}},
	{"the wait TTL is lost", made(func(c *claim.Claim) { c.WaitTTL = 0 }), []string{"WaitTTLIsStored"}},
	{"NextDue ignores idle", func(b *broken) {
		b.due = ofNothing(func(query *db.DueQuery) { query.Idle = 0 })
	}, []string{"NextDue"}},
	{"NextDue sees no lease that has run out", func(b *broken) {
		b.due = ofNothing(func(query *db.DueQuery) { query.Idle = 1000 * time.Hour })
	}, []string{"NextDue"}},
	{"NextDue sees locks only", nextDueOf(func(c claim.Claim) bool { return c.Type == claim.Lock }), []string{"NextDueOfTypes"}},
	{"NextDue sees exclusive leases only", nextDueOf(func(c claim.Claim) bool { return c.Units == claim.Exclusive }), []string{"NextDue", "NextDueOfTypes"}},
	{"NextDue sees leases that were released", func(b *broken) {
		var last claim.Time
		b.overdue = func(query db.DueQuery, o *db.Overdue) {
			if o.Next == 0 && query.Names() == 0 {
				o.Next = last
			}
			last = max(last, o.Next)
		}
	}, []string{"NextDue"}},
	{"NextDue keeps its time", func(b *broken) {
		var first claim.Instant
		b.overdue = func(_ db.DueQuery, o *db.Overdue) {
			if first.Wall == 0 {
				first = o.Now
				time.Sleep(time.Millisecond) // real time: none, faults run in bubbles
			}
			o.Now = first
		}
	}, []string{"NextDue", "NextDueOfTypes"}},
	{"miscounts", func(b *broken) { b.census = func(n *db.Census) { n.Finished += n.Waiting } }, []string{"Count"}},
	{"counts no sessions", func(b *broken) { b.census = func(n *db.Census) { n.Sessions = 0 } }, []string{"Count"}},
	{"OldestWaiting never falls", func(b *broken) {
		var last claim.Time
		b.census = func(n *db.Census) { last = max(last, n.OldestWaiting); n.OldestWaiting = last }
	}, []string{"OldestWaiting"}},
	{"OldestWaiting never rises", func(b *broken) {
		last := claim.Forever
		b.census = func(n *db.Census) {
			if n.OldestWaiting != 0 {
				last = min(last, n.OldestWaiting)
				n.OldestWaiting = last
			}
		}
	}, []string{"OldestWaiting"}},
	{"cutoff is off by one", func(b *broken) { b.cutoff = func(keep int) int { return keep + 1 } }, []string{"HistoryCutoff"}},
	{"List ignores the resource", filter(func(f *db.Filter) { f.Resource = nil }), []string{"ListEach", "NamesAreBytes", "SeenAtOnce"}},
	{"List ignores the owner", filter(func(f *db.Filter) { f.Owner = nil }), []string{"ListEach", "NamesAreBytes"}},
	{"List ignores the mode", filter(func(f *db.Filter) { f.Units = nil }), []string{"ListEach", "ListMixed"}},
	{"List ignores the status", filter(func(f *db.Filter) { f.Statuses = nil }), []string{"ListEach", "ListMixed"}},
	{"List takes the first status only", filter(func(f *db.Filter) { f.Statuses = f.Statuses[:min(1, len(f.Statuses))] }), []string{"ListEach", "ListMixed"}},
	{"List ignores the prefix", filter(func(f *db.Filter) { f.Prefix = "" }), []string{"ListEach", "ListMixed", "ListPrefixes"}},
	{"List takes the first byte of the prefix only", filter(func(f *db.Filter) { f.Prefix = f.Prefix[:min(1, len(f.Prefix))] }), []string{"ListPrefixes"}},
	{"List is always oldest first", filter(func(f *db.Filter) { f.Newest = false }), []string{"ListEach", "ListOrder", "ListMixed"}},
	{"List ignores the limit", filter(func(f *db.Filter) { f.Limit = 0 }), []string{"ListPages", "ListMixed"}},
	{"List ignores the offset", filter(func(f *db.Filter) { f.Offset = 0 }), []string{"ListPages", "ListMixed"}},
	{"List ignores the cursor", filter(func(f *db.Filter) { f.After = nil }), []string{"ListPages", "ListMixed"}},
	{"the cursor skips claims of the same time", filter(func(f *db.Filter) {
		if f.After != nil {
			f.After = &db.Cursor{Created: f.After.Created, ID: "\U0010ffff"}
		}
	}), []string{"ListPages", "ListMixed"}},
	{"no limit means ten", filter(func(f *db.Filter) {
		if f.Limit == 0 {
			f.Limit = 10
		}
	}), []string{"ListPages"}},
	{"List ignores the least active duration", filter(func(f *db.Filter) { f.MinActive = nil }), []string{"ListBounds", "ListMixed"}},
	{"List ignores the most active duration", filter(func(f *db.Filter) { f.MaxActive = nil }), []string{"ListBounds", "ListMixed"}},
	{"List ignores the least waiting duration", filter(func(f *db.Filter) { f.MinWaiting = nil }), []string{"ListBounds", "ListMixed"}},
	{"List ignores the most waiting duration", filter(func(f *db.Filter) { f.MaxWaiting = nil }), []string{"ListBounds", "ListMixed"}},
	{"List ignores the least time left", filter(func(f *db.Filter) { f.MinTTL = nil }), []string{"ListBounds", "ListMixed"}},
	{"List ignores the most time left", filter(func(f *db.Filter) { f.MaxTTL = nil }), []string{"ListBounds", "ListMixed"}},
	{"List ignores the first creation", filter(func(f *db.Filter) { f.MinCreated = nil }), []string{"ListBounds", "ListMixed"}},
	{"List ignores the last creation", filter(func(f *db.Filter) { f.MaxCreated = nil }), []string{"ListBounds", "ListMixed"}},
	{"List ignores the bytes", filter(func(f *db.Filter) { f.Bytes = 0 }), []string{"ListBytes"}},
	{"List ends with its bytes", filter(func(f *db.Filter) { f.Bytes = max(0, f.Bytes-1000) }), []string{"ListBytes"}},
	{"pages ignore the bytes", func(b *broken) { b.page = func(p *db.Page) { p.Bytes = 0 } }, []string{"HeldPages", "Live"}},
	{"pages ignore the limit", func(b *broken) { b.page = func(p *db.Page) { p.Limit = lots } }, []string{"HeldPages", "Live"}},
	{"pages begin at the start", func(b *broken) { b.page = func(p *db.Page) { p.After = "" } }, []string{"HeldPages", "Live"}},
	{"the live claims are those that hold", func(b *broken) {
		b.live = func(claims []claim.Claim) []claim.Claim {
			return slices.DeleteFunc(claims, func(c claim.Claim) bool { return c.Status == claim.Waiting })
		}
	}, []string{"Live"}},
	{"stores all claims at one time", made(func(c *claim.Claim) { c.Created = stopped.Wall }), []string{"ListOrder", "TimeOfTransaction"}},
	{"Remember forgets", func(b *broken) {
		b.remember = func(claim.Instant) ([]claim.Instant, error) { return nil, nil }
	}, []string{"Remember"}},
	{"Remember stores each reading", func(b *broken) {
		var all []claim.Instant
		b.remember = func(now claim.Instant) ([]claim.Instant, error) {
			all = append(all, claim.Instant{Lease: now.Lease, Wall: now.Wall})
			return all[:len(all)-1], nil
		}
	}, []string{"Remember"}},
	{"Remember mixes up the clocks", func(b *broken) {
		b.remember = func(now claim.Instant) ([]claim.Instant, error) {
			now.Lease, now.Wall = now.Wall, now.Lease
			return b.Store.Remember(context.Background(), now)
		}
	}, []string{"Remember"}},
	{"Prune deletes live claims", deletes, []string{"PruneLeavesLive"}},
	{"Prune ignores its limit", func(b *broken) {
		b.prune = func(before claim.Time, _ int) (claim.Time, int) { return before, lots }
	}, []string{"Prune"}},
	{"Prune goes a moment too far", func(b *broken) {
		b.prune = func(before claim.Time, limit int) (claim.Time, int) { return before + 1, limit }
	}, []string{"Prune"}},
	{"PruneResources deletes young rows", func(b *broken) {
		b.resources = func(after string, before claim.Time, limit int) (string, error) {
			return b.Store.PruneResources(context.Background(), after, before+1e15, limit)
		}
	}, []string{"PruneResources"}},
	{"PruneResources deletes nothing", func(b *broken) {
		b.resources = func(string, claim.Time, int) (string, error) { return "", nil }
	}, []string{"PruneResources", "PruneResourcesWalk", "ClaimBehindPrunedRow", "Floor"}},
	{"PruneResources begins anew each time", func(b *broken) {
		b.resources = func(_ string, before claim.Time, limit int) (string, error) {
			return b.Store.PruneResources(context.Background(), "", before, limit)
		}
	}, []string{"PruneResourcesWalk"}},
	{"the clock stands", func(b *broken) {
		b.now = func(claim.Instant) claim.Instant { return stopped }
	}, []string{"NowMoves", "TimeOfTransaction"}},
	{"a step of the clock forward ends leases", func(b *broken) {
		b.overdue = func(_ db.DueQuery, o *db.Overdue) {
			if b.wallAhead() > time.Hour {
				o.Resources, o.Next = append(o.Resources, "r"), 0
			}
		}
	}, []string{"ClockSteps"}},
	{"a step of the clock back has leases last", func(b *broken) {
		b.overdue = func(_ db.DueQuery, o *db.Overdue) {
			if b.wallAhead() < -time.Hour {
				o.Resources = nil
			}
		}
	}, []string{"ClockSteps"}},
	{"the clock of the leases runs on", runsOn, []string{"LeaseClockStands", "TimeAway", "BeatOfOthers"}},
	{"a short outage is counted", resumeBeats, []string{"ShortOutage"}},
	{"a late beat is an outage", func(b *broken) { b.beat = func(ctx context.Context, _ bool) error { return b.Store.Beat(ctx, true) } }, []string{"LateBeat", "LeaseClockGoesOn"}},
	{"beats do nothing", noBeats, []string{"LeaseClockGoesOn", "BeatOfOthers"}},
	{"answers what it answered first", stale, []string{"SeenAtOnce"}},
	{"the feed is empty", func(b *broken) {
		b.changes = func(context.Context, db.Position, bool) ([]db.Commit, error) { return nil, nil }
	}, []string{"ChangesOfAll", "ChangesOfOthers"}},
	{"the feed always has the store's own changes", func(b *broken) {
		b.changes = func(ctx context.Context, after db.Position, _ bool) ([]db.Commit, error) {
			return b.Store.Changes(ctx, after, true)
		}
	}, []string{"Changes", "ChangesOfOthers"}},
	{"the feed does not know its own changes", func(b *broken) { b.changes = ownIs(b, false) }, []string{"ChangesOfAll", "ChangesOfOthers"}},
	{"the feed takes all changes for its own", func(b *broken) { b.changes = ownIs(b, true) }, []string{"ChangesOfOthers"}},
	{"the feed ends too early", func(b *broken) {
		b.end = func(p db.Position) db.Position { clear(p); return p }
	}, []string{"ChangesOfAll"}},
	{"the feed has renewals as well", func(b *broken) {
		b.changes = func(ctx context.Context, after db.Position, own bool) ([]db.Commit, error) {
			commits, err := b.Store.Changes(ctx, after, own)
			for i := range commits {
				if len(commits[i].Changes) == 0 {
					commits[i].Changes = make([]claim.Transition, 1)
					commits[i].Changes[0].After = &claim.Claim{ID: "b"}
				}
			}
			return commits, err
		}
	}, []string{"ChangesOfAll", "ChangesOfOthers"}},
	{"loads and saves in two transactions", split, []string{"ServersContend", "SameNewResource", "SameID"}},
})

// ownIs has the feed say of all commits whether they are its own.
func ownIs(b *broken, all bool) func(context.Context, db.Position, bool) ([]db.Commit, error) {
	return func(ctx context.Context, after db.Position, own bool) ([]db.Commit, error) {
		commits, err := b.Store.Changes(ctx, after, own)
		for i := range commits {
			if commits[i].Others = nil; !all {
				commits[i].Others = commits[i].Changes
			}
		}
		return commits, err
	}
}

// wallAhead returns how far the wall clock is ahead of lease time.
func (b *broken) wallAhead() time.Duration {
	now, err := b.Store.Now(context.Background())
	if err != nil {
		panic(err)
	}
	return now.Wall.Sub(now.Lease)
}
