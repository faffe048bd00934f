package robustness_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/internal/rules/claim"
	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/tests/harness"
	"github.com/locket-service/locket/tests/history"
)

const (
	active  = models.Status_STATUS_ACTIVE
	waiting = models.Status_STATUS_WAITING
)

// record is a client's knowledge of one of its claims or locks. Times are nanoseconds since the beginning of the ledger.
type record struct {
	key, id string // the owner of a lock, the id of a claim
	lock    bool
	shared  bool
	last    *models.Claim // the last acknowledged state; nil for a lock
	token   uint64
	created struct{ first, end int64 } // the request that made the claim, and its answer
	granted int64                      // when the client got the answer; 0: never
	left    int64                      // when its trust window ended: before it asked to end the claim
	ended   models.Status              // acknowledged
	expires bool                       // no client ends it; it expires
}

// ledger has everything that the clients of one test were answered.
type ledger struct {
	began time.Time

	mu      sync.Mutex
	records map[string]*record
	history []history.Operation
	faults  []string
}

func newLedger() *ledger {
	return &ledger{began: time.Now(), records: make(map[string]*record)}
}

func (l *ledger) now() int64 {
	return int64(time.Since(l.began)) // real time: of the record
}

func (l *ledger) fault(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.faults = append(l.faults, fmt.Sprintf("%10d us: ", l.now()/1000)+fmt.Sprintf(format, args...))
}

// op records a request and its answer. A request that was sent repeatedly until it was answered is one operation, from the first attempt to
// the answer.
func (l *ledger) op(first, end int64, request history.Request, out history.Output) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.history = append(l.history, history.Operation{Call: first, Return: end, Request: request, Output: out})
}

// open begins the record of a claim or lock before the first request for it.
func (l *ledger) open(key, id string, lock, shared bool) *record {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := &record{key: key, id: id, lock: lock, shared: shared}
	l.records[id] = r
	return r
}

// hold records a grant.
func (l *ledger) hold(r *record, token uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r.token, r.granted = token, l.now()
}

// leave records that the client no longer acts as a holder.
func (l *ledger) leave(r *record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r.left = l.now()
}

// trust records that a client trusted at a moment that it held a resource by the grant of a token.
func (l *ledger) trust(key string, token uint64, at int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	id := fmt.Sprint(key, " ", token)
	if l.records[id] == nil {
		l.records[id] = &record{key: key, id: id, token: token, granted: at}
	}
	l.records[id].left = at
}

// abandon records that the client lets the claim expire, which it may from a moment on.
func (l *ledger) abandon(r *record, since int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r.ended, r.expires = models.Status_STATUS_EXPIRED, true
	if r.granted != 0 {
		r.left = since
	}
}

// keep records that an abandoned claim was renewed before it had expired.
func (l *ledger) keep(r *record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r.ended, r.expires, r.left = 0, false, 0
}

// end records an acknowledged final status.
func (l *ledger) end(r *record, status models.Status) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r.ended = status
}

// see records an acknowledged state of a claim, which must not be older than the one before.
func (l *ledger) see(r *record, c *models.Claim) {
	l.mu.Lock()
	last := r.last
	r.last = c
	l.mu.Unlock()
	if err := follows(last, c); err != nil {
		l.fault("%s: %v", r.id, err)
	}
}

// follows returns an error if the present state of a claim cannot follow an acknowledged earlier one.
func follows(then, now *models.Claim) error {
	if then == nil {
		return nil
	}
	before, after := then.GetStatusHistory(), now.GetStatusHistory()
	final := then.GetStatus() > active
	switch {
	case then.GetId() != now.GetId(), then.GetResource() != now.GetResource(), then.GetOwner() != now.GetOwner(),
		!proto.Equal(then.GetCreated(), now.GetCreated()):
		return fmt.Errorf("was %v, is another: %v", then, now)
	case now.GetVersion() < then.GetVersion():
		return fmt.Errorf("version %d, then %d", then.GetVersion(), now.GetVersion())
	case final && (now.GetStatus() != then.GetStatus() || now.GetVersion() != then.GetVersion()):
		return fmt.Errorf("was %v, is %v", then.GetStatus(), now.GetStatus())
	case then.GetToken() != 0 && now.GetToken() != then.GetToken():
		return fmt.Errorf("token %d, then %d", then.GetToken(), now.GetToken())
	case len(after) < len(before) || !slices.EqualFunc(before, after[:len(before)], sameChange):
		return fmt.Errorf("history %v, then %v", before, after)
	}
	return nil
}

