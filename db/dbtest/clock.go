package dbtest

import (
	"slices"
	"testing"
	"time"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/rules/claim"
)

var clockCases = []Case{
	{Name: "NowMoves", Run: nowMoves},
	{Name: "LeaseClockStands", Run: leaseClockStands, Clock: true},
	{Name: "LeaseClockGoesOn", Run: leaseClockGoesOn, Clock: true},
	{Name: "LateBeat", Run: lateBeat, Clock: true},
	{Name: "TimeAway", Run: timeAway, Clock: true},
	{Name: "ShortOutage", Run: shortOutage, Clock: true},
	{Name: "ClockSteps", Run: clockSteps, Clock: true},
}

// The cases about time compare the store's clocks with this machine's. How long something took is measured, so
// that they hold on a machine of any speed.

// precision is by how much the clocks of a store and of this machine may differ over one case.
const precision = 5 * time.Millisecond

// reading is a reading of a store's clocks, between two times of this machine's clock.
type reading struct {
	claim.Instant
	begin, end time.Time
}

func readClocks(t testing.TB, s db.Store) reading {
	t.Helper()
	r := reading{begin: time.Now()}
	r.Instant = now(t, s)
	r.end = time.Now()
	return r
}

// until returns between which limits the time lies that has passed from one reading to a later one.
func (r reading) until(later reading) (least, most time.Duration) {
	return later.begin.Sub(r.end) - precision, later.end.Sub(r.begin) + precision
}

// moved checks by how much a clock has moved.
func moved(t testing.TB, what string, d, least, most time.Duration) {
	t.Helper()
	if d < least || d > most {
		t.Errorf("%s moved by %s, want %s to %s", what, d, least, most)
	}
}

// wallMoved checks that the clock of the wall has moved as time has passed.
func wallMoved(t testing.TB, from, to reading) {
	t.Helper()
	least, most := from.until(to)
	moved(t, "the clock", to.Wall.Sub(from.Wall), least, most)
}

// leaseRuns checks that lease time passes after a beat, as time does.
func leaseRuns(t testing.TB, s db.Store) {
	t.Helper()
	for range 1000 {
		beaten := time.Now()
		must(t, s.Beat(t.Context(), false))
		from := readClocks(t, s)
		time.Sleep(50 * time.Millisecond) // real time: the clocks are to move
		to := readClocks(t, s)
		if to.end.Sub(beaten) < db.MaxSilence { // the next beat was not due yet
			least, most := from.until(to)
			moved(t, "lease time", to.Lease.Sub(from.Lease), least, most)
			return
		}
	}
	t.Error("this machine is too slow for beats")
}

func nowMoves(t testing.TB, e Engine) {
	before := readClocks(t, e.Store)
	time.Sleep(50 * time.Millisecond) // real time: the clocks are to move
	after := readClocks(t, e.Store)
	wallMoved(t, before, after)
	if d := after.end.Sub(after.Wall.Std()).Abs(); d > time.Minute {
		t.Errorf("the database's clock is off by %s", d)
	}
	leaseRuns(t, e.Store)
}

// leaseClockStands has no beats for longer than MaxSilence.
func leaseClockStands(t testing.TB, e Engine) {
	cmd := exclusive("a", "r")
	cmd.TTL = db.MaxSilence + db.MaxSilence/2
	must(t, e.Store.Beat(t.Context(), false))
	deadline := Do(t, e.Store, cmd)[0].Deadline
	before := readClocks(t, e.Store)
	time.Sleep(2 * db.MaxSilence) // real time: no beat comes for as long
	after := readClocks(t, e.Store)
	moved(t, "lease time without a beat", after.Lease.Sub(before.Lease), 0, db.MaxSilence)
	wallMoved(t, before, after)
	beaten := time.Now()
	must(t, e.Store.Beat(t.Context(), false))
	due := dueNames(t, e.Store, 0, 10)
	at := readClocks(t, e.Store)
	if len(due) > 0 && at.Lease < deadline {
		t.Error("a lease ran out while no server was there")
	}
	moved(t, "lease time over an outage", at.Lease.Sub(before.Lease), 0, db.MaxSilence+at.end.Sub(beaten)+precision)
	equal(t, "deadline", get(t, e.Store, "a").Deadline, deadline)
	leaseRuns(t, e.Store)
}

// beats lets a server beat until lease time has reached a moment. From one beat to the next it passes as time does,
// and by MaxSilence at most.
func beats(t testing.TB, s db.Store, until claim.Time) {
	t.Helper()
	var began, ended time.Time // of the last beat
	beat := func() (sinceLast time.Duration) {
		begin, last := time.Now(), ended
		must(t, s.Beat(t.Context(), false))
		began, ended = begin, time.Now()
		return begin.Sub(last)
	}
	beat()
	from := readClocks(t, s)
	least := began.Sub(from.end) - precision
	for at := from; at.Lease < until; {
		time.Sleep(db.BeatInterval / 2) // real time: between two beats
		least += min(beat(), db.MaxSilence)
		at = readClocks(t, s)
		_, most := from.until(at)
		moved(t, "lease time with beats", at.Lease.Sub(from.Lease), least, most)
		if t.Failed() {
			t.FailNow()
		}
	}
}

// leaseClockGoesOn has beats for longer than MaxSilence.
func leaseClockGoesOn(t testing.TB, e Engine) {
	cmd := exclusive("a", "r")
	cmd.TTL = 2 * db.MaxSilence
	deadline := Do(t, e.Store, cmd)[0].Deadline
	beats(t, e.Store, deadline.Add(db.TimelineSkew))
	equal(t, "due", dueNames(t, e.Store, 0, 10), []string{"r"})
	Do(t, e.Store, claim.Expire{Resources: []string{"r"}})
	status(t, e.Store, "a", claim.Expired)
}

