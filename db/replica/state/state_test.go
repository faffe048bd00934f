package state_test

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/db/codec"
	"github.com/locket-service/locket/db/dbtest"
	"github.com/locket-service/locket/db/replica/record"
	"github.com/locket-service/locket/db/replica/state"
	"github.com/locket-service/locket/internal/rules/access"
	"github.com/locket-service/locket/internal/rules/claim"
)

// world runs the same commands on a state, on another one by the records of the first, and on a naive store.
type world struct {
	*rapid.T
	state, follower *state.State
	naive           *naive
	now             claim.Instant
	sum             uint32
	ids             int
}

func newWorld(t *rapid.T) *world {
	return &world{T: t, state: state.New(), follower: state.New(), naive: newNaive(), now: claim.Instant{Wall: 1e15, Lease: 1e15}}
}

func (w *world) pick(what string, from ...string) string {
	return rapid.SampledFrom(from).Draw(w.T, what)
}

func (w *world) n(what string, n int) int { return rapid.IntRange(0, n-1).Draw(w.T, what) }

func (w *world) resource() string { return w.pick("resource", "r", "q", "p") }

func (w *world) session() string { return w.pick("session", "s1", "s2") }

func (w *world) newID() string {
	w.ids++
	return fmt.Sprintf("c%03d", w.ids*37%1000)
}

func (w *world) anyID() string { return fmt.Sprintf("c%03d", (1+w.n("claim", max(1, w.ids)))*37%1000) }

func (w *world) ttl() time.Duration {
	return time.Duration(1+w.n("TTL", 5)) * 10 * time.Second
}

func (w *world) command() claim.Command {
	switch w.n("command", 14) {
	case 0, 1, 2:
		return claim.Create{ID: w.newID(), Resource: w.resource(), Owner: w.pick("owner", "a", "b", ""), TTL: w.ttl(), Units: dbtest.EitherUnits(w.n("mode", 2)), Type: claim.Type(w.n("type", 3)), UserData: make([]byte, w.n("data", 2)*5000)}
	case 3:
		return claim.Create{ID: w.newID(), Resource: w.resource(), TTL: w.ttl(), WaitTTL: w.ttl(), Units: dbtest.EitherUnits(w.n("mode", 2))}
	case 4:
		return claim.Create{ID: w.newID(), Resource: w.resource(), Session: w.session(), Server: "here", Units: dbtest.EitherUnits(w.n("mode", 2))}
	case 5:
		return claim.Acquire{ID: w.newID(), Resource: w.resource(), Owner: w.pick("owner", "a", "b"), TTL: w.ttl(), Value: w.pick("value", "", "v"), Type: claim.Type(w.n("type", 3))}
	case 6:
		return claim.Release{Resource: w.resource(), Owner: w.pick("owner", "a", "b")}
	case 7:
		return claim.Renew{ID: w.anyID(), TTL: w.ttl()}
	case 8:
		return claim.End{ID: w.anyID(), Brief: w.n("brief", 2) == 0}
	case 9:
		return claim.KeepWaiting{IDs: []string{w.anyID(), w.anyID()}}
	case 10:
		return claim.Expire{Resources: []string{"r", "q"}, Waiters: []string{w.anyID()}}
	case 11:
		return claim.Attach{Session: claim.Session{ID: w.session(), Secret: []byte("s"), TTL: w.ttl()}, Server: "here"}
	case 12:
		return claim.Detach{ID: w.session(), Server: "here", Left: w.ttl()}
	default:
		return claim.EndSession{ID: w.session(), Keep: w.n("keep", 3) == 0, Active: claim.Status(w.n("end", 2)) * claim.Released, Waiting: claim.Withdrawn}
	}
}

// wanted returns the data that db.Execute loads for commands.
func wanted(cmds []claim.Command) (w db.Wanted) {
	stop := errors.New("enough")
	_, _ = db.Execute(catch{&w, stop}, cmds, nil)
	return w
}

type catch struct {
	wanted *db.Wanted
	stop   error
}

func (c catch) Load(w db.Wanted) (*claim.Queues, error) { *c.wanted = w; return nil, c.stop }
func (c catch) Save(*claim.Queues) error                { return c.stop }

