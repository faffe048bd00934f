package db_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/rules/claim"
)

const ms = time.Millisecond

// start is the initial time of the clocks in these tests.
const start = claim.Time(1_700_000_000_000_000)

// running returns the clock of a server that has just started.
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

// TestClock checks lease time after some steps of time. Each step except the last one ends with a beat.
func TestClock(t *testing.T) {
	for name, c := range map[string]struct {
		steps []time.Duration
		want  time.Duration // of lease time since the start
	}{
		"no time":                    {[]time.Duration{0}, 0},
		"between two beats":          {[]time.Duration{200 * ms}, 200 * ms},
		"beats":                      {[]time.Duration{250 * ms, 250 * ms, 250 * ms, 100 * ms}, 850 * ms},
		"a late beat":                {[]time.Duration{db.MaxSilence, 100 * ms}, 600 * ms},
		"silence":                    {[]time.Duration{time.Hour}, db.MaxSilence},
		"silence, and a beat":        {[]time.Duration{time.Hour, 0}, db.MaxSilence},
		"slow commits":               {[]time.Duration{2 * time.Second, 2 * time.Second, 100 * ms}, 2*db.MaxSilence + 100*ms},
		"two silences":               {[]time.Duration{time.Hour, 250 * ms, time.Minute, 250 * ms}, 2*db.MaxSilence + 500*ms},
		"a server that is behind":    {[]time.Duration{250 * ms, -100 * ms, 50 * ms}, 250 * ms},
		"and catches up":             {[]time.Duration{250 * ms, -100 * ms, 250 * ms}, 400 * ms},
		"two servers that are apart": {[]time.Duration{250 * ms, -100 * ms, 200 * ms, -100 * ms, 200 * ms}, 450 * ms},
	} {
		clock, now := running(), start
		for i, step := range c.steps {
			now = now.Add(step)
			if i < len(c.steps)-1 {
				clock = clock.Beat(now)
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

// TestResume: a Resume counts none of the time since the last beat, however short it was, even after a store was
// reopened.
func TestResume(t *testing.T) {
	for _, away := range []time.Duration{0, ms, 100 * ms, db.MaxSilence, time.Hour, -ms, -time.Hour} {
		c := running().Beat(start.Add(100 * ms))
		before := c.Instant(start.Add(100 * ms))
		at := before.Wall.Add(away)
		c = c.Resume(at)
		if got := c.Instant(at); got != (claim.Instant{Wall: at, Lease: before.Lease}) {
			t.Errorf("away for %s: %+v after %+v", away, got, before)
		}
		if got := c.Beat(at.Add(ms)).Instant(at.Add(ms)).Lease; got != before.Lease.Add(ms) {
			t.Errorf("away for %s: %d after %d and a millisecond", away, got, before.Lease)
		}
	}
}

// TestRule: whichever servers beat, and whenever, lease time never advances more than the time; a beat advances it
// by MaxSilence at most, and never moves it back; a Resume does not change it; and after a beat it advances by
// MaxSilence at most.
func TestRule(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		clock, now := running(), start
		behind := func() time.Duration { return time.Duration(rapid.Int64Range(0, int64(time.Second)).Draw(t, "behind")) }
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.OneOf(rapid.Int64Range(0, int64(700*ms)), rapid.Int64Range(0, int64(time.Hour))).Draw(t, "step")))
			before, most := clock.Seen.Add(-clock.Outage), db.MaxSilence
			switch rapid.IntRange(0, 9).Draw(t, "what") {
			case 0: // a server whose time is behind uses the last beat's
				clock, most = clock.Resume(max(now.Add(-behind()), clock.Seen)), 0
			case 1, 2, 3:
			case 4: // a server whose time is behind
				clock = clock.Beat(now.Add(-behind()))
			default:
				clock = clock.Beat(now)
			}
			after, lease := clock.Seen.Add(-clock.Outage), clock.Instant(now).Lease
			if moved := after.Sub(before); moved < 0 || moved > most {
				t.Fatalf("a beat moved lease time by %s", moved)
			}
			if on := lease.Sub(after); on < 0 || on > db.MaxSilence || lease > now {
				t.Fatalf("lease time is %s after the last beat, and %s behind", on, now.Sub(lease))
			}
		}
	})
}

// TestService: with beats in time, all of the time counts.
func TestService(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		clock, now := running(), start
		for range rapid.IntRange(1, 40).Draw(t, "beats") {
			now = now.Add(time.Duration(rapid.Int64Range(0, int64(db.MaxSilence)).Draw(t, "silence")))
			if lease := clock.Instant(now).Lease; lease != now {
				t.Fatalf("%s were not counted", now.Sub(lease))
			}
			clock = clock.Beat(now)
		}
	})
}