func sameChange(a, b *models.StatusChange) bool { return proto.Equal(a, b) }

// sample checks some acknowledged changes: claims still exist, and released locks are not held.
func (l *ledger) sample(t *testing.T, client models.LocketClient, keys []string) {
	t.Helper()
	for id, then := range l.some(50) {
		now, err := harness.Answered(t, func() (*models.Claim, error) {
			return client.GetClaim(t.Context(), &models.GetClaimRequest{Id: id})
		})
		if err != nil {
			t.Fatalf("acknowledged claim %s: %v", id, err)
		}
		if err := follows(then, now); err != nil {
			l.fault("after a restart: %s: %v", id, err)
		}
	}
	for _, key := range keys {
		released := l.ended(key)
		resp, err := client.Fetch(t.Context(), &models.FetchRequest{Key: key})
		if err == nil && released[resp.GetResource().GetOwner()] {
			l.fault("after a restart: %s is held by %s, which was released", key, resp.GetResource().GetOwner())
		}
	}
}

// some returns up to n claims in their last acknowledged states.
func (l *ledger) some(n int) map[string]*models.Claim {
	l.mu.Lock()
	defer l.mu.Unlock()
	picked := make(map[string]*models.Claim)
	for id, r := range l.records { // in random order
		if len(picked) < n && r.last != nil && rand.IntN(2) == 0 {
			picked[id] = r.last
		}
	}
	return picked
}

// ended returns the owners of a key whose claims have ended. Abandoned claims are not among them: the server decides when they end.
func (l *ledger) ended(key string) map[string]bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	owners := make(map[string]bool)
	for id, r := range l.records {
		if r.key == key && r.ended != 0 && r.ended != models.Status_STATUS_EXPIRED {
			owners[id] = true
		}
	}
	return owners
}

// audit compares the database with the ledger at the end.
func (l *ledger) audit(t *testing.T, client models.LocketClient) {
	t.Helper()
	stored := make(map[string]*models.Claim)
	for _, c := range harness.ListAll(t, client) {
		if stored[c.GetOwner()] != nil {
			t.Errorf("%s has two claims", c.GetOwner())
		}
		stored[c.GetOwner()] = c
	}
	for id, r := range l.records {
		if err := r.compare(stored[id]); err != nil {
			t.Errorf("%s on %s: %v", id, r.key, err)
		}
		delete(stored, id)
	}
	for _, c := range stored {
		t.Errorf("a claim that nobody made: %v", c)
	}
	grants := 0
	for _, r := range l.records {
		if r.granted != 0 {
			grants++
		}
	}
	t.Logf("%d grants of %d claims and locks", grants, len(l.records))
	report(t, l.doubleHolders())
}

// compare returns how the stored claim differs from the acknowledged one.
func (r *record) compare(c *models.Claim) error {
	switch {
	case c == nil && r.ended == 0 && r.token == 0:
		return nil // a lock that was refused
	case c == nil:
		return fmt.Errorf("is lost (token %d, %v)", r.token, r.ended)
	case r.ended == 0:
		return fmt.Errorf("is there, though it was refused: %v", c)
	case c.GetStatus() != r.ended, r.token != 0 && c.GetToken() != r.token, c.GetResource() != r.key:
		return fmt.Errorf("was acknowledged as %v with token %d, is %v", r.ended, r.token, c)
	case !slices.EqualFunc(c.GetStatusHistory(), r.statuses(c), func(a *models.StatusChange, b models.Status) bool {
		return a.GetStatus() == b
	}):
		return fmt.Errorf("its history is %v", c.GetStatusHistory())
	}
	return follows(r.last, c)
}

