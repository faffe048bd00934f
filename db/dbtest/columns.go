package dbtest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/rules/claim"
)

var columnCases = []Case{
	{Name: "CreateIsStored", Run: createIsStored},
	{Name: "AcquireIsStored", Run: acquireIsStored},
	{Name: "RenewalIsStored", Run: renewalIsStored},
	{Name: "EndIsStored", Run: endIsStored},
	{Name: "IdentityIsStored", Run: identityIsStored},
	{Name: "ExpiryIsStored", Run: expiryIsStored},
	{Name: "RowIsStored", Run: rowIsStored},
	{Name: "NamesAreBytes", Run: namesAreBytes},
	{Name: "LargeVersions", Run: largeVersions},
	{Name: "History", Run: history},
	{Name: "SameAsRules", Run: sameAsRules},
}

const century = 100 * 365 * 24 * time.Hour

// stored checks that a claim reads as the command answered, and returns it.
func stored(t testing.TB, s db.Store, what string, want claim.Claim) claim.Claim {
	t.Helper()
	got := get(t, s, want.ID)
	same(t, what, got, want)
	return got
}

func createIsStored(t testing.TB, e Engine) {
	long := strings.Repeat("n", 1023)
	for name, cmd := range map[string]claim.Create{
		"plain":     {ID: "plain", Resource: "r1", TTL: time.Second},
		"all":       {ID: "all", Resource: "r2", Owner: "o", Units: claim.Units{Take: 3, Of: 7}, Type: claim.Presence, TTL: 1500 * time.Millisecond, UserData: []byte(`{"a": 1}`), Value: "v", AllowDeadlock: true},
		"null":      {ID: "null", Resource: "r3", TTL: time.Microsecond, UserData: []byte("null")},
		"empty":     {ID: "empty", Resource: "r4", TTL: century, UserData: []byte{}, Type: claim.Lock},
		"large":     {ID: strings.Repeat("i", 128), Resource: long + "r", Owner: long + "o", TTL: 1, UserData: []byte(`"` + strings.Repeat("u", 64<<10-2) + `"`), Value: strings.Repeat("v", 64<<10)},
		"unicode":   {ID: "ключ", Resource: "ресурс 資源 🔒", Owner: "ó", TTL: time.Hour, UserData: []byte(`"\u0000 é 🔒"`), Value: "значение\n\t\"'\\%_"},
		"quotation": {ID: "a'b", Resource: `x"; --`, Owner: "o`?", TTL: time.Hour},
	} {
		cmd.TTL = cmd.TTL.Truncate(time.Microsecond)
		want := Do(t, e.Store, cmd)[0]
		got := stored(t, e.Store, name, want)
		equal(t, name+": user data", got.UserData, cmd.UserData)
		if !cmd.Made(&got) || got.Type != cmd.Type || got.TTL != cmd.TTL || got.Value != cmd.Value || got.AllowDeadlock != cmd.AllowDeadlock {
			t.Errorf("%s: what is stored is not what was sent", name)
		}
		if got.Deadline.Sub(want.Deadline.Add(-cmd.TTL)) != cmd.TTL || got.Status != claim.Active || got.Token == 0 {
			t.Errorf("%s: deadline %d, status %s, token %d", name, got.Deadline, got.Status, got.Token)
		}
	}
	stored(t, e.Store, "ended", Do(t, e.Store, claim.End{ID: "all"})[0])
}

func acquireIsStored(t testing.TB, e Engine) {
	cmd := claim.Acquire{ID: "a", Resource: "r", Owner: "o", Type: claim.Lock, TTL: 5 * time.Second, Value: "v"}
	first := stored(t, e.Store, "acquired", DoAt(t, e.Store, -time.Second, cmd)[0])
	cmd.ID, cmd.Type, cmd.TTL, cmd.Value = "b", claim.Presence, century, ""
	second := stored(t, e.Store, "renewed", Do(t, e.Store, cmd)[0])
	equal(t, "id", second.ID, "a")
	equal(t, "token", second.Token, first.Token)
	equal(t, "type", second.Type, claim.Presence)
	equal(t, "value", second.Value, "")
	equal(t, "TTL", second.TTL, century)
	if second.Version <= first.Version || second.Deadline <= first.Deadline {
		t.Errorf("renewed from %+v to %+v", first, second)
	}
	gone := stored(t, e.Store, "released", Do(t, e.Store, claim.Release{Resource: "r", Owner: "o", Token: first.Token})[0])
	equal(t, "status", gone.Status, claim.Released)
}

