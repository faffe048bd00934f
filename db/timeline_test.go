package db_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/rules/claim"
)

// machine is a server with its timeline, at a node of the database whose clock may be wrong.
type machine struct {
	db.Timeline
	epoch  time.Time
	passed time.Duration // in true time
	fault  time.Duration // the error of the node's clock
}

func newMachine() *machine { return &machine{epoch: time.Now()} }

// read reads the node's clock; the answer takes a while on both ways.
func (m *machine) read(seen claim.Time, there, back time.Duration) claim.Time {
	sent := m.epoch.Add(m.passed)
	m.passed += there
	now := start.Add(m.passed + m.fault)
	m.passed += back
	return m.Read(now, seen, sent, m.epoch.Add(m.passed))
}

// TestTimelineSteps: whatever steps the clock makes, the timeline advances as the time does, with an
// error of the duration of a reading at most.
func TestTimelineSteps(t *testing.T) {
	for _, step := range []time.Duration{10 * ms, 300 * ms, -300 * ms, 3 * time.Second, -time.Hour} {
		m := newMachine()
		m.read(0, ms, ms)
		for range 10 {
			m.passed += 250 * ms
			m.read(0, ms, ms)
		}
		if _, steps := m.Shift(); steps != 0 {
			t.Fatalf("%s: a step before there was one", step)
		}
		m.fault = step
		m.passed += 250 * ms
		at := m.read(0, ms, ms)
		if off := at.Sub(start.Add(m.passed - ms)).Abs(); off > 5*ms {
			t.Errorf("%s: the timeline is off by %s", step, off)
		}
		if offset, steps := m.Shift(); (offset+step).Abs() > 5*ms || steps != 1 {
			t.Errorf("%s: offset %s, %d steps", step, offset, steps)
		}
	}
}

// TestTimelineNeverFaster: for any steps and delays, the timeline is ahead of the time by the duration of
// the readings, a thousandth, and the steps that are too small to be detected, at most.
func TestTimelineNeverFaster(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newMachine()
		first := m.read(0, 0, 0)
		begin := m.passed
		slack := time.Duration(0)
		for range rapid.IntRange(1, 30).Draw(t, "readings") {
			m.passed += time.Duration(rapid.Int64Range(0, int64(time.Second)).Draw(t, "pause"))
			m.fault += time.Duration(rapid.Int64Range(-int64(time.Hour), int64(time.Hour)).Draw(t, "step"))
			delay := time.Duration(rapid.Int64Range(0, int64(20*ms)).Draw(t, "delay"))
			slack += 2*delay + 3*ms
			at := m.read(0, delay, delay)
			if ahead := at.Sub(first) - (m.passed - begin); ahead > slack || ahead < -slack {
				t.Fatalf("the timeline is ahead by %s, and may be by %s", ahead, slack)
			}
		}
	})
}

// TestTimelineOfTwoNodes: servers at nodes with different clocks reach one timeline, whichever
// of them is ahead, and whichever starts first.
func TestTimelineOfTwoNodes(t *testing.T) {
	for _, skew := range []time.Duration{0, 400 * ms, -400 * ms, 3 * time.Second, -3 * time.Second} {
		a, b := newMachine(), newMachine()
		b.fault = skew
		a.Start()
		seen := a.read(0, ms, ms)
		before := start.Add(b.passed + b.fault)
		for _, m := range []*machine{a, b} {
			m.passed += 50 * ms
		}
		seen = a.read(seen, ms, ms)
		b.passed += 4 * ms
		b.Join(seen, before, start.Add(b.passed+b.fault))
		for range 20 {
			for _, m := range []*machine{a, b} {
				m.passed += 250 * ms
			}
			atA := a.read(seen, ms, ms)
			seen = max(seen, atA)
			atB := b.read(seen, ms, ms)
			seen = max(seen, atB)
			if apart := atA.Sub(atB) - (a.passed - b.passed); apart.Abs() > 55*ms {
				t.Fatalf("%s: the timelines are %s apart", skew, apart)
			}
		}
		if offset, _ := b.Shift(); (offset + skew).Abs() > 60*ms {
			t.Errorf("%s: the offset that is reported is %s", skew, offset)
		}
	}
}

