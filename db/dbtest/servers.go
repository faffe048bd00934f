package dbtest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/rules/claim"
)

var serverCases = []Case{
	{Name: "SeenAtOnce", Run: seenAtOnce, Servers: true},
	{Name: "Changes", Run: changes},
	{Name: "ChangesOfAll", Run: changesOfAll},
	{Name: "ChangesOfOthers", Run: changesOfOthers, Servers: true},
	{Name: "ServersContend", Run: serversContend, Servers: true},
	{Name: "SameNewResource", Run: sameNewResource, Servers: true},
	{Name: "SameID", Run: sameID, Servers: true},
	{Name: "FloorOfOthers", Run: floorOfOthers, Servers: true},
	{Name: "BeatOfOthers", Run: beatOfOthers, Servers: true},
	{Name: "Members", Run: members},
	{Name: "MembersOfAll", Run: membersOfAll, Servers: true},
}

func seenAtOnce(t testing.TB, e Engine) {
	a, b := e.Store, e.Second(t)
	for i := range 20 {
		id, resource := fmt.Sprint(i), fmt.Sprint("r", i)
		c := Do(t, a, exclusive(id, resource), exclusive("next "+id, resource))[0]
		stored(t, a, "by this server", c)
		stored(t, b, "by the other server", c)
		holderIs(t, b, resource, id)
		queueIs(t, b, resource, []string{id}, []string{"next " + id})
		equal(t, "listed", len(list(t, b, db.Filter{Resource: &resource})), 2)
		stored(t, a, "ended by the other server", Do(t, b, released(id))[0])
		holderIs(t, a, resource, "next "+id)
		count(t, a, db.Census{Active: int64(i + 1), Finished: int64(i + 1)})
		a, b = b, a
	}
}

// changes has one server, which hears of its own changes only on request.
func changes(t testing.TB, e Engine) {
	position := end(t, e.Store)
	for range 3 {
		Do(t, e.Store, exclusive("a", "r"), exclusive("b", "r"))
		Do(t, e.Store, released("a"), withdrawn("b"))
		heard, err := e.Store.Changes(t.Context(), position, false)
		must(t, err)
		for _, c := range heard {
			equal(t, "heard of own changes", len(c.Changes), 0)
		}
	}
}

func end(t testing.TB, s db.Store) db.Position {
	t.Helper()
	before := now(t, s)
	position, at, err := s.End(t.Context(), true)
	must(t, err)
	if after := now(t, s); at < before.Wall || at > after.Wall {
		t.Errorf("the feed was read at %d, between %d and %d", at, before.Wall, after.Wall)
	}
	return position
}

// changesOfAll reads a server's own changes, from any position.
func changesOfAll(t testing.TB, e Engine) {
	start := end(t, e.Store)
	h := listener{t: t, s: e.Store, own: true, position: maps.Clone(start)}
	Do(t, e.Store, exclusive("a", "r"), shared("b", "r"))
	h.hears("a: 0-2", "b: 0-1")
	middle := maps.Clone(h.position)
	Do(t, e.Store, released("a"), claim.Renew{ID: "b", TTL: time.Minute})
	h.hears("a: 2-3", "b: 1-2")
	Do(t, e.Store, claim.Renew{ID: "b", TTL: time.Minute})
	Do(t, e.Store, claim.SetStatus{ID: "b", Status: claim.Revoked, Reason: "enough"})
	h.hears("b: 2-7")
	h.position = middle
	h.hears("a: 2-3", "b: 1-2", "b: 2-7")
	h.position = start
	for _, c := range h.hears("a: 0-2", "b: 0-1", "a: 2-3", "b: 1-2", "b: 2-7") {
		want := get(t, e.Store, c.After.ID)
		if c.After.Version == want.Version {
			same(t, "claim in the feed", *c.After, want)
		}
	}
	equal(t, "end", end(t, e.Store), h.position)
	equal(t, "its own changes", h.ours, 2+2+1+3+5)
}

// listener reads the feed of a server.
type listener struct {
	t        testing.TB
	s        db.Store
	own      bool
	position db.Position
	ours     int // how many changes the server calls its own
}

// more returns the changes after the position that was reached last.
func (l *listener) more() (changes []claim.Transition) {
	l.t.Helper()
	commits, err := l.s.Changes(l.t.Context(), l.position, l.own)
	must(l.t, err)
	for _, c := range commits {
		must(l.t, l.position.Follow(c))
		changes = append(changes, c.Changes...)
		l.ours += len(c.Changes) - len(c.Others)
	}
	return changes
}

