package claim_test

import (
	"errors"
	"slices"
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/locket-service/locket/internal/rules/claim"
)

// A partly read queue behaves like a fully read one: batches of random commands, each on a queue freshly read from a
// shelf.
func TestPropertyWindow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWindow(t, drawn{t})
		batch := func(*rapid.T) { w.tick(); w.batch() }
		t.Repeat(map[string]func(*rapid.T){
			"batch": batch, "another batch": batch, "third batch": batch,
			"prune": func(*rapid.T) { w.prune() },
		})
	})
}

// shelf is the database's part for one resource.
type shelf struct {
	row    claim.Row // Version 0 when there is none
	floor  uint64
	claims []entry // in order of arrival

	sessions map[string]*claim.Session

	// chunk is how many waiters are read next.
	chunk func() int
	// calls of the claim.MoreWaiters, how many claims they returned, and how many of the
	// calls found none.
	calls, reads, empty int
}

// load reads the claims with the ids, as db.Tx does.
func (s *shelf) load(now claim.Instant, ids ...string) *claim.Queues {
	return s.loadFor(now, nil, ids)
}

// loadFor reads some targets, and the claims with the ids, as db.Tx does.
func (s *shelf) loadFor(now claim.Instant, targets []claim.Target, ids []string) *claim.Queues {
	ending := make(map[string][]string)
	for _, target := range targets {
		ids = append(ids, target.ID)
		if target.Claims {
			ending[target.Session] = s.claimsOf(target.Session)
			ids = append(ids, ending[target.Session]...)
		}
	}
	s.calls, s.reads, s.empty = 0, 0, 0
	row := s.row
	row.Resource = "printer"
	queues := only(claim.NewQueue(row, s.floor, s.more))
	queues.Now = now
	for _, e := range slices.Backward(s.claims) { // the order must not matter
		dueShared := !e.Units.All() && e.Status == claim.Active && e.Deadline <= now.Lease
		if e.ID == row.Holder || dueShared || slices.Contains(ids, e.ID) {
			queues.Add(e.claim())
		}
	}
	for _, target := range targets {
		if session := s.sessions[target.Session]; session != nil {
			queues.PutSession(*session, ending[session.ID]...)
		}
	}
	return queues
}

// claimsOf returns the ids of a session's live claims.
func (s *shelf) claimsOf(session string) (ids []string) {
	for _, e := range s.claims {
		if session != "" && e.Session == session && !isFinal(e.Status) {
			ids = append(ids, e.ID)
		}
	}
	return ids
}

// more is the claim.MoreWaiters.
func (s *shelf) more(_ string, after uint64) ([]*claim.Claim, error) {
	s.calls++
	limit := s.chunk()
	var next []*claim.Claim
	for _, e := range s.claims {
		if e.Status == claim.Waiting && e.Enqueued > after && len(next) < limit {
			next = append(next, e.claim())
		}
	}
	s.reads += len(next)
	if len(next) == 0 {
		s.empty++
	}
	return next, nil
}

// save writes the changes, and of the changed claims only mutable fields.
func (s *shelf) save(queues *claim.Queues) {
	s.row = queues.Resource("printer").Row
	for _, change := range queues.Changes() {
		c := change.After
		if change.Before == nil {
			s.claims = append(s.claims, record(*c))
			continue
		}
		e := &s.claims[s.index(c.ID)]
		e.Type, e.TTL, e.Value = c.Type, c.TTL, c.Value
		e.Status, e.Token, e.Version = c.Status, c.Token, c.Version
		e.Deadline, e.Activated, e.Finished = c.Deadline, c.Activated, c.Finished
		e.Reason = c.Reason
	}
	sortQueue(s.claims)
}

// saveSessions writes the changes of the sessions.
func (s *shelf) saveSessions(queues *claim.Queues) {
	for _, change := range queues.ChangedSessions() {
		if change.After == nil {
			delete(s.sessions, change.ID())
		} else {
			s.sessions[change.ID()] = change.After
		}
	}
}

// index returns where a claim is, or -1.
func (s *shelf) index(id string) int {
	return slices.IndexFunc(s.claims, func(e entry) bool { return e.ID == id })
}