func renewalIsStored(t testing.TB, e Engine) {
	first := DoAt(t, e.Store, -time.Minute, exclusive("a", "r"))[0]
	renewed := stored(t, e.Store, "renewed", Do(t, e.Store, claim.Renew{ID: "a", TTL: century})[0])
	if renewed.Version <= first.Version || renewed.Deadline <= first.Deadline || renewed.TTL != century {
		t.Errorf("renewed from %+v to %+v", first, renewed)
	}
	ttl := 7 * time.Second
	activated := stored(t, e.Store, "activated", Do(t, e.Store, claim.Activate{ID: "a", TTL: &ttl})[0])
	equal(t, "TTL", activated.TTL, ttl)
	same(t, "activated again", Do(t, e.Store, claim.Activate{ID: "a"})[0], activated)
}

func endIsStored(t testing.TB, e Engine) {
	reason := "the reason: " + strings.Repeat("é", 500)
	DoAt(t, e.Store, -time.Minute, exclusive("held", "given up"), exclusive("waited", "given up"))
	for _, id := range []string{"waited", "held"} {
		c := stored(t, e.Store, "given up", Do(t, e.Store, claim.End{ID: id, Reason: reason})[0])
		equal(t, "reason", c.Reason, reason)
	}
	for _, to := range []claim.Status{claim.Released, claim.Aborted, claim.Withdrawn, claim.Revoked} {
		resource := to.String()
		DoAt(t, e.Store, -time.Minute, exclusive("active "+resource, resource), exclusive("waiting "+resource, resource))
		if to != claim.Released {
			end := claim.SetStatus{ID: "waiting " + resource, Status: to, Reason: reason}
			c := stored(t, e.Store, "waiting", DoAt(t, e.Store, -time.Second, end)[0])
			equal(t, "activated", c.Activated, 0)
			equal(t, "reason", c.Reason, reason)
		}
		c := stored(t, e.Store, "active", Do(t, e.Store, claim.SetStatus{ID: "active " + resource, Status: to, Reason: reason})[0])
		if c.Status != to || c.Reason != reason || c.Finished.Sub(c.Activated) < time.Minute {
			t.Errorf("ended as %+v", c)
		}
		same(t, "ended again", Do(t, e.Store, claim.SetStatus{ID: c.ID, Status: to, Reason: "other"})[0], c)
	}
}

func identityIsStored(t testing.TB, e Engine) {
	name := "spiffe://" + strings.Repeat("é", 507)
	do := func(id, caller string, cmd claim.Command) {
		t.Helper()
		want := doFor(t, e.Store, db.Batch{Requests: requests(caller, cmd)}).Answers[0].Claim
		stored(t, e.Store, id+" by "+caller, *want)
	}
	for _, id := range []string{"a", "b"} {
		do(id, name, exclusive(id, "r"))
		equal(t, "identity", get(t, e.Store, id).Identity, name)
	}
	do("a", "other", claim.Renew{ID: "a", TTL: time.Hour})
	do("a", "other", released("a"))
	do("b", name, claim.Renew{ID: "b", TTL: time.Hour})
	equal(t, "identity", get(t, e.Store, "b").Identity, name)
	equal(t, "who ended a", get(t, e.Store, "a").EndedBy, "other")
	equal(t, "who ended b", get(t, e.Store, "b").EndedBy, "")
	// Renewed and ended at once, which is no mere end.
	doFor(t, e.Store, db.Batch{Requests: requests(name, claim.Renew{ID: "b", TTL: time.Minute}, released("b"))})
	equal(t, "who ended b", get(t, e.Store, "b").EndedBy, name)
}

func expiryIsStored(t testing.TB, e Engine) {
	DoAt(t, e.Store, -2*time.Hour, exclusive("x", "exclusive"), exclusive("next", "exclusive"),
		shared("s1", "shared"), shared("s2", "shared"))
	Do(t, e.Store, shared("s3", "shared"))
	Do(t, e.Store, claim.Expire{Resources: []string{"exclusive"}}, claim.Expire{Resources: []string{"shared"}}, claim.Expire{Resources: []string{"nothing"}})
	for id, want := range map[string]claim.Status{
		"x": claim.Expired, "next": claim.Active, "s1": claim.Expired, "s2": claim.Expired, "s3": claim.Active,
	} {
		status(t, e.Store, id, want)
	}
	equal(t, "shared holders", row(t, e.Store, "shared").Shared, 1)
	if c := get(t, e.Store, "x"); c.Finished < c.Deadline || c.Version <= c.Token {
		t.Errorf("expired as %+v", c)
	}
}