// hears waits for exactly these changes, each given as "id: status-status".
func (l *listener) hears(want ...string) (heard []claim.Transition) {
	l.t.Helper()
	var got []string
	for range 6000 {
		more := l.more()
		heard = append(heard, more...)
		for _, c := range more {
			var before claim.Status
			if c.Before != nil {
				before = c.Before.Status
			}
			got = append(got, fmt.Sprintf("%s: %d-%d", c.After.ID, before, c.After.Status))
		}
		if len(got) >= len(want) {
			break
		}
		time.Sleep(5 * time.Millisecond) // real time: it waits for a condition
	}
	equal(l.t, "heard", got, want)
	return heard
}

func changesOfOthers(t testing.TB, e Engine) {
	a := e.Store
	all := listener{t: t, s: a, own: true, position: end(t, a)}
	Do(t, a, exclusive("old-holder", "old"), exclusive("old", "old"))
	b := e.Second(t)
	listen := func(s db.Store) *listener { return &listener{t: t, s: s, position: end(t, s)} }
	atA, atB := listen(a), listen(b)
	Do(t, a, exclusive("h", "r"), exclusive("w1", "r"), shared("w2", "r"), shared("w3", "r"), exclusive("w4", "r"), exclusive("w5", "r"))
	Do(t, b, exclusive("own-h", "own"), exclusive("own", "own"))
	Do(t, b, released("own-h"))
	Do(t, a, claim.Renew{ID: "h", TTL: time.Minute})
	Do(t, a, released("h"))
	Do(t, a, withdrawn("w5"))
	atB.hears("h: 0-2", "w1: 0-1", "w2: 0-1", "w3: 0-1", "w4: 0-1", "w5: 0-1", "h: 2-3", "w1: 1-2", "w5: 1-6")
	atA.hears("own-h: 0-2", "own: 0-1", "own-h: 2-3", "own: 1-2")
	Do(t, b, released("w1"))
	Do(t, b, claim.SetStatus{ID: "w4", Status: claim.Revoked})
	atA.hears("w1: 2-3", "w2: 1-2", "w3: 1-2", "w4: 1-7")
	Do(t, a, released("old-holder"))
	atB.hears("old-holder: 2-3", "old: 1-2")
	for name, l := range map[string]*listener{"a": atA, "b": atB} {
		equal(t, name+" heard besides", len(l.more()), 0)
	}
	equal(t, "changes of both from the begin", len(all.more()), 21)
	equal(t, "its own changes", all.ours, 13)
}

// holderCheck watches who holds what, from outside.
type holderCheck struct {
	mu     sync.Mutex
	holder map[string]string
	token  map[string]uint64
	faults []error
}

func (r *holderCheck) fault(format string, args ...any) {
	r.faults = append(r.faults, fmt.Errorf(format, args...))
}

func (r *holderCheck) took(c claim.Claim) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if other := r.holder[c.Resource]; other != "" {
		r.fault("%s was granted to %s while %s held it", c.Resource, c.ID, other)
	}
	if c.Token <= r.token[c.Resource] {
		r.fault("%s: token %d after %d", c.Resource, c.Token, r.token[c.Resource])
	}
	r.holder[c.Resource], r.token[c.Resource] = c.ID, c.Token
}

func (r *holderCheck) gives(c claim.Claim) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.holder[c.Resource] != c.ID {
		r.fault("%s gave %s back, but %s holds it", c.ID, c.Resource, r.holder[c.Resource])
	}
	delete(r.holder, c.Resource)
}

// over reports that enough faults were found to stop.
func (r *holderCheck) over() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.faults) > 10
}

func (r *holderCheck) check(err error) {
	if err != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.fault("%w", err)
	}
}

const contended = 5 // resources

// contend takes what it can get of the resources, gives it back, and now and then puts
// claims into their lines and takes them out again.
func (r *holderCheck) contend(ctx context.Context, s db.Store, owner string, rounds int) {
	for round := range rounds {
		if r.over() {
			return
		}
		var take, give []claim.Command
		for i := range contended {
			// Another order each time: engines must not depend on it.
			resource := fmt.Sprint("r", (i+round)%contended)
			take = append(take, claim.Acquire{ID: fmt.Sprint(owner, "-", round, "-", i), Resource: resource, Owner: owner, TTL: time.Hour})
		}
		answers, _, err := transact(ctx, s, 0, take...)
		r.check(err)
		for _, a := range answers {
			if a.err == nil {
				r.took(a.claim)
				give = append(give, claim.Release{Resource: a.claim.Resource, Owner: owner, Token: a.claim.Token})
			}
		}
		for _, a := range answers {
			if a.err == nil {
				r.gives(a.claim)
			}
		}
		answers, _, err = transact(ctx, s, 0, give...)
		r.check(err)
		for _, a := range answers {
			r.check(a.err)
		}
		if round%10 == 0 {
			r.queueUp(ctx, s, fmt.Sprint(owner, "+", round))
		}
	}
}

