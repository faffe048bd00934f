package dbtest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/rules/claim"
)

var txCases = []Case{
	{Name: "ErrorLeavesNothing", Run: errorLeavesNothing},
	{Name: "RefusalLeavesNothing", Run: refusalLeavesNothing},
	{Name: "Outcome", Run: outcomes},
	{Name: "Completion", Run: completion},
	{Name: "Prepare", Run: prepare},
	{Name: "About", Run: about},
	{Name: "Positions", Run: positions},
	{Name: "UnknownIDs", Run: unknownIDs},
	{Name: "RepeatedNames", Run: repeatedNames},
	{Name: "ClaimOfAnotherResource", Run: claimOfAnotherResource},
	{Name: "ClaimAndResourceTogether", Run: claimAndResourceTogether},
	{Name: "ClaimBehindPrunedRow", Run: claimBehindPrunedRow},
	{Name: "ManyResources", Run: manyResources},
	{Name: "SeveralChangesOfOneClaim", Run: severalChangesOfOneClaim},
	{Name: "SeveralResourcesInOneCommand", Run: severalResourcesInOneCommand},
	{Name: "TimeOfTransaction", Run: timeOfTransaction, Clock: true},
	{Name: "SurvivesReopen", Run: survivesReopen},
	{Name: "TokensRise", Run: tokensRise},
	{Name: "CancelledWrites", Run: cancelledWrites},
}

func errorLeavesNothing(t testing.TB, e Engine) {
	boom := errors.New("boom")
	before := Do(t, e.Store, exclusive("a", "r"), exclusive("b", "r"))
	for range 3 {
		err := Update(t.Context(), e.Store, func(tx db.Tx) error {
			cmds := []claim.Command{released("a"), exclusive("c", "r"), exclusive("d", "new")}
			if _, err := db.Execute(tx, cmds, func(queues *claim.Queues) { carryOut(queues, cmds) }); err != nil {
				return err
			}
			return boom
		})
		if err != boom { //nolint:errorlint // it must be returned unchanged
			t.Fatalf("the error of fn came back as %v", err)
		}
		for _, c := range before {
			same(t, "after an error", get(t, e.Store, c.ID), c)
		}
		for _, id := range []string{"c", "d"} {
			if _, _, _, err := e.Store.Get(t.Context(), id, 0); !errors.Is(err, claim.ErrNotFound) {
				t.Errorf("get %s after an error: %v", id, err)
			}
		}
		equal(t, "row after an error", row(t, e.Store, "new").Version, 0)
		err = Update(t.Context(), e.Store, func(db.Tx) error { return boom })
		if !errors.Is(err, boom) {
			t.Errorf("the error of an empty transaction: %v", err)
		}
	}
	Do(t, e.Store, released("a"), exclusive("d", "new"))
	status(t, e.Store, "b", claim.Active)
	status(t, e.Store, "d", claim.Active)
}

func refusalLeavesNothing(t testing.TB, e Engine) {
	first := Do(t, e.Store, exclusive("a", "r"))[0]
	before := row(t, e.Store, "r")
	var collision *claim.CollisionError
	if err := refuse(t, e.Store, claim.Acquire{ID: "b", Resource: "r", Owner: "x", TTL: time.Hour}); !errors.As(err, &collision) {
		t.Errorf("a lock that is held: %v", err)
	} else {
		same(t, "the holder", *collision.Holder, first)
	}
	if err := refuse(t, e.Store, claim.Release{Resource: "free", Owner: "x"}); !errors.Is(err, claim.ErrNotFound) {
		t.Errorf("a lock that is not there: %v", err)
	}
	equal(t, "row", row(t, e.Store, "r"), before)
	equal(t, "row of a resource that was never claimed", row(t, e.Store, "free"), claim.Row{Resource: "free"})
	equal(t, "claims", ids(list(t, e.Store, db.Filter{})), []string{"a"})
}

