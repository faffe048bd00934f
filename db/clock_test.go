package db_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/locket-service/locket/claim"
	"github.com/locket-service/locket/db"
)

const ms = time.Millisecond

// start is the moment at which the clocks of these tests are set.
const start = claim.Time(1_700_000_000_000_000)

// running returns the clock of a server that has just begun.
func running() db.Clock { return db.Clock{}.Resume(start) }

func TestFirstClock(t *testing.T) {
	c := running()
	if c != (db.Clock{Seen: start}) {
		t.Errorf("the first clock is %+v", c)
	}
	if at := c.Instant(start); at != (claim.Instant{Wall: start, Lease: start}) {
		t.Errorf("the first instant is %+v", at)
	}
}

// TestClock looks at the lease clock after some steps of the database's clock, of which
// each ends with a beat except the last.
func TestClock(t *testing.T) {
	for name, c := range map[string]struct {
		steps []time.Duration
		want  time.Duration // of lease time since the start
	}{
		"no time":                          {[]time.Duration{0}, 0},
		"between two beats":                {[]time.Duration{200 * ms}, 200 * ms},
		"beats":                            {[]time.Duration{250 * ms, 250 * ms, 250 * ms, 100 * ms}, 850 * ms},
		"a late beat":                      {[]time.Duration{db.MaxSilence, 100 * ms}, 600 * ms},
		"silence":                          {[]time.Duration{time.Hour}, db.MaxSilence},
		"silence, and a beat":              {[]time.Duration{time.Hour, 0}, 0},
		"an outage":                        {[]time.Duration{250 * ms, time.Hour, 100 * ms}, 350 * ms},
		"an outage that is just one":       {[]time.Duration{db.MaxSilence + time.Microsecond, 100 * ms}, 100 * ms},
		"two outages":                      {[]time.Duration{time.Hour, 250 * ms, time.Minute, 250 * ms}, 500 * ms},
		"a step forward":                   {[]time.Duration{24 * time.Hour, 10 * ms}, 10 * ms},
		"a step back":                      {[]time.Duration{250 * ms, -time.Hour, 100 * ms}, 350 * ms},
		"a step back, unseen":              {[]time.Duration{250 * ms, -time.Hour}, 250 * ms},
		"a step back that is just one":     {[]time.Duration{-db.MaxSilence - time.Microsecond, 100 * ms}, 100 * ms},
		"a small step back":                {[]time.Duration{250 * ms, -100 * ms, 50 * ms}, 250 * ms},
		"a small step back, waited out":    {[]time.Duration{250 * ms, -100 * ms, 250 * ms}, 400 * ms},
		"a small step back, unseen":        {[]time.Duration{250 * ms, -100 * ms}, 250 * ms},
		"a small step back, largest":       {[]time.Duration{-db.MaxSilence, db.MaxSilence, 100 * ms}, 100 * ms},
		"back and forth":                   {[]time.Duration{-time.Hour, time.Hour, 100 * ms}, 100 * ms},
		"small steps back do not build up": {[]time.Duration{250 * ms, -100 * ms, 90 * ms, -100 * ms, 360 * ms}, 500 * ms},
	} {
		clock, now := running(), start
		for i, step := range c.steps {
			now = now.Add(step)
			if i < len(c.steps)-1 {
				clock = clock.Beat(now, 0)
			}
		}
		at := clock.Instant(now)
		if got := at.Lease.Sub(start); got != c.want {
			t.Errorf("%s: lease time moved by %s, want %s", name, got, c.want)
		}
		if at.Wall != now {
			t.Errorf("%s: wall time is %d, want %d", name, at.Wall, now)
		}
	}
}

// TestResume counts none of the time between, however short it was.
func TestResume(t *testing.T) {
	for _, away := range []time.Duration{0, ms, 100 * ms, db.MaxSilence, time.Hour, -ms, -time.Hour} {
		c := running().Beat(start.Add(100*ms), 0)
		before := c.Instant(start.Add(100 * ms))
		at := before.Wall.Add(away)
		c = c.Resume(at)
		if got := c.Instant(at); got != (claim.Instant{Wall: at, Lease: before.Lease}) {
			t.Errorf("away for %s: %+v after %+v", away, got, before)
		}
		if got := c.Beat(at.Add(ms), 0).Instant(at.Add(ms)).Lease; got != before.Lease.Add(ms) {
			t.Errorf("away for %s: %d after %d and a millisecond", away, got, before.Lease)
		}
	}
}