// transact carries out commands on all three, and compares the answers.
func (w *world) transact() {
	w.now.Wall += claim.Time(w.n("wall", 20) * 1e6)
	w.now.Lease += claim.Time(w.n("lease", 20) * 1e6)
	cmds := make([]claim.Command, 1+w.n("commands", 6))
	for i := range cmds {
		cmds[i] = w.command()
	}
	want := wanted(cmds)
	qs := w.state.Load(w.now, want, w.finished)
	naive := w.naive.load(w.now, want)
	except := slices.Compact([]string{w.anyID(), w.anyID()})
	for _, identity := range []string{"", "cert:a"} {
		if got, want := w.state.Usage(identity, except), w.naive.usage(identity, except); got != want {
			w.Fatalf("%q has %+v without %q, want %+v", identity, got, except, want)
		}
	}
	for _, cmd := range cmds {
		caller := access.Caller{Identity: access.Identity{Name: w.pick("caller", "", "cert:a")}}
		got, err := qs.DoFor(caller, cmd)
		should, wrong := naive.DoFor(caller, cmd)
		if fmt.Sprint(err) != fmt.Sprint(wrong) || (got == nil) != (should == nil) {
			w.Fatalf("%#v: %v, want %v", cmd, err, wrong)
		}
		if got != nil && (got.ID != should.ID || got.Version != should.Version || got.Status != should.Status) {
			w.Fatalf("%#v: %+v, want %+v", cmd, got, should)
		}
	}
	w.naive.save(naive)
	w.apply(&record.Record{
		Header: record.Header{Wall: w.now.Wall, Lease: w.now.Lease}, Claims: record.Merge(qs.Transitions()), Sessions: qs.ChangedSessions(),
	})
}

func (w *world) finished(id string) *claim.Claim {
	if c := w.naive.claims[id]; c != nil && c.Status.Final() {
		return c
	}
	return nil
}

// apply applies a record to the state directly, and to the other one after encoding and decoding.
func (w *world) apply(r *record.Record) {
	buf, sum := record.Append(nil, w.sum, r)
	w.sum = sum
	changes, err := w.state.Apply(r)
	if err != nil {
		w.Fatal(err)
	}
	d, err := record.Read(buf)
	if err != nil {
		w.Fatal(err)
	}
	read, err := w.follower.ApplyDecoded(d)
	if err != nil {
		w.Fatal(err)
	}
	for i, change := range changes {
		w.same(read[i].Before, change.Before)
		w.same(read[i].After, change.After)
	}
}

func live(c *claim.Claim) bool { return c.Status.Live() }

// oldestWaiting asks for some resources after the other.
func oldestWaiting(s *state.State, limit int) (oldest claim.Time) {
	for after, more := "", true; more; {
		var first claim.Time
		if first, after, more = s.OldestWaiting(after, limit); oldest == 0 || first != 0 && first < oldest {
			oldest = first
		}
	}
	return oldest
}

// compare asks a state and the naive store everything.
func (w *world) compare(s *state.State) {
	for id, c := range w.naive.claims {
		if got := s.Get(id); live(c) && !reflect.DeepEqual(got, c) && !c.Brief || !live(c) && got != nil {
			w.Fatalf("claim %+v, want %+v", got, c)
		}
	}
	count := func(pass func(*claim.Claim) bool) int { return len(w.naive.which(pass)) }
	waits := func(c *claim.Claim) bool { return c.Status == claim.Waiting }
	active := func(c *claim.Claim) bool { return c.Status == claim.Active }
	w.equal("count", s.Count(), claim.Count{Active: count(active), Waiting: count(waits)})
	for _, limit := range []int{1, 2, 100} {
		w.equal("oldest waiting", oldestWaiting(s, limit), w.naive.oldestWaiting())
	}
	for _, name := range []string{"r", "q", "p", "none"} {
		w.compareQueue(s, name)
	}
	for _, idle := range []time.Duration{0, 15 * time.Second, time.Hour} {
		names := s.Due(w.now.Lease, idle, 100)
		slices.Sort(names)
		w.equal("due", names, w.naive.due(w.now.Lease, idle))
		w.equal("next due", s.NextDue(w.now.Lease, idle, ""), w.naive.nextDue(w.now.Lease, idle))
	}
	abandoned := w.naive.which(func(c *claim.Claim) bool { return waits(c) && c.Deadline != 0 && c.Deadline <= w.now.Lease })
	slices.SortFunc(abandoned, func(a, b *claim.Claim) int {
		return cmp.Or(cmp.Compare(a.Deadline, b.Deadline), cmp.Compare(a.ID, b.ID))
	})
	w.equal("abandoned", s.Abandoned(w.now.Lease, 100), idsOf(abandoned))
	for kind := range claim.Type(3) {
		w.equal("held", values(s.Held(kind, db.Page{})), sorted(w.naive.which(func(c *claim.Claim) bool { return active(c) && c.Type == kind })))
	}
	w.equal("live", values(s.Live(nil, db.Page{})), sorted(w.naive.which(live)))
	var created []string
	s.Created().Scan(false, nil, func(c *claim.Claim, _ state.Kept) bool { created = append(created, c.ID); return true })
	all := w.naive.which(live)
	slices.SortStableFunc(all, func(a, b *claim.Claim) int {
		return cmp.Or(cmp.Compare(a.Created, b.Created), cmp.Compare(a.ID, b.ID))
	})
	w.equal("in the order of creation", created, idsOf(all))
	for _, owner := range []claim.OwnerKey{{Owner: "a"}, {Owner: ""}, {Session: "s1"}, {Session: "s2"}} {
		got := values(s.WaitsOf([]claim.OwnerKey{owner}, 100))
		slices.Sort(got)
		w.equal(fmt.Sprint("waits of ", owner), got, sorted(w.naive.which(func(c *claim.Claim) bool {
			return waits(c) && c.OwnerKey() == owner && owner != claim.OwnerKey{}
		})))
	}
	w.compareSessions(s)
}