// lateBeat has a beat that is late because commits take long: so much lease time passes as may between two
// beats, however late they are. Else no lease would end on a slow database.
func lateBeat(t testing.TB, e Engine) {
	beaten := time.Now()
	must(t, e.Store.Beat(t.Context(), false))
	before := readClocks(t, e.Store)
	time.Sleep(2 * db.MaxSilence) // real time: no beat comes for as long
	again := time.Now()
	must(t, e.Store.Beat(t.Context(), false))
	after := readClocks(t, e.Store)
	least, most := db.MaxSilence-before.end.Sub(beaten)-precision, db.MaxSilence+after.end.Sub(again)+precision
	moved(t, "lease time from one beat to the next", after.Lease.Sub(before.Lease), least, most)
}

func timeAway(t testing.TB, e Engine) {
	cmd := exclusive("a", "r")
	cmd.TTL = time.Minute
	deadline := Do(t, e.Store, cmd)[0].Deadline
	must(t, e.Store.Beat(t.Context(), false))
	before := readClocks(t, e.Store)
	time.Sleep(3 * db.MaxSilence) // real time: no server is there for as long
	back := time.Now()
	s := e.Reopen(t)
	must(t, s.Beat(t.Context(), false))
	after := readClocks(t, s)
	moved(t, "lease time while no server was there", after.Lease.Sub(before.Lease), -db.MaxSilence, db.MaxSilence+after.end.Sub(back)+precision)
	wallMoved(t, before, after)
	equal(t, "deadline", get(t, s, "a").Deadline, deadline)
}

// shortOutage is shorter than MaxSilence, but the server knows of it.
func shortOutage(t testing.TB, e Engine) {
	must(t, e.Store.Beat(t.Context(), true))
	before := readClocks(t, e.Store)
	time.Sleep(db.MaxSilence / 2) // real time: the outage
	back := time.Now()
	must(t, e.Store.Beat(t.Context(), true))
	after := readClocks(t, e.Store)
	moved(t, "lease time in an outage", after.Lease.Sub(before.Lease), -db.MaxSilence, after.end.Sub(back)+precision)
	leaseRuns(t, e.Store)
}

// clockSteps has the database's clock step by more than a day, there and back: no lease, wait or session ends early or
// late, tokens rise, and a request that is repeated finds what it did.
func clockSteps(t testing.TB, e Engine) {
	must(t, e.Store.Register(t.Context(), "s1"))
	var token uint64
	var wrong time.Duration
	for _, by := range []time.Duration{25 * time.Hour, -25 * time.Hour, 0} {
		granted := stepOver(t, e, by, by-wrong)
		if granted.Token <= token {
			t.Errorf("token %d comes after %d", granted.Token, token)
		}
		token, wrong = granted.Token, by
	}
}

// stepOver has a lease, a wait and a session end after the clock has been set, which is a step. It returns the claim that
// was granted after the lease.
func stepOver(t testing.TB, e Engine, by, step time.Duration) (granted claim.Claim) {
	t.Helper()
	const ttl = 2 * db.MaxSilence
	const reading = 50 * time.Millisecond // how long the reading that shows a step may take
	begin, id := time.Now(), by.String()
	held, next, once := exclusive("held"+id, "r"), lasting(exclusive("next"+id, "r")), exclusive("once"+id, "q")
	held.TTL = ttl
	holder, waits := lasting(exclusive("holder"+id, "p")), patient("waits"+id, "p", ttl)
	Do(t, e.Store, held, next, holder, waits, once, attach(id, "s1"), bound("bound"+id, "s", id))
	Do(t, e.Store, released(once.ID), claim.Detach{ID: id, Server: "s1", Left: ttl})
	must(t, e.Store.Beat(t.Context(), false))

	before := readClocks(t, e.Store)
	e.Step(by)
	must(t, e.Store.Beat(t.Context(), false))
	after := readClocks(t, e.Store)
	least, most := before.until(after)
	moved(t, "the clock", after.Wall.Sub(before.Wall), least+step, most+step)
	moved(t, "lease time over a step", after.Lease.Sub(before.Lease), min(least, db.MaxSilence)-reading, most+reading)
	if early := over(t, e.Store); len(early) > 0 && time.Since(begin) < ttl { // real time: on a slow machine they may be over
		t.Errorf("a step of %s ends %q", step, early)
	}
	equal(t, "status of a request that is repeated", Do(t, e.Store, once)[0].Status, claim.Released)

	beats(t, e.Store, session(t, e.Store, id).Deadline.Add(db.TimelineSkew))
	equal(t, "what is over in time", over(t, e.Store), []string{"r", waits.ID, id})
	end := ending(id)
	end.OnlyDue = true
	Do(t, e.Store, claim.Expire{Resources: []string{"r"}, Waiters: []string{waits.ID}}, end)
	status(t, e.Store, held.ID, claim.Expired)
	status(t, e.Store, waits.ID, claim.Aborted)
	noSession(t, e.Store, id)
	status(t, e.Store, next.ID, claim.Active)
	granted = get(t, e.Store, next.ID)
	Do(t, e.Store, released(next.ID), released(holder.ID))
	return granted
}

// over returns the resources, waiting claims and sessions whose time is over.
func over(t testing.TB, s db.Store) []string {
	t.Helper()
	o := overdue(t, s, db.DueQuery{Resources: 10, Waiters: 10, Sessions: 10})
	return slices.Concat(slices.Sorted(slices.Values(o.Resources)), o.Waiters, o.Sessions)
}