// outcomes: a transaction reports exactly its changes.
func outcomes(t testing.TB, e Engine) {
	outcome, err := db.Transact(t.Context(), e.Store, db.Batch{
		Requests: requests("cert:a", exclusive("a", "r"), exclusive("b", "r"), claim.Renew{ID: "none", TTL: 1}, exclusive("c", "r"), claim.KeepWaiting{}),
	})
	must(t, err)
	equal(t, "answers", len(outcome.Answers), 5)
	for i, id := range []string{"a", "b", "", "c", ""} {
		if a := outcome.Answers[i]; id != "" {
			must(t, a.Err)
			stored(t, e.Store, "answer to "+id, *a.Claim)
			equal(t, "id", a.Claim.ID, id)
		} else if a.Claim != nil {
			t.Errorf("answer %d is about %+v", i, a.Claim)
		}
	}
	if err := outcome.Answers[2].Err; !errors.Is(err, claim.ErrNotFound) {
		t.Errorf("renewing nothing: %v", err)
	}
	var changed []string
	for _, change := range outcome.Changes {
		changed = append(changed, change.After.ID)
	}
	equal(t, "changes", changed, []string{"a", "b", "c"})
	equal(t, "committed", outcome.Committed, true)
	equal(t, "time", outcome.Now.Wall, outcome.Answers[0].Claim.Created)
	outcome, err = db.Transact(t.Context(), e.Store, db.Batch{Requests: requests("", claim.Renew{ID: "none", TTL: 1})})
	must(t, err)
	equal(t, "committed, where all was refused", outcome.Committed, false)

	sharers := []claim.Command{exclusive("first", "s")}
	for i := range claim.MaxGrants + 1 {
		sharers = append(sharers, shared(fmt.Sprint("s", i), "s"))
	}
	outcome = doFor(t, e.Store, db.Batch{Requests: requests("", append(sharers, released("first"))...)})
	equal(t, "unsettled", outcome.Unsettled, []string{"s"})
	outcome = doFor(t, e.Store, db.Batch{Requests: requests("", claim.Expire{Resources: outcome.Unsettled})})
	equal(t, "unsettled at last", len(outcome.Unsettled), 0)
	count(t, e.Store, db.Census{Active: claim.MaxGrants + 2, Waiting: 2, Finished: 1})
}

// completion: a batch is committed when its Completion has ended, or when there is none.
func completion(t testing.TB, e Engine) {
	for _, id := range []string{"a", "b"} {
		outcome, commit, err := e.Store.Transact(t.Context(), db.Batch{Requests: requests("", exclusive(id, "r"))})
		must(t, err)
		if commit != nil {
			must(t, commit.Wait(t.Context()))
			select {
			case <-commit.Done():
			default:
				t.Error("a commit that was waited for has not ended")
			}
		}
		stored(t, e.Store, "committed", *outcome.Answers[0].Claim)
	}
}

// prepare: a command gets the same answer with and without Prepare.
func prepare(t testing.TB, e Engine) {
	Do(t, e.Store, exclusive("live", "r"), exclusive("old", "s"))
	Do(t, e.Store, released("old"))
	for _, id := range []string{"live", "old", "none"} {
		cmd := claim.Renew{ID: id, TTL: time.Minute}
		want := try(t, e.Store, 0, cmd)[0].err
		read, release := e.Store.Prepare(cmd)
		if read != nil {
			must(t, read(t.Context()))
		}
		got := try(t, e.Store, 0, cmd)[0].err
		if release != nil {
			release()
		}
		equal(t, "answer for "+id, fmt.Sprint(got), fmt.Sprint(want))
	}
}

func about(t testing.TB, e Engine) {
	about := e.Store.About()
	if about.Engine == "" || about.Version == "" || about.Failure != nil {
		t.Errorf("%+v", about)
	}
	select {
	case <-about.Broken:
		t.Error("the store is broken")
	default:
	}
}