func (w *world) compareQueue(s *state.State, name string) {
	in := func(status claim.Status) []*claim.Claim {
		return w.naive.which(func(c *claim.Claim) bool { return c.Resource == name && c.Status == status })
	}
	row := w.naive.rows[name]
	row.Resource = name
	q := s.Queue(name, 100)
	w.equal("row", q.Row, row)
	w.equal("holders", values(q.Holders), idsOf(in(claim.Active)))
	w.equal("waiters", values(q.Waiters), idsOf(in(claim.Waiting)))
	w.equal("ahead", s.Ahead(name, math.MaxInt64, 100), len(in(claim.Waiting)))
	var first *claim.Claim
	if holders := in(claim.Active); len(holders) > 0 {
		first = s.Get(holders[0].ID)
	}
	w.equal("holder", s.Holder(name), first)
	w.equal("live claims of a resource", values(s.Live(&name, db.Page{})), sorted(append(in(claim.Active), in(claim.Waiting)...)))
}

func (w *world) compareSessions(s *state.State) {
	var attached []string
	var due []string
	for _, id := range []string{"s1", "s2", "none"} {
		known := w.naive.sessions[id]
		w.equal("session", s.Session(id), known)
		if known != nil && known.Server == "here" {
			attached = append(attached, id)
		}
		if known != nil && known.Deadline != 0 && known.Deadline <= w.now.Lease {
			due = append(due, id)
		}
		if known != nil {
			w.equal("claims of "+id, values(s.SessionClaims(id)), idsOf(w.naive.which(func(c *claim.Claim) bool { return live(c) && c.Session == id })))
		}
	}
	here := s.AttachedTo("here")
	slices.Sort(here)
	w.equal("attached", here, attached)
	got := s.DueSessions(w.now.Lease, 100)
	slices.Sort(got)
	w.equal("due sessions", got, due)
}

func (w *world) equal(what string, got, want any) {
	if !reflect.DeepEqual(got, want) {
		w.Fatalf("%s: got %v, want %v", what, got, want)
	}
}

// same compares two claims field by field.
func (w *world) same(got, want *claim.Claim) {
	if got == nil || want == nil {
		w.equal("claim", got, want)
		return
	}
	g, v := reflect.ValueOf(*got), reflect.ValueOf(*want)
	for i := range g.NumField() {
		if a, b := g.Field(i).Interface(), v.Field(i).Interface(); !reflect.DeepEqual(a, b) {
			w.Fatalf("%s of %s: got %.100v, want %.100v", g.Type().Field(i).Name, got.ID, a, b)
		}
	}
}

func idsOf(claims []*claim.Claim) (ids []string) {
	for _, c := range claims {
		ids = append(ids, c.ID)
	}
	return ids
}

func sorted(claims []*claim.Claim) []string { ids := idsOf(claims); slices.Sort(ids); return ids }

func values(claims []claim.Claim) (ids []string) {
	for _, c := range claims {
		ids = append(ids, c.ID)
	}
	return ids
}

// TestLikeNaive: the state answers like a store that looks through everything, and its dump restores it.
func TestLikeNaive(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t)
		for range 1 + w.n("transactions", 25) {
			w.transact()
			w.compare(w.state)
		}
		w.compare(w.follower)
		again := state.New()
		buf, _ := record.Append(nil, 0, w.state.Dump())
		d, err := record.Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		if err := again.Restore(func(apply func(*record.Decoded) error) error { return apply(d) }); err != nil {
			t.Fatal(err)
		}
		w.compare(again)
		for name, other := range map[string]*state.State{"by records": w.follower, "by its dump": again} {
			if got, _ := record.Append(nil, 0, other.Dump()); string(got) != string(buf) {
				t.Errorf("the state %s differs", name)
			}
			if differ := other.Sums().Differences(w.state.Sums()); differ != "" {
				t.Errorf("the sums of the state %s differ in: %s", name, differ)
			}
			for _, id := range []string{"s1", "s2"} {
				w.equal("order in which the claims of "+id+" end", endedOf(other, w.now, id), endedOf(w.state, w.now, id))
			}
		}
		w.prune(again)
	})
}