// statuses returns the status history that the claim must have.
func (r *record) statuses(c *models.Claim) []models.Status {
	if c.GetToken() == 0 {
		return []models.Status{waiting, r.ended}
	}
	return []models.Status{waiting, active, r.ended}
}

// doubleHolders returns the pairs of clients that trusted a grant of the same key at the same time, at least one of them an exclusive grant,
// and the pairs whose tokens did not rise in the order of the grants.
func (l *ledger) doubleHolders() (faults []string) {
	byKey := make(map[string][]*record)
	for _, r := range l.records {
		if r.granted != 0 {
			byKey[r.key] = append(byKey[r.key], r)
		}
	}
	for key, held := range byKey {
		slices.SortFunc(held, func(a, b *record) int { return cmp.Compare(a.granted, b.granted) })
		for i, r := range held {
			for _, before := range held[:i] {
				if before.conflicts(r) {
					faults = append(faults, fmt.Sprintf("%s: %s (token %d, held from %d to %d) and %s (token %d, held from %d to %d)", key,
						before.id, before.token, before.granted, before.left, r.id, r.token, r.granted, r.left))
				}
			}
		}
	}
	return faults
}

// conflicts reports whether this grant contradicts another one that was answered later. Shared holders may hold at the same time, and may be
// answered in any order.
func (r *record) conflicts(next *record) bool {
	if r.shared && next.shared {
		return r.token == next.token
	}
	return r.left == 0 || next.granted < r.left || next.token <= r.token
}

// outOfTurn returns the pairs of claims that were made one after the other and granted in the reverse order.
func (l *ledger) outOfTurn() (faults []string, pairs int) {
	byKey := make(map[string][]*record)
	for _, r := range l.records {
		if !r.lock && r.token != 0 {
			byKey[r.key] = append(byKey[r.key], r)
		}
	}
	for key, claims := range byKey {
		for _, a := range claims {
			for _, b := range claims {
				if a.created.end >= b.created.first {
					continue
				}
				if pairs++; a.token > b.token {
					faults = append(faults, fmt.Sprintf("%s: %s was made before %s, and granted after it", key, a.id, b.id))
				}
			}
		}
	}
	return faults, pairs
}

// settle completes the history with the final states of all claims.
func (l *ledger) settle(t *testing.T, client models.LocketClient) {
	t.Helper()
	end := l.now()
	stored := make(map[string]*models.Claim)
	for _, c := range harness.ListAll(t, client) {
		stored[c.GetOwner()] = c
	}
	expired := 0
	for id, r := range l.records {
		if r.expires {
			expired++
		}
		end++
		if c := stored[id]; c == nil {
			l.op(end, end, history.Read(r.key, id), history.Output{Refused: history.NotFound})
		} else {
			l.op(end, end, history.Read(r.key, c.GetId()), answer(c))
		}
	}
	t.Logf("%d claims were left to expire", expired)
}

// answer is a state of a claim that a client was answered.
func answer(c *models.Claim) history.Output {
	return history.Output{Status: claim.Status(c.GetStatus()), Token: c.GetToken(), Version: c.GetVersion()}
}

// checkHistory fails the test unless the rules explain what clients were answered and what the store of the server has at the end.
func (l *ledger) checkHistory(t *testing.T, server *fixtures.Locket) {
	t.Helper()
	start := time.Now()
	stored := harness.Stored(t, server)
	if err := history.Check(stored, l.history); err != nil {
		t.Error(err)
	}
	harness.LogTime(t, fmt.Sprintf("the check of %d operations on %d claims", len(l.history), len(stored)), start)
}

func (l *ledger) checkFIFO(t *testing.T) {
	t.Helper()
	faults, pairs := l.outOfTurn()
	t.Logf("%d pairs of claims that were made one after the other", pairs)
	report(t, faults)
}

// report fails the test with the first faults.
func report(t *testing.T, faults []string) {
	t.Helper()
	for _, fault := range faults[:min(len(faults), 20)] {
		t.Error(fault)
	}
}