// TestTimelineOfTwoConnections: the connections of one server lead to two nodes whose clocks differ. Gains of one
// reading are given back by the next, even if all of them are steps: no lease ends early.
func TestTimelineOfTwoConnections(t *testing.T) {
	for _, skew := range []time.Duration{50 * ms, -50 * ms, 3 * time.Second} {
		m := newMachine()
		m.Start()
		given := m.read(0, ms, ms)
		begin := m.passed
		for i := range 600 { // a lease of 30 s
			m.fault = time.Duration(1-i%2) * skew
			m.passed += 48 * ms
			at := m.read(0, ms, ms)
			if off := at.Sub(given) - (m.passed - begin); off.Abs() > 10*ms {
				t.Fatalf("%s: the timeline is off by %s after %s", skew, off, m.passed-begin)
			}
		}
	}
}

// TestTimelineEndsNoLeaseEarly: two servers read one database's clock, which steps; they have read it in less time than a step
// has, and later in up to 100 ms. One gives a lease, and none of them takes it for due before its time.
func TestTimelineEndsNoLeaseEarly(t *testing.T) {
	for seed := range uint64(10000) {
		r := rand.New(rand.NewPCG(seed, 0))
		oneOf := func(values ...time.Duration) time.Duration { return values[r.IntN(len(values))] }
		const ttl = 500 * ms
		epoch := time.Now()
		var passed, fault time.Duration
		var seen claim.Time
		servers := []*db.Timeline{{}, {}}
		read := func(server int, delay time.Duration) (sent time.Duration, at claim.Time) {
			sent = passed
			passed += oneOf(0, delay/10, delay)
			now, known := start.Add(passed+fault), seen
			passed += oneOf(0, delay/10, delay)
			at = servers[server].Read(now, known, epoch.Add(sent), epoch.Add(passed))
			return sent, at
		}
		for i := range servers {
			servers[i].Start()
			read(i, 5*ms)
		}
		var given time.Duration // when the lease was asked for
		var deadline claim.Time
		for range 40 {
			passed += oneOf(0, 10*ms, 100*ms)
			if r.IntN(5) == 0 {
				fault += oneOf(40*ms, -40*ms, 200*ms, -200*ms, time.Second, -time.Second)
			}
			server := r.IntN(len(servers))
			sent, at := read(server, 50*ms)
			switch {
			case deadline == 0:
				given, deadline = sent, max(at, seen).Add(ttl)
			case at.Add(-servers[server].Skew(false)) >= deadline:
				if lasted := passed - given; lasted < ttl {
					t.Fatalf("seed %d: a lease of %s is due after %s", seed, ttl, lasted)
				}
				deadline = 0
			}
			if r.IntN(2) == 0 {
				passed += oneOf(0, 5*ms, 50*ms) // for the commit
				seen = max(seen, at)
			}
		}
	}
}

// TestTimelineBesideBeats: the database may take the time of a statement long before it reads the row: another server's beat
// between the two is later than that time, and shows no difference of timelines.
func TestTimelineBesideBeats(t *testing.T) {
	m := newMachine()
	m.Start()
	m.read(0, ms, ms)
	for range 100 {
		m.passed += 250 * ms
		beat := start.Add(m.passed + 30*ms)
		m.read(beat, 0, 40*ms)
	}
	if offset, steps := m.Shift(); offset != 0 || steps != 0 {
		t.Errorf("offset %s, %d steps", offset, steps)
	}
}

// TestTimelineAfterSleep: the monotonic clock of a machine that was suspended has missed time; the timeline
// catches up with the others at the first reading.
func TestTimelineAfterSleep(t *testing.T) {
	m := newMachine()
	m.Start()
	m.read(0, ms, ms)
	m.fault = 10 * time.Second // which passed for the database
	m.passed += 250 * ms
	seen := start.Add(m.passed + m.fault - 100*ms)
	if at := m.read(seen, ms, ms); seen.Sub(at) > 2*ms || at > seen {
		t.Errorf("the timeline is behind the others by %s", seen.Sub(at))
	}
}