// positions: if a claim is the last of its queue when its command is carried out, the answer has its position, however
// long the queue is; and no answer has a wrong one.
func positions(t testing.TB, e Engine) {
	const long = 40
	line := []claim.Command{exclusive("holder", "r")}
	for i := range long {
		line = append(line, exclusive(fmt.Sprint("w", i), "r"))
	}
	check := func(cmds []claim.Command, known, others map[string]int) {
		t.Helper()
		for _, a := range doFor(t, e.Store, db.Batch{Requests: requests("", cmds...)}).Answers {
			must(t, a.Err)
			other, may := others[a.Claim.ID]
			if want := known[a.Claim.ID]; a.Position != want && (!may || a.Position != other) {
				t.Errorf("%s is at position %d, want %d", a.Claim.ID, a.Position, want)
			}
		}
	}
	waiting := make(map[string]int)
	for i := range long {
		waiting[fmt.Sprint("w", i)] = i + 1
	}
	check(line, waiting, nil)
	check(line, nil, waiting)
	check([]claim.Command{exclusive("x", "r"), exclusive("y", "r"), exclusive("x", "r")}, map[string]int{"y": long + 2}, map[string]int{"x": long + 1})
	check([]claim.Command{withdrawn("y"), exclusive("z", "r"), withdrawn("w3")}, map[string]int{"z": long + 2}, nil)
	check([]claim.Command{released("holder"), exclusive("z", "r")}, nil, map[string]int{"z": long})
}

func unknownIDs(t testing.TB, e Engine) {
	Do(t, e.Store, exclusive("a", "r"))
	queues := load(t, e.Store, nil, []string{"a", "none", "A", "a "})
	if q := queues.QueueOf("a"); q == nil || q.Resource != "r" || q.Find("a") == nil {
		t.Errorf("the queue of a: %+v", q)
	}
	for _, id := range []string{"none", "A", "a "} {
		if q := queues.QueueOf(id); q != nil {
			t.Errorf("%q has a queue: %+v", id, q)
		}
	}
	if err := refuse(t, e.Store, claim.Renew{ID: "none", TTL: 1}); !errors.Is(err, claim.ErrNotFound) {
		t.Errorf("renewing nothing: %v", err)
	}
	if queues = load(t, e.Store, nil, nil); queues.Now.Wall == 0 {
		t.Error("loading nothing gives no time")
	}
	if _, _, _, err := e.Store.Get(t.Context(), "none", 0); !errors.Is(err, claim.ErrNotFound) {
		t.Errorf("getting nothing: %v", err)
	}
}

// repeatedNames loads everything twice. Names need not come sorted.
func repeatedNames(t testing.TB, e Engine) {
	Do(t, e.Store, exclusive("a", "r"), exclusive("b", "r"), shared("s", "q"))
	must(t, Update(t.Context(), e.Store, func(tx db.Tx) error {
		queues, err := tx.Load(db.Wanted{Resources: []string{"r", "q", "r", "new", "new"}, Claims: []string{"s", "b", "a", "b", "a"}})
		if err != nil {
			return err
		}
		r := queues.Resource("r")
		if r == nil || queues.QueueOf("a") != r || queues.QueueOf("b") != r || queues.QueueOf("s") != queues.Resource("q") {
			return errors.New("a resource has more than one queue")
		}
		for _, cmd := range []claim.Command{released("a"), released("b"), exclusive("n", "new")} {
			if _, err := queues.Do(cmd); err != nil {
				return err
			}
		}
		return tx.Save(queues)
	}))
	for id, want := range map[string]claim.Status{"a": claim.Released, "b": claim.Released, "n": claim.Active} {
		status(t, e.Store, id, want)
	}
}

// severalChangesOfOneClaim makes claims and changes them in the same transaction.
func severalChangesOfOneClaim(t testing.TB, e Engine) {
	answers := Do(t, e.Store,
		exclusive("a", "r"), claim.Renew{ID: "a", TTL: century},
		exclusive("b", "r"), released("a"),
		claim.Acquire{ID: "l", Resource: "of l", Owner: "o", TTL: time.Hour}, claim.Renew{ID: "l", TTL: time.Minute})
	for _, last := range []int{3, 5} {
		stored(t, e.Store, "the last change", answers[last])
	}
	equal(t, "TTL of a renewed and released claim", get(t, e.Store, "a").TTL, century)
	status(t, e.Store, "b", claim.Active)
	answers = Do(t, e.Store, claim.Renew{ID: "b", TTL: time.Minute}, claim.Renew{ID: "b", TTL: century}, claim.End{ID: "b", Reason: "enough"})
	stored(t, e.Store, "renewed twice and ended", answers[2])
}