// window is a shelf beside its model.
type window struct {
	*world
	*shelf
	t rapid.TB
}

const maxChunk = 3

func newWindow(t rapid.TB, c chooser) *window {
	w := newWorld(c)
	chunk := func() int { return 1 + w.choose(maxChunk, "chunk") }
	return &window{world: w, shelf: &shelf{chunk: chunk, sessions: make(map[string]*claim.Session)}, t: t}
}

// batch carries out some commands in one transaction. They are made up first, as the
// transaction must know the claims that they name.
func (w *window) batch() {
	w.t.Helper()
	cmds := make([]claim.Command, 1+w.choose(6, "size of the batch"))
	w.model.begin()
	var targets []claim.Target
	for i := range cmds {
		cmds[i] = w.command()
		targets = append(targets, cmds[i].Targets()...)
	}
	queues := w.loadFor(w.now, targets, nil)
	q := queues.Resource("printer")
	w.model.version = max(w.model.version, w.floor)
	version, before, read := w.model.version, w.claims, q.Row
	for _, cmd := range cmds {
		got, err := carryOut(queues, cmd, w.now)
		want, wantErr := w.model.do(cmd, w.now)
		checkAnswer(w.t, cmd, got, err, want, wantErr)
		if q.Row != w.model.row() {
			w.t.Fatalf("after %T%+v the row is %+v, that of the model %+v", cmd, cmd, q.Row, w.model.row())
		}
	}
	w.checkChanges(queues, q, read)
	w.claims = slices.Clone(before)
	if q.Changed() {
		w.save(queues)
	}
	w.saveSessions(queues)
	for _, id := range sessionIDs {
		w.model.checkSession(w.t, id, w.sessions[id])
	}
	checkBound(w.t, w.claims, func(id string) *claim.Session { return w.sessions[id] })
	checkSame(w.t, w.claims, w.model.claims)
	checkState(w.t, q.Row, w.claims)
	checkStep(w.t, version, before, w.claims, cmds...)
	w.checkCost(before)
}

// checkChanges checks what the queue says has changed against what was read.
func (w *window) checkChanges(queues *claim.Queues, q *claim.Queue, read claim.Row) {
	w.t.Helper()
	w.checkTransitions(queues.Transitions(), read.Version)
	for _, change := range queues.Changes() {
		c, known := change.After, w.index(change.After.ID)
		if (known < 0) != (change.Before == nil) {
			w.t.Fatalf("%s was there: %t; the change is from %+v", c.ID, known >= 0, change.Before)
		}
		if known < 0 {
			continue
		}
		was := w.claims[known]
		if record(*change.Before) != was || was.Version == c.Version {
			w.t.Fatalf("a change from %+v to %+v, stored is %+v", *change.Before, record(*c), was)
		}
		left := was.Status == claim.Waiting && c.Status != claim.Waiting
		if change.StoppedWaiting() != left {
			w.t.Fatalf("StoppedWaiting is %t, from %+v to %+v", change.StoppedWaiting(), was, record(*c))
		}
	}
	changed := q.Row != read || len(queues.Changes()) > 0
	if q.Changed() != changed || queues.Err() != nil {
		w.t.Fatalf("Changed is %t, error %v: from %+v to %+v", q.Changed(), queues.Err(), read, q.Row)
	}
	if q.Stored().Version != w.row.Version {
		w.t.Fatalf("the stored row became %+v", q.Stored())
	}
}

// checkTransitions checks that the transitions of a batch are complete and in order: each
// begins where the one before it has left the claim, versions rise by every one of them, and the last one of a claim
// leaves it in the model's state.
func (w *window) checkTransitions(transitions []claim.Transition, version uint64) {
	w.t.Helper()
	now := make(map[string]entry)
	for _, e := range w.claims {
		now[e.ID] = e
	}
	for _, change := range transitions {
		before, known := now[change.After.ID]
		if known != (change.Before != nil) || (known && record(*change.Before) != before) {
			w.t.Fatalf("a transition from %+v, the claim was %+v", change.Before, before)
		}
		after := record(*change.After)
		if after.Version <= version {
			w.t.Fatalf("version %d after %d", after.Version, version)
		}
		version = after.Version
		if !slices.Contains(steps[before.Status], after.Status) {
			w.t.Fatalf("a step from %s to %s", before.Status, after.Status)
		}
		now[after.ID] = after
	}
	for _, want := range w.model.claims {
		if anyExpiry(now[want.ID]) != anyExpiry(want) {
			w.t.Fatalf("the transitions end with %+v, the model with %+v", now[want.ID], want)
		}
	}
}