// walk is a clock with random beats, at random steps of a database's clock.
type walk struct {
	clock db.Clock
	now   claim.Time
}

func (w *walk) step(t *rapid.T, back bool) (beat bool) {
	least := int64(0)
	if back {
		least = -int64(2 * time.Second)
	}
	d := rapid.OneOf(rapid.Int64Range(max(least, -int64(time.Second)), int64(700*ms)), rapid.Int64Range(least, int64(time.Hour)))
	w.now = w.now.Add(time.Duration(d.Draw(t, "step")))
	switch rapid.IntRange(0, 9).Draw(t, "what") {
	case 0:
		w.clock = w.clock.Resume(w.now)
		return true
	case 1, 2, 3:
		return false
	default:
		w.clock = w.clock.Beat(w.now, 0)
		return true
	}
}

func (w *walk) lease() claim.Time { return w.clock.Instant(w.now).Lease }

// TestNeverFaster: on a clock that does not step back, no lease ends early: lease time
// passes no faster than time, and goes back only at a beat, by MaxSilence at most, when it
// takes back what it had counted of an outage.
func TestNeverFaster(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &walk{clock: running(), now: start}
		most := w.lease() // the most that may have been reached
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			before, at := w.lease(), w.now
			beat := w.step(t, false)
			passed, moved := w.now.Sub(at), w.lease().Sub(before)
			switch most = most.Add(passed); {
			case moved > passed:
				t.Fatalf("lease time moved by %s in %s", moved, passed)
			case moved < 0 && !beat:
				t.Fatalf("lease time went back by %s without a beat", -moved)
			case moved < -db.MaxSilence:
				t.Fatalf("lease time went back by %s", -moved)
			case w.lease() > most:
				t.Fatalf("lease time is ahead by %s", w.lease().Sub(most))
			}
		}
	})
}

// TestSteps: whatever the database's clock does, between two beats lease time passes by
// MaxSilence at most, never goes back without a beat while the clock does not, and a beat
// takes it back by MaxSilence at most.
func TestSteps(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &walk{clock: running(), now: start}
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			floor := w.clock.Seen.Add(-w.clock.Outage) // lease time at the last beat
			before := w.lease()
			w.step(t, true)
			after := w.lease()
			if d := after.Sub(floor); d < 0 || d > db.MaxSilence {
				t.Fatalf("lease time moved by %s since the last beat", d)
			}
			if d := after.Sub(before); d < -db.MaxSilence {
				t.Fatalf("lease time went back by %s", -d)
			}
		}
	})
}

// TestService: with beats in time, all of the time counts.
func TestService(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &walk{clock: running(), now: start}
		for range rapid.IntRange(1, 40).Draw(t, "beats") {
			w.now = w.now.Add(time.Duration(rapid.Int64Range(0, int64(db.MaxSilence)).Draw(t, "silence")))
			if w.lease() != w.now {
				t.Fatalf("%s were not counted", w.now.Sub(w.lease()))
			}
			w.clock = w.clock.Beat(w.now, 0)
		}
	})
}

// A beat that is late is no outage if the server was in service meanwhile, and the database's
// clock has moved by no more than that.
func TestLateBeatInService(t *testing.T) {
	for name, c := range map[string]struct{ silence, inService, want time.Duration }{
		"all of it":                    {2 * time.Second, 2 * time.Second, 2 * time.Second},
		"a little more":                {2*time.Second + db.BeatInterval, 2 * time.Second, 2*time.Second + db.BeatInterval},
		"a step of the clock":          {time.Hour, 2 * time.Second, 0},
		"a step back":                  {-time.Hour, 2 * time.Second, 0},
		"less than may be silent":      {db.MaxSilence, 100 * ms, db.MaxSilence},
		"nothing is known of service":  {db.MaxSilence + time.Microsecond, 0, 0},
		"service that was interrupted": {2 * time.Second, time.Second, 0},
	} {
		at := start.Add(c.silence)
		if got := running().Beat(at, c.inService).Instant(at).Lease.Sub(start); got != c.want {
			t.Errorf("%s: lease time moved by %s, want %s", name, got, c.want)
		}
	}
}