// severalResourcesInOneCommand ends leases on three of four resources.
func severalResourcesInOneCommand(t testing.TB, e Engine) {
	names := []string{"one", "two", "three"}
	for _, name := range append(names, "four") {
		DoAt(t, e.Store, -2*time.Hour, exclusive("first of "+name, name), exclusive("next of "+name, name))
	}
	Do(t, e.Store, claim.Expire{Resources: append(names, "no such")})
	for _, name := range names {
		status(t, e.Store, "first of "+name, claim.Expired)
		status(t, e.Store, "next of "+name, claim.Active)
	}
	status(t, e.Store, "first of four", claim.Active)
}

func claimOfAnotherResource(t testing.TB, e Engine) {
	want := Do(t, e.Store, exclusive("a", "r"))[0]
	queues := load(t, e.Store, []string{"other"}, []string{"a"})
	if q := queues.QueueOf("a"); q == nil || q.Resource != "r" || queues.Resource("other") == q {
		t.Fatalf("the queue of a: %+v", q)
	}
	if err := refuse(t, e.Store, exclusive("a", "other")); !errors.Is(err, claim.ErrIDTaken) {
		t.Errorf("a claim with an id that is in use: %v", err)
	}
	same(t, "the claim", get(t, e.Store, "a"), want)
	equal(t, "row of the other resource", row(t, e.Store, "other").Version, 0)
	// A retry makes no second claim, even if the first has ended.
	Do(t, e.Store, released("a"))
	again := Do(t, e.Store, exclusive("a", "r"))[0]
	equal(t, "status on retry", again.Status, claim.Released)
}

// claimAndResourceTogether names a claim far back in the queue, and its resource.
func claimAndResourceTogether(t testing.TB, e Engine) {
	var cmds []claim.Command
	for i := range 40 {
		cmds = append(cmds, exclusive(fmt.Sprintf("w%02d", i), "r"))
	}
	Do(t, e.Store, cmds...)
	Do(t, e.Store, withdrawn("w30"), withdrawn("w01"), released("w00"), exclusive("last", "r"))
	status(t, e.Store, "w30", claim.Withdrawn)
	status(t, e.Store, "w02", claim.Active)
	equal(t, "waiting", row(t, e.Store, "r").Waiting, 37)
}

// claimBehindPrunedRow asks for a finished claim whose resource has no row any more.
func claimBehindPrunedRow(t testing.TB, e Engine) {
	Do(t, e.Store, exclusive("a", "r"), exclusive("b", "q"))
	want := Do(t, e.Store, released("a"))[0]
	pruneAllResources(t, e.Store)
	equal(t, "version of the pruned row", row(t, e.Store, "r").Version, 0)
	same(t, "released again", Do(t, e.Store, released("a"))[0], want)
	same(t, "created again", Do(t, e.Store, exclusive("a", "r"))[0], want)
	equal(t, "version of the pruned row", row(t, e.Store, "r").Version, 0)
	if c := Do(t, e.Store, exclusive("c", "r"))[0]; c.Token <= want.Version {
		t.Errorf("token %d after version %d", c.Token, want.Version)
	}
}

func manyResources(t testing.TB, e Engine) {
	const n = 512
	var acquire, release []claim.Command
	for i := range n {
		resource := fmt.Sprintf("resource %03d", i)
		acquire = append(acquire, claim.Acquire{ID: fmt.Sprintf("id %d", i), Resource: resource, Owner: resource, TTL: time.Hour, Value: resource})
		release = append(release, claim.Release{Resource: resource, Owner: resource})
	}
	claims := Do(t, e.Store, acquire...)
	count(t, e.Store, db.Census{Active: n})
	for _, c := range claims {
		stored(t, e.Store, c.Resource, c)
	}
	for _, c := range Do(t, e.Store, release...) {
		stored(t, e.Store, c.Resource, c)
	}
	count(t, e.Store, db.Census{Finished: n})
}