func (r *holderCheck) queueUp(ctx context.Context, s db.Store, id string) {
	var join, leave []claim.Command
	for i := range contended {
		each := fmt.Sprint(id, "-", i)
		join = append(join, shared(each, fmt.Sprint("r", i)))
		leave = append(leave, withdrawn(each))
	}
	for _, cmds := range [][]claim.Command{join, leave} {
		answers, _, err := transact(ctx, s, 0, cmds...)
		r.check(err)
		for _, a := range answers {
			r.check(a.err)
		}
	}
}

// servers returns n servers on the database.
func servers(t testing.TB, e Engine, n int) []db.Store {
	t.Helper()
	stores := []db.Store{e.Store}
	for len(stores) < n {
		stores = append(stores, e.Second(t))
	}
	return stores
}

func serversContend(t testing.TB, e Engine) {
	r := &holderCheck{holder: map[string]string{}, token: map[string]uint64{}}
	var group sync.WaitGroup
	for i, s := range servers(t, e, 4) {
		group.Go(func() { r.contend(t.Context(), s, fmt.Sprint("owner", i), 100) })
	}
	group.Wait()
	for _, err := range r.faults[:min(10, len(r.faults))] {
		t.Error(err)
	}
	n := census(t, e.Store, 0)
	if n.Active != 0 || n.Waiting != 0 || n.Finished < 100 {
		t.Errorf("counts at last: %+v", n)
	}
	for i := range contended {
		resource := fmt.Sprint("r", i)
		got := row(t, e.Store, resource)
		equal(t, "row at last", got, claim.Row{Resource: resource, Version: got.Version})
		for _, c := range list(t, e.Store, db.Filter{Resource: &resource}) {
			if c.Version > got.Version {
				t.Errorf("%s has version %d, its resource %d", c.ID, c.Version, got.Version)
			}
		}
	}
}

// together runs the same function on each server at once, and returns the answers.
func together(t testing.TB, stores []db.Store, cmd func(i int) claim.Command) []answer {
	t.Helper()
	answers, errs := make([]answer, len(stores)), make([]error, len(stores))
	var group sync.WaitGroup
	start := make(chan struct{})
	for i, s := range stores {
		group.Go(func() {
			<-start
			got, _, err := transact(t.Context(), s, 0, cmd(i))
			if errs[i] = err; err == nil {
				answers[i] = got[0]
			}
		})
	}
	close(start)
	group.Wait()
	must(t, errors.Join(errs...))
	return answers
}

func sameNewResource(t testing.TB, e Engine) {
	stores := servers(t, e, 4)
	for round := range 25 {
		resource := fmt.Sprint("new ", round)
		answers := together(t, stores, func(i int) claim.Command {
			return claim.Acquire{ID: fmt.Sprint(round, "-", i), Resource: resource, Owner: fmt.Sprint(i), TTL: time.Hour}
		})
		won := 0
		for _, a := range answers {
			var collision *claim.CollisionError
			switch {
			case a.err == nil:
				won++
				holderIs(t, e.Store, resource, a.claim.ID)
			case !errors.As(a.err, &collision):
				t.Error(a.err)
			}
		}
		equal(t, "locks granted", won, 1)
	}
	count(t, e.Store, db.Census{Active: 25})
}

// sameID sends the same request to all servers, and then requests for different
// resources with the same id.
func sameID(t testing.TB, e Engine) {
	stores := servers(t, e, 4)
	for round := range 8 {
		id := fmt.Sprint("same ", round)
		answers := together(t, stores, func(int) claim.Command { return exclusive(id, id) })
		for _, a := range answers {
			must(t, a.err)
			stored(t, e.Store, "made together", a.claim)
		}
		equal(t, "claims made", len(list(t, e.Store, db.Filter{Resource: &id})), 1)

		id = fmt.Sprint("apart ", round)
		answers = together(t, stores, func(i int) claim.Command { return exclusive(id, fmt.Sprint(id, " ", i)) })
		made := 0
		for _, a := range answers {
			switch {
			case a.err == nil:
				made++
				stored(t, e.Store, "made apart", a.claim)
			case !errors.Is(a.err, claim.ErrIDTaken):
				t.Error(a.err)
			}
		}
		equal(t, "claims made with one id", made, 1)
	}
	count(t, e.Store, db.Census{Active: 2 * 8})
}