// endedOf returns the claims that change when a session ends, in order.
func endedOf(s *state.State, now claim.Instant, session string) (ids []string) {
	end := claim.EndSession{ID: session, Active: claim.Released, Waiting: claim.Withdrawn}
	qs := s.Load(now, wanted([]claim.Command{end}), func(string) *claim.Claim { return nil })
	_, _ = qs.Do(end)
	for _, t := range qs.Transitions() {
		ids = append(ids, t.After.ID)
	}
	return ids
}

// prune drops rows, which leaves the floor.
func (w *world) prune(s *state.State) {
	unused, next := s.Unused("", math.MaxInt64, 100)
	w.equal("where to go on", next, "")
	if _, err := s.Apply(&record.Record{Rows: unused}); err != nil {
		w.Fatal(err)
	}
	var floor uint64
	for name, row := range w.naive.rows {
		if row.Holder == "" && row.Shared+row.Waiting == 0 {
			floor = max(floor, row.Version)
			w.equal("dropped row", s.Queue(name, 1).Row, claim.Row{Resource: name})
		}
	}
	w.equal("floor", s.Dump().Floor, floor)
}

// TestLoadWithoutRoom: what it costs to load a session for whose claims a transaction has no room does not depend on how many these are.
func TestLoadWithoutRoom(t *testing.T) {
	cost := func(claims int) float64 {
		s, r := state.New(), new(record.Record)
		for id, n := range map[string]int{"a": claim.MaxEnds, "b": claims} {
			r.Sessions = append(r.Sessions, claim.SessionChange{After: &claim.Session{ID: id, TTL: time.Hour}})
			for i := range n {
				name := fmt.Sprint(id, i)
				r.Claims = append(r.Claims, claim.Transition{After: &claim.Claim{ID: name, Resource: name, Session: id, Status: claim.Active, Deadline: claim.Forever}})
			}
		}
		if _, err := s.Apply(r); err != nil {
			t.Fatal(err)
		}
		both := []string{"a", "b"}
		return testing.AllocsPerRun(10, func() { s.Load(claim.Instant{}, db.Wanted{Sessions: both, Ending: both}, nil) })
	}
	if few, many := cost(1), cost(claim.MaxSessionClaims); many > few+5 {
		t.Errorf("with a claim %v allocations, and with %d %v", few, claim.MaxSessionClaims, many)
	}
}

// TestDiverged: a record of another history is refused.
func TestDiverged(t *testing.T) {
	c := &claim.Claim{ID: "a", Resource: "r", Status: claim.Active}
	for name, d := range map[string]*record.Decoded{
		"an unknown claim":       {Claims: []codec.Patch{{From: claim.Active, Claim: *c}}},
		"an unknown session":     {Sessions: []record.Session{{ID: "s", Version: 1}}},
		"a claim that has ended": {Claims: []codec.Patch{{Fields: codec.Made, Claim: claim.Claim{ID: "b", Status: claim.Released}}}},
	} {
		if _, err := state.New().ApplyDecoded(d); !errors.Is(err, state.ErrDiverged) {
			t.Errorf("%s: %v", name, err)
		}
	}
	s := state.New()
	for i, want := range []error{nil, state.ErrDiverged} {
		if _, err := s.Apply(&record.Record{Claims: []claim.Transition{{After: c}}}); !errors.Is(err, want) {
			t.Errorf("made for the time %d: %v", i+1, err)
		}
	}
}

// TestRestoreDiverged: a record of a snapshot that changes or drops something is refused.
func TestRestoreDiverged(t *testing.T) {
	for name, d := range map[string]*record.Decoded{
		"a claim that is changed":   {Claims: []codec.Patch{{From: claim.Active, Claim: claim.Claim{ID: "a", Resource: "r", Status: claim.Active}}}},
		"a session that is unknown": {Sessions: []record.Session{{ID: "s", Version: 1}}},
		"a row that is dropped":     {Rows: []record.Row{{Name: "r", Version: 1, Dropped: true}}},
	} {
		if err := state.New().Restore(func(apply func(*record.Decoded) error) error { return apply(d) }); !errors.Is(err, state.ErrDiverged) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