func timeOfTransaction(t testing.TB, e Engine) {
	for i := range 5 {
		before := now(t, e.Store)
		c := Do(t, e.Store, exclusive(fmt.Sprint(i), fmt.Sprint(i)))[0]
		after := now(t, e.Store)
		stored(t, e.Store, "claim", c)
		if c.Created < before.Wall || c.Created > after.Wall || c.Activated != c.Created {
			t.Errorf("created at %d, activated at %d, between %d and %d", c.Created, c.Activated, before.Wall, after.Wall)
		}
		if lease := c.Deadline.Add(-c.TTL); lease < before.Lease || lease > after.Lease {
			t.Errorf("lease from %d, between %d and %d", lease, before.Lease, after.Lease)
		}
		_, _, at, err := e.Store.Get(t.Context(), c.ID, 0)
		must(t, err)
		if _, later, err := e.Store.List(t.Context(), db.Filter{}); err != nil || at.Wall < after.Wall || later.Wall < at.Wall {
			t.Errorf("get at %d, list at %d, after %d (%v)", at.Wall, later.Wall, after.Wall, err)
		}
		time.Sleep(time.Millisecond) // real time: the clock is to move from one claim to the next
	}
}

func survivesReopen(t testing.TB, e Engine) {
	Do(t, e.Store, exclusive("a", "r"), exclusive("b", "r"), shared("s", "q"), exclusive("gone", "p"))
	Do(t, e.Store, released("gone"))
	before, rows := list(t, e.Store, db.Filter{}), load(t, e.Store, []string{"r", "q", "p"}, nil)
	s := e.Reopen(t)
	after := list(t, s, db.Filter{})
	equal(t, "claims", ids(after), ids(before))
	for i := range min(len(before), len(after)) {
		same(t, "after a restart", after[i], before[i])
	}
	for _, name := range []string{"r", "q", "p"} {
		equal(t, "row after a restart", row(t, s, name), rows.Resource(name).Stored())
	}
	Do(t, s, released("a"))
	status(t, s, "b", claim.Active)
}

// tokensRise takes a resource again and again. The first grant is from a clock that is
// ahead, so that time does not help.
func tokensRise(t testing.TB, e Engine) {
	s := e.Store
	last := DoAt(t, s, time.Hour, exclusive("0", "r"))[0].Token
	for i, between := range []func(){
		func() {},
		func() { s = e.Reopen(t) },
		func() { pruneAll(t, s) },
		func() { pruneAll(t, s); pruneAllResources(t, s) },
		func() { pruneAll(t, s); pruneAllResources(t, s); s = e.Reopen(t) },
		func() { pruneAllResources(t, s); pruneAllResources(t, s) },
		func() { s = e.Reopen(t); s = e.Reopen(t) },
	} {
		Do(t, s, released(fmt.Sprint(i)))
		between()
		c := Do(t, s, exclusive(fmt.Sprint(i+1), "r"))[0]
		if c.Status != claim.Active || c.Token <= last || get(t, s, c.ID).Token != c.Token {
			t.Fatalf("round %d: token %d (%s) after %d", i, c.Token, c.Status, last)
		}
		last = c.Token
	}
}

// cancelledWrites has a caller that has left.
func cancelledWrites(t testing.TB, e Engine) {
	finishedAgo(t, e.Store, "old", 2*time.Hour)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	long := now(t, e.Store).Wall.Add(soon)
	for name, write := range map[string]func() error{
		"Transact":       func() error { _, _, err := transact(ctx, e.Store, 0, exclusive("a", "r")); return err },
		"Beat":           func() error { return e.Store.Beat(ctx, false) },
		"Beat, resuming": func() error { return e.Store.Beat(ctx, true) },
		"Prune":          func() error { _, err := e.Store.Prune(ctx, long, 10); return err },
		"PruneResources": func() error { _, err := e.Store.PruneResources(ctx, "", long, 10); return err },
	} {
		if write() == nil {
			t.Errorf("%s was carried out", name)
		}
	}
	count(t, e.Store, db.Census{Finished: 1})
	status(t, e.Store, "old", claim.Released)
	Do(t, e.Store, exclusive("a", "r"))
}