// steps has the possible next statuses for each status; from 0 a claim is made.
var steps = map[claim.Status][]claim.Status{
	0:             {claim.Waiting},
	claim.Waiting: {claim.Waiting, claim.Active, claim.Aborted, claim.Withdrawn, claim.Revoked},
	claim.Active:  {claim.Active, claim.Released, claim.Expired, claim.Aborted, claim.Withdrawn, claim.Revoked},
}

// checkCost checks that not more of the queue was read than has left it, and a chunk, and that its end was found once.
func (w *window) checkCost(before []entry) {
	w.t.Helper()
	left := 0
	for i, e := range before {
		if e.Status == claim.Waiting && w.claims[i].Status != claim.Waiting {
			left++
		}
	}
	if w.reads > left+maxChunk || w.calls > left+2 || w.empty > 1 {
		w.t.Fatalf("%d claims left the line, %d were read, in %d calls, %d empty", left, w.reads, w.calls, w.empty)
	}
}

// prune forgets ended claims, and the row if it has no others; the floor then keeps its version.
func (w *window) prune() {
	w.model.prune()
	w.claims = slices.Clone(w.model.claims)
	if len(w.claims) == 0 {
		w.floor = max(w.floor, w.row.Version)
		w.row = claim.Row{}
	}
}

// longLine returns a shelf with one exclusive holder, "0", and n that wait, "1" to n.
func longLine(t *testing.T, n int) (*shelf, *queueTest) {
	t.Helper()
	d := setup(t)
	s := &shelf{chunk: func() int { return 16 }}
	for i := range n + 1 {
		if i%100 == 0 {
			d.use(s.load(d.now))
		}
		d.exclusive(strconv.Itoa(i))
		if i%100 == 99 || i == n {
			s.save(d.queues)
		}
	}
	return s, d
}

// The cost of a command does not depend on the length of the queue.
func TestCostIsFlat(t *testing.T) {
	const waiting = 10_000
	s, d := longLine(t, waiting)
	equal(t, "the number that wait", s.row.Waiting, waiting)
	for _, cost := range []struct {
		name  string
		cmd   claim.Command
		after time.Duration
		reads int
	}{
		{"release of the holder", claim.SetStatus{ID: "0", Status: claim.Released}, 0, 16},
		{"holder due", claim.Expire{Resources: []string{"printer"}}, time.Minute, 16},
		{"first leaves", claim.SetStatus{ID: "1", Status: claim.Withdrawn}, 0, 0},
		{"one in the middle leaves", claim.SetStatus{ID: "5000", Status: claim.Withdrawn}, 0, 0},
		{"one in the middle gives up", claim.End{ID: "5001"}, 0, 0},
		{"last leaves", claim.SetStatus{ID: "10000", Status: claim.Withdrawn}, 0, 0},
		{"one more", request("new"), 0, 0},
		{"one that waits comes again", request("5000"), 0, 0},
		{"renewal", claim.Renew{ID: "0", TTL: time.Minute}, 0, 0},
		{"is it my turn", claim.Activate{ID: "5000"}, 0, 0},
		{"collision", lock("new", "ann"), 0, 0},
		{"renewal by token", renewal("owner of 0", s.claims[0].Token), 0, 0},
		{"renewal of another grant", renewal("owner of 0", 1), 0, 0},
		{"renewal by token, too late", renewal("owner of 0", s.claims[0].Token), time.Minute, 16},
	} {
		t.Run(cost.name, func(t *testing.T) {
			now := d.now
			now.Lease = now.Lease.Add(cost.after)
			queues := s.load(now, cost.cmd.Targets()[0].ID)
			_, _ = queues.Do(cost.cmd)
			equal(t, "the number of claims read", s.reads, cost.reads)
			if changes := queues.Changes(); len(changes) > 2 {
				t.Errorf("%d claims are to be written", len(changes))
			}
		})
	}
}