func rowIsStored(t testing.TB, e Engine) {
	equal(t, "row at first", row(t, e.Store, "r"), claim.Row{Resource: "r"})
	Do(t, e.Store, shared("s1", "r"), shared("s2", "r"), exclusive("x1", "r"), exclusive("x2", "r"), shared("s3", "r"))
	got := row(t, e.Store, "r")
	equal(t, "row while shared", got, claim.Row{Resource: "r", Version: get(t, e.Store, "s3").Version, Shared: 2, Taken: 2, Waiting: 3})
	Do(t, e.Store, released("s1"), released("s2"))
	got = row(t, e.Store, "r")
	equal(t, "row while exclusive", got, claim.Row{Resource: "r", Version: get(t, e.Store, "x1").Version, Holder: "x1", Waiting: 2})
	Do(t, e.Store, released("x1"), withdrawn("x2"), released("s3"))
	if got = row(t, e.Store, "r"); got.Holder != "" || got.Shared+got.Waiting != 0 || got.Version < get(t, e.Store, "s3").Version {
		t.Errorf("row at last: %+v", got)
	}
}

// alike are names that only their bytes tell apart.
var alike = []string{
	"a", "A", "a ", " a", "a  ", "a\t", "á", "a\u0301", "à", "ä", "ss", "ß", "ﬁ", "fi",
	"1", "01", "1.0", "null", "NULL", "a%", "a_", "a\\", "\u200ba", "a\n",
}

func namesAreBytes(t testing.TB, e Engine) {
	var cmds []claim.Command
	for _, name := range alike {
		cmds = append(cmds, claim.Create{ID: name, Resource: name, Owner: name, TTL: time.Hour, Value: name})
	}
	Do(t, e.Store, cmds...)
	for _, name := range alike {
		c := get(t, e.Store, name)
		equal(t, "claim", []string{c.ID, c.Resource, c.Owner, c.Value}, []string{name, name, name, name})
		equal(t, fmt.Sprintf("status of %q", name), c.Status, claim.Active)
		holder, err := e.Store.Holder(t.Context(), name)
		must(t, err)
		equal(t, fmt.Sprintf("holder of %q", name), holder.ID, name)
		equal(t, fmt.Sprintf("claims on %q", name), ids(list(t, e.Store, db.Filter{Resource: &name})), []string{name})
		equal(t, fmt.Sprintf("claims of %q", name), ids(list(t, e.Store, db.Filter{Owner: &name})), []string{name})
		equal(t, fmt.Sprintf("row of %q", name), row(t, e.Store, name).Holder, name)
	}
	// Each is released alone.
	Do(t, e.Store, claim.Release{Resource: "a", Owner: "a"}, released("á"))
	equal(t, "active claims", len(list(t, e.Store, db.Filter{Statuses: []claim.Status{claim.Active}})), len(alike)-2)
}

// largeVersions uses a time far ahead. Versions are beyond what a float64 can hold.
func largeVersions(t testing.TB, e Engine) {
	const far = 1<<62 + 1
	var want claim.Claim
	must(t, Update(t.Context(), e.Store, func(tx db.Tx) error {
		queues, err := tx.Load(db.Wanted{Resources: []string{"r"}})
		if err != nil {
			return err
		}
		queues.Now.Wall = far
		c, err := queues.Do(exclusive("a", "r"))
		if err != nil {
			return err
		}
		want = *c
		return tx.Save(queues)
	}))
	c := stored(t, e.Store, "far ahead", want)
	equal(t, "token", c.Token, far+1)
	Do(t, e.Store, exclusive("b", "r"), exclusive("c", "r"), exclusive("d", "r"), released("a"))
	equal(t, "token of the next", get(t, e.Store, "b").Token, far+6)
	equal(t, "version", row(t, e.Store, "r").Version, far+6)
	snapshot := readQueue(t, e.Store, "r", 10)
	equal(t, "version of the queue", snapshot.Version, far+6)
	same(t, "holder", snapshot.Holders[0], get(t, e.Store, "b"))
	same(t, "waiter", snapshot.Waiters[0], get(t, e.Store, "c"))
	aheadIs(t, e.Store, "c", 10, 0)
	aheadIs(t, e.Store, "d", 10, 1)
}

