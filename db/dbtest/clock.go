package dbtest

import (
	"testing"
	"time"

	"github.com/locket-service/locket/claim"
	"github.com/locket-service/locket/db"
)

var clockCases = []Case{
	{Name: "NowMoves", Run: nowMoves},
	{Name: "LeaseClockStands", Run: leaseClockStands},
	{Name: "LeaseClockGoesOn", Run: leaseClockGoesOn},
	{Name: "LateBeat", Run: lateBeat},
	{Name: "TimeAway", Run: timeAway},
	{Name: "ShortOutage", Run: shortOutage},
}

// slack is how late a machine under load may do something.
const slack = 200 * time.Millisecond

func nowMoves(t testing.TB, e Engine) {
	start, before := time.Now(), now(t, e.Store)
	time.Sleep(50 * time.Millisecond)
	after, took := now(t, e.Store), time.Since(start)
	for what, d := range map[string]time.Duration{"wall": after.Wall.Sub(before.Wall), "lease": after.Lease.Sub(before.Lease)} {
		if d < 45*time.Millisecond || d > took+5*time.Millisecond {
			t.Errorf("%s time moved by %s in 50 ms to %s", what, d, took)
		}
	}
	if d := time.Since(after.Wall.Std()).Abs(); d > time.Minute {
		t.Errorf("the database's clock is off by %s", d)
	}
}

// leaseClockStands has no beats for longer than MaxSilence.
func leaseClockStands(t testing.TB, e Engine) {
	ttl := db.MaxSilence + 2*slack
	cmd := exclusive("a", "r")
	cmd.TTL = ttl
	must(t, e.Store.Beat(t.Context()))
	Do(t, e.Store, cmd)
	before := now(t, e.Store)
	time.Sleep(2 * db.MaxSilence)
	after := now(t, e.Store)
	if d := after.Lease.Sub(before.Lease); d > db.MaxSilence {
		t.Errorf("lease time moved by %s without a beat", d)
	}
	if d := after.Wall.Sub(before.Wall); d < 2*db.MaxSilence-slack {
		t.Errorf("the clock moved by %s only", d)
	}
	must(t, e.Store.Beat(t.Context()))
	if names := dueNames(t, e.Store, 0, 10); len(names) > 0 {
		t.Error("a lease ran out while no server was there")
	}
	at := now(t, e.Store)
	if d := at.Lease.Sub(before.Lease); d > db.MaxSilence+slack/2 {
		t.Errorf("the outage was counted: lease time moved by %s", d)
	}
	if left := ref(get(t, e.Store, "a")).Remaining(at); left < slack {
		t.Errorf("%s left of %s", left, ttl)
	}
	time.Sleep(100 * time.Millisecond)
	if d := now(t, e.Store).Lease.Sub(at.Lease); d < 50*time.Millisecond {
		t.Errorf("after the beat, lease time moved by %s in 100 ms", d)
	}
}

// leaseClockGoesOn has beats for longer than MaxSilence.
func leaseClockGoesOn(t testing.TB, e Engine) {
	cmd := exclusive("a", "r")
	cmd.TTL = db.MaxSilence
	Do(t, e.Store, cmd)
	before := now(t, e.Store)
	for range 8 {
		time.Sleep(db.BeatInterval / 2)
		must(t, e.Store.Beat(t.Context()))
	}
	after := now(t, e.Store)
	wall, lease := after.Wall.Sub(before.Wall), after.Lease.Sub(before.Lease)
	if (wall - lease).Abs() > slack {
		t.Errorf("lease time moved by %s while the clock moved by %s", lease, wall)
	}
	equal(t, "due", dueNames(t, e.Store, 0, 10), []string{"r"})
	Do(t, e.Store, claim.Expire{Resources: []string{"r"}})
	status(t, e.Store, "a", claim.Expired)
}

// lateBeat has a beat that is late because commits take long: so much lease time passes as may between two
// beats, however late they are. Else no lease would end on a slow database.
func lateBeat(t testing.TB, e Engine) {
	must(t, e.Store.Beat(t.Context()))
	before := now(t, e.Store)
	time.Sleep(2 * db.MaxSilence)
	must(t, e.Store.Beat(t.Context()))
	if d := now(t, e.Store).Lease.Sub(before.Lease); d < db.MaxSilence-slack {
		t.Errorf("lease time moved by %s from one beat to the next", d)
	}
}

func timeAway(t testing.TB, e Engine) {
	cmd := exclusive("a", "r")
	cmd.TTL = time.Minute
	deadline := Do(t, e.Store, cmd)[0].Deadline
	must(t, e.Store.Beat(t.Context()))
	before := now(t, e.Store)
	time.Sleep(3 * db.MaxSilence)
	s := e.Reopen(t)
	must(t, s.Beat(t.Context()))
	after := now(t, s)
	if d := after.Lease.Sub(before.Lease); d > db.MaxSilence || d < -db.MaxSilence {
		t.Errorf("lease time moved by %s while no server was there", d)
	}
	if d := after.Wall.Sub(before.Wall); d < 3*db.MaxSilence-slack {
		t.Errorf("the clock moved by %s only", d)
	}
	equal(t, "deadline", get(t, s, "a").Deadline, deadline)
}

// shortOutage is shorter than MaxSilence, but the server knows of it.
func shortOutage(t testing.TB, e Engine) {
	must(t, e.Store.Resume(t.Context()))
	before := now(t, e.Store)
	time.Sleep(db.MaxSilence / 2)
	must(t, e.Store.Resume(t.Context()))
	after := now(t, e.Store)
	if lease, wall := after.Lease.Sub(before.Lease), after.Wall.Sub(before.Wall); lease > wall-db.MaxSilence/4 {
		t.Errorf("lease time moved by %s in an outage of %s", lease, wall)
	}
	time.Sleep(50 * time.Millisecond)
	if d := now(t, e.Store).Lease.Sub(after.Lease); d < 25*time.Millisecond {
		t.Errorf("afterwards lease time moved by %s in 50 ms", d)
	}
}