// A batch that takes over one lease after another reads the queue once.
func TestCostOfManyReleasesInOneBatch(t *testing.T) {
	s, d := longLine(t, 1000)
	d.use(s.load(d.now))
	for range 100 {
		d.release(d.Holder)
	}
	equal(t, "the holder", d.Holder, "100")
	equal(t, "the number of claims read", s.reads, 112)
}

// Claims that join a line which has not been read wholly stay behind it.
func TestNewcomersStayBehindALineThatIsNotRead(t *testing.T) {
	s, d := longLine(t, 3)
	s.chunk = func() int { return 1 }
	d.use(s.load(d.now))
	d.exclusive("4")
	d.exclusive("5")
	for _, next := range []string{"1", "2", "3", "4", "5", ""} {
		d.release(d.Holder)
		equal(t, "the next holder", d.Holder, next)
	}
	equal(t, "the number that wait", d.Waiting, 0)
}

// Each transaction reads the resource again: the claim of a late renewal is not in it.
func TestLateRenewalInATransactionOfItsOwn(t *testing.T) {
	d := setup(t)
	s := &shelf{}
	transact := func(step func()) {
		d.use(s.load(d.now))
		step()
		if d.Changed() {
			s.save(d.queues)
		}
		d.after(time.Second)
	}
	var token uint64
	transact(func() { token = d.do(lock("a", "ann")).Token })
	transact(func() { equal(t, "the token", d.do(renewal("ann", token)).Token, token) })
	transact(func() { d.do(claim.Release{Resource: "printer", Owner: "ann", Token: token}) })
	transact(func() { wantErr(t, d.refuse(renewal("ann", token)), claim.ErrNotFound) })
	transact(func() { d.do(lock("b", "ann")) })
	row, claims := s.row, slices.Clone(s.claims)
	transact(func() { wantErr(t, d.refuse(renewal("ann", token)), claim.ErrNotFound) })
	equal(t, "Changed", d.Changed(), false)
	equal(t, "the row", s.row, row)
	checkSame(t, s.claims, claims)
}

// A store may read only the first few hundred of many holders that are due; the others
// are then ended by a later command.
func TestDueHoldersThatAreNotAllRead(t *testing.T) {
	d := setup(t)
	s := &shelf{chunk: func() int { return 16 }}
	d.use(s.load(d.now))
	d.shared("r1")
	d.shared("r2")
	d.exclusive("w")
	s.save(d.queues)
	d.after(time.Minute)

	d.use(only(claim.NewQueue(s.row, 0, s.more)))
	d.queues.Add(s.claims[0].claim())
	d.do(claim.Expire{Resources: []string{"printer"}})
	d.wantStatus(claim.Expired, "r1")
	equal(t, "the number of shared holders", d.Shared, 1)
	s.save(d.queues)

	d.use(s.load(d.now))
	d.do(claim.Expire{Resources: []string{"printer"}})
	equal(t, "the holder", d.Holder, "w")
}

func TestAddLeavesAKnownClaimAlone(t *testing.T) {
	d := setup(t)
	d.exclusive("a")
	d.queues.Add(&claim.Claim{ID: "a", Resource: "printer", Owner: "stale"})
	equal(t, "the owner", d.get("a").Owner, "owner of a")
}

// When the queue cannot be read nothing is granted, and the queue has the error.
func TestLineThatCannotBeRead(t *testing.T) {
	s, d := longLine(t, 2)
	broken := errors.New("the database is away")
	calls := 0
	d.use(only(claim.NewQueue(s.row, 0, func(string, uint64) ([]*claim.Claim, error) {
		calls++
		return nil, broken
	})))
	d.queues.Add(s.claims[0].claim())
	d.release("0")
	wantErr(t, d.queues.Err(), broken)
	equal(t, "the holder", d.Holder, "")
	d.do(claim.Expire{Resources: []string{"printer"}})
	equal(t, "the number of attempts", calls, 1)
}