func history(t testing.TB, e Engine) {
	DoAt(t, e.Store, -3*time.Minute, exclusive("a", "r"), exclusive("b", "r"))
	DoAt(t, e.Store, -2*time.Minute, released("a"))
	DoAt(t, e.Store, -time.Minute, claim.SetStatus{ID: "b", Status: claim.Revoked})
	a, b := get(t, e.Store, "a"), get(t, e.Store, "b")
	at := a.Created
	equal(t, "history of a", a.History(), []claim.StatusChange{{Status: claim.Waiting, At: at}, {Status: claim.Active, At: at}, {Status: claim.Released, At: a.Finished}})
	equal(t, "history of b", b.History(), []claim.StatusChange{{Status: claim.Waiting, At: at}, {Status: claim.Active, At: a.Finished}, {Status: claim.Revoked, At: b.Finished}})
	if wait, _ := b.ActiveDuration(claim.Instant{}); wait < time.Minute || a.Finished.Sub(at) < time.Minute {
		t.Errorf("active for %s", wait)
	}
}

// rules is the oracle by package claim: each resource's queue, with all of its claims, in memory.
type rules struct{ *claim.Queues }

func newRules() *rules { return &rules{claim.NewQueues(claim.Instant{}, 0)} }

func (r *rules) do(cmd claim.Command, at claim.Instant) answer {
	for _, target := range cmd.Targets() {
		if target.Resource != "" && r.Resource(target.Resource) == nil {
			r.Put(claim.NewQueue(claim.Row{Resource: target.Resource}, 0, nil))
		}
	}
	r.Now = at
	return answerOf(r.Do(cmd))
}

// random returns a command about one of the resources or of the claims that exist. Only exclusive claims fall due:
// shared ones end in any order.
func random(rnd *rand.Rand, known []string, next string) claim.Command {
	resource := fmt.Sprint("r", rnd.IntN(4))
	owner := fmt.Sprint("o", rnd.IntN(3))
	id := known[rnd.IntN(len(known))]
	switch rnd.IntN(13) {
	case 0, 1, 2:
		return claim.Create{ID: next, Resource: resource, Owner: owner, TTL: time.Duration(1+rnd.IntN(50)) * time.Millisecond, Value: next}
	case 3, 4:
		return claim.Create{ID: next, Resource: resource, Units: claim.Shared, TTL: time.Hour, UserData: []byte(`"` + next + `"`)}
	case 5:
		return claim.Acquire{ID: next, Resource: resource, Owner: owner, TTL: time.Millisecond, Type: claim.Lock, Value: next}
	case 6:
		return claim.Release{Resource: resource, Owner: owner}
	case 7:
		return claim.Renew{ID: id, TTL: time.Hour}
	case 8:
		return claim.Expire{Resources: []string{resource}}
	case 9:
		return claim.End{ID: id, Reason: next}
	default:
		return claim.SetStatus{ID: id, Status: claim.Released + claim.Status(rnd.IntN(5)), Reason: next}
	}
}

// sameAsRules compares what is stored with the rules, over random batches of commands.
func sameAsRules(t testing.TB, e Engine) {
	rnd := rand.New(rand.NewPCG(1, 2))
	r := newRules()
	known := []string{"none"}
	for batch := range 120 {
		var cmds []claim.Command
		for n := range 1 + rnd.IntN(12) {
			cmds = append(cmds, random(rnd, known, fmt.Sprintf("c%03d-%02d", batch, n)))
		}
		answers, at, err := transact(t.Context(), e.Store, 0, cmds...)
		must(t, err)
		for i, got := range answers {
			want := r.do(cmds[i], at)
			equal(t, fmt.Sprintf("error of %#v", cmds[i]), fmt.Sprint(got.err), fmt.Sprint(want.err))
			same(t, fmt.Sprintf("%#v", cmds[i]), got.claim, want.claim)
		}
		known = []string{"none"}
		for _, change := range r.Changes() {
			known = append(known, change.After.ID)
		}
		slices.Sort(known)
		if t.Failed() {
			t.Fatalf("batch %d went wrong", batch)
		}
		time.Sleep(100 * time.Microsecond) // real time: leases of milliseconds run out between batches, some or others
	}
	r.compare(t, e.Store)
}

func (r *rules) compare(t testing.TB, s db.Store) {
	t.Helper()
	for _, change := range r.Changes() {
		same(t, change.After.ID, get(t, s, change.After.ID), *change.After)
	}
	for _, q := range r.Changed() {
		if got := row(t, s, q.Resource); got != q.Row {
			t.Errorf("row %+v, want %+v", got, q.Row)
		}
	}
	equal(t, "number of claims", len(list(t, s, db.Filter{})), len(r.Changes()))
}
