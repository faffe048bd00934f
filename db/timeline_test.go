package db_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/claim"
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
func (m *machine) read(seen claim.Time, there, back time.Duration) (claim.Time, bool) {
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
			if _, stepped := m.read(0, ms, ms); stepped {
				t.Fatalf("%s: a step before there was one", step)
			}
		}
		m.fault = step
		m.passed += 250 * ms
		at, stepped := m.read(0, ms, ms)
		if off := at.Sub(start.Add(m.passed - ms)).Abs(); !stepped || off > 5*ms {
			t.Errorf("%s: the timeline is off by %s (stepped: %t)", step, off, stepped)
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
		first, _ := m.read(0, 0, 0)
		begin := m.passed
		slack := time.Duration(0)
		for range rapid.IntRange(1, 30).Draw(t, "readings") {
			m.passed += time.Duration(rapid.Int64Range(0, int64(time.Second)).Draw(t, "pause"))
			m.fault += time.Duration(rapid.Int64Range(-int64(time.Hour), int64(time.Hour)).Draw(t, "step"))
			delay := time.Duration(rapid.Int64Range(0, int64(20*ms)).Draw(t, "delay"))
			slack += 2*delay + 3*ms
			at, _ := m.read(0, delay, delay)
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
		seen, _ := a.read(0, ms, ms)
		before := start.Add(b.passed + b.fault)
		for _, m := range []*machine{a, b} {
			m.passed += 50 * ms
		}
		seen, _ = a.read(seen, ms, ms)
		b.passed += 4 * ms
		b.Join(seen, before, start.Add(b.passed+b.fault))
		for range 20 {
			for _, m := range []*machine{a, b} {
				m.passed += 250 * ms
			}
			atA, _ := a.read(seen, ms, ms)
			seen = max(seen, atA)
			atB, _ := b.read(seen, ms, ms)
			seen = max(seen, atB)
			if apart := atA.Sub(atB) - (a.passed - b.passed); apart.Abs() > db.StepSkew+5*ms {
				t.Fatalf("%s: the timelines are %s apart", skew, apart)
			}
		}
		if offset, _ := b.Shift(); (offset + skew).Abs() > 60*ms {
			t.Errorf("%s: the offset that is reported is %s", skew, offset)
		}
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
	if at, _ := m.read(seen, ms, ms); at != seen {
		t.Errorf("the timeline is behind the others by %s", seen.Sub(at))
	}
}