// floorOfOthers prunes a row on one server that the other has made, and makes it there again.
func floorOfOthers(t testing.TB, e Engine) {
	a, b := e.Store, e.Second(t)
	last := DoAt(t, a, 48*time.Hour, exclusive("0", "r"))[0].Token
	for i := range 4 {
		last = max(last, Do(t, a, released(fmt.Sprint(i)))[0].Version)
		pruneAllResources(t, a)
		if c := Do(t, b, exclusive(fmt.Sprint(i+1), "r"))[0]; c.Token <= last {
			t.Fatalf("token %d after version %d", c.Token, last)
		}
		a, b = b, a
	}
}

// beatOfOthers leaves all beats to the other server. The clock of the leases is one.
func beatOfOthers(t testing.TB, e Engine) {
	a, b := e.Store, e.Second(t)
	must(t, b.Beat(t.Context(), false))
	until := now(t, a).Lease.Add(3 * db.MaxSilence)
	beats(t, b, until)
	at, other := readClocks(t, a), readClocks(t, b)
	if at.Lease < until {
		t.Errorf("lease time is %s behind the beating server's", until.Sub(at.Lease))
	}
	moved(t, "the lease clock of one server, against the other's,", other.Lease.Sub(at.Lease), -precision, other.end.Sub(at.begin)+precision)
	time.Sleep(2 * db.MaxSilence) // real time: no beat comes for as long
	beaten := time.Now()
	must(t, b.Beat(t.Context(), false))
	after := readClocks(t, a)
	moved(t, "lease time over an outage", after.Lease.Sub(at.Lease), 0, db.MaxSilence+after.end.Sub(beaten)+precision)
}

// membersAre fails the test unless these servers are known, and returns them.
func membersAre(t testing.TB, s db.Store, want ...db.Member) []db.Member {
	t.Helper()
	got, now, err := s.Members(t.Context())
	must(t, err)
	for i := range got {
		if got[i].Seen == 0 || now.Wall.Sub(got[i].Seen) < 0 || now.Wall.Sub(got[i].Seen) > time.Minute {
			t.Errorf("%s was seen at %d, and it is %d", got[i].Name, got[i].Seen, now.Wall)
		}
		if i < len(want) {
			want[i].Seen = got[i].Seen
		}
	}
	equal(t, "members", got, want)
	return got
}

// members has a server announce itself again and again, and withdraw.
func members(t testing.TB, e Engine) {
	membersAre(t, e.Store)
	a := db.Member{Name: "a", Host: "é", Version: "v2 (modified)", Started: claim.Time(1) << 50}
	must(t, e.Store.Announce(t.Context(), a, false))
	first := membersAre(t, e.Store, a)
	time.Sleep(2 * time.Millisecond) // real time: a clock is to go on
	must(t, e.Store.Announce(t.Context(), a, false))
	if again := membersAre(t, e.Store, a); again[0].Seen <= first[0].Seen {
		t.Errorf("seen at first %v, and then %v", first, again)
	}
	for range 2 {
		must(t, e.Store.Announce(t.Context(), db.Member{Name: "a"}, true))
		membersAre(t, e.Store)
	}
}

// membersOfAll has servers see each other.
func membersOfAll(t testing.TB, e Engine) {
	other := e.Second(t)
	a, b := db.Member{Name: "a", Host: "h", Version: "v1", Started: 5}, db.Member{Name: "b", Started: 2}
	must(t, other.Announce(t.Context(), b, false))
	must(t, e.Store.Announce(t.Context(), a, false))
	first := membersAre(t, e.Store, a, b)
	membersAre(t, other, a, b)
	time.Sleep(2 * time.Millisecond) // real time: a clock is to go on
	must(t, e.Store.Announce(t.Context(), a, false))
	if again := membersAre(t, e.Store, a, b); again[1].Seen != first[1].Seen {
		t.Errorf("b is seen at first at %v, and then at %v", first[1].Seen, again[1].Seen)
	}
	must(t, other.Announce(t.Context(), b, true))
	membersAre(t, e.Store, a)
}