// The ledger finds violations.
func TestLedger(t *testing.T) {
	l := newLedger()
	add := func(id string, token uint64, granted, left int64) *record {
		r := l.open("k", id, false, false)
		r.token, r.granted, r.left = token, granted, left
		return r
	}
	a, b := add("a", 1, 10, 20), add("b", 2, 20, 30)
	if faults := l.doubleHolders(); len(faults) != 0 {
		t.Errorf("one after the other: %v", faults)
	}
	b.granted = 19
	if len(l.doubleHolders()) != 1 {
		t.Error("it overlooks two holders")
	}
	a.shared = true
	if len(l.doubleHolders()) != 1 {
		t.Error("it overlooks an exclusive holder beside a shared one")
	}
	a.shared, b.shared = false, true
	if len(l.doubleHolders()) != 1 {
		t.Error("it overlooks a shared holder beside an exclusive one")
	}
	a.shared = true
	if faults := l.doubleHolders(); len(faults) != 0 {
		t.Errorf("shared holders: %v", faults)
	}
	a.token = 3
	if faults := l.doubleHolders(); len(faults) != 0 {
		t.Errorf("shared holders that hear of it in another order: %v", faults)
	}
	a.token, b.token = 1, 1
	if len(l.doubleHolders()) != 1 {
		t.Error("it overlooks a token that two shared holders have")
	}
	trusting := newLedger()
	trusting.trust("k", 1, 10)
	trusting.trust("k", 2, 20)
	if faults := trusting.doubleHolders(); len(faults) != 0 {
		t.Errorf("one client trusts after the other: %v", faults)
	}
	if trusting.trust("k", 1, 21); len(trusting.doubleHolders()) != 1 {
		t.Error("it overlooks a client that trusts its grant after the next one")
	}
	c := add("c", 3, 25, 30) // b holds, and a has gone
	b.token = 2
	if len(l.doubleHolders()) != 1 {
		t.Error("it overlooks a holder that is not the last one before")
	}
	delete(l.records, c.id)
	a.shared, b.shared = false, false
	b.granted, b.token = 21, 1
	if len(l.doubleHolders()) != 1 {
		t.Error("it overlooks a token that does not rise")
	}
	l.records["a"].created.end = 5
	b.created.first, b.created.end = 6, 7
	if faults, pairs := l.outOfTurn(); len(faults) != 0 || pairs != 1 {
		t.Errorf("in turn: %v", faults)
	}
	l.records["a"].token = 3
	if faults, _ := l.outOfTurn(); len(faults) != 1 {
		t.Error("it overlooks who came out of turn")
	}
}

func TestLedgerCompares(t *testing.T) {
	const released = models.Status_STATUS_RELEASED
	history := func(statuses ...models.Status) (changes []*models.StatusChange) {
		for _, s := range statuses {
			changes = append(changes, &models.StatusChange{Status: s})
		}
		return changes
	}
	held := &models.Claim{Id: "a", Resource: "k", Status: active, Token: 5, Version: 5, StatusHistory: history(waiting, active)}
	ended := &models.Claim{Id: "a", Resource: "k", Status: released, Token: 5, Version: 6, StatusHistory: history(waiting, active, released)}
	r := &record{key: "k", id: "a", last: ended, token: 5, ended: released}
	change := func(do func(*models.Claim)) *models.Claim {
		c := proto.Clone(ended).(*models.Claim)
		do(c)
		return c
	}
	if err := r.compare(ended); err != nil {
		t.Error(err)
	}
	if err := follows(held, ended); err != nil {
		t.Error(err)
	}
	for name, c := range map[string]*models.Claim{
		"a lost claim":          nil,
		"a lost release":        held,
		"another token":         change(func(c *models.Claim) { c.Token = 6 }),
		"another status":        change(func(c *models.Claim) { c.Status = models.Status_STATUS_EXPIRED }),
		"a history that is cut": change(func(c *models.Claim) { c.StatusHistory = history(waiting, released) }),
		"another version":       change(func(c *models.Claim) { c.Version = 7 }),
		"another resource":      change(func(c *models.Claim) { c.Resource = "l" }),
	} {
		if r.compare(c) == nil {
			t.Errorf("it overlooks %s", name)
		}
	}
	if (&record{key: "k", id: "a"}).compare(held) == nil {
		t.Error("it overlooks what a refused request left")
	}
}
