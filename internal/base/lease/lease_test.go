package lease_test

import (
	"math"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/locket-service/locket/internal/base/lease"
)

const maxTTL = 100 * 365 * 24 * time.Hour

func ttls(t *rapid.T) time.Duration {
	return time.Duration(rapid.Int64Range(int64(time.Second), int64(maxTTL)).Draw(t, "ttl"))
}

func delay(t *rapid.T, name string) time.Duration {
	return time.Duration(rapid.Int64Range(0, int64(2*maxTTL/100)).Draw(t, name))
}

// Two clients never trust their windows at the same moment: whenever the server receives the request, and even if the
// client's clock is slower than the server's by a hundredth, the window ends before the lease.
func TestEndsBeforeTheLease(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		sent, ttl := time.Now(), ttls(t)
		tookAt := delay(t, "under way")
		w := lease.WithMargin(sent, ttl, lease.Margin(ttl))
		// The client's clock shows 99 where the server's shows 100.
		leaseEnds := sent.Add((tookAt + ttl) / 100 * 99)
		if w.Trusted(leaseEnds) {
			t.Fatalf("TTL %s, taken after %s: trusted when the lease is over", ttl, tookAt)
		}
	})
}

// A holder may choose a longer margin: the window ends earlier by that, and never later.
func TestWithMargin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		sent, ttl := time.Now(), ttls(t)
		left := time.Duration(rapid.Int64Range(0, int64(ttl)).Draw(t, "left"))
		margin := time.Duration(rapid.Int64Range(int64(lease.Margin(ttl)), int64(ttl)).Draw(t, "margin"))
		w, end := lease.WithMargin(sent, left, margin), sent.Add(left-margin)
		if w.Trusted(end) || !w.Trusted(end.Add(-1)) || w.Since() != sent {
			t.Fatalf("TTL %s, %s left, margin %s: the window does not end at %s", ttl, left, margin, end)
		}
		if usual := lease.WithMargin(sent, left, lease.Margin(ttl)); w.Left(sent) > usual.Left(sent) {
			t.Fatalf("TTL %s, %s left, margin %s: it ends later than with the usual margin", ttl, left, margin)
		}
	})
}

// A lease that has ended is not trusted, however long ago that was.
func TestNothingLeft(t *testing.T) {
	sent := time.Now()
	for _, left := range []time.Duration{0, -1, -maxTTL, math.MinInt64} {
		if w := lease.WithMargin(sent, left, lease.Margin(time.Minute)); w.Trusted(sent) || w.Left(sent) != 0 {
			t.Errorf("%s left: trusted for %s", left, w.Left(sent))
		}
	}
}

// The window is the whole TTL without its margin.
func TestMargin(t *testing.T) {
	for ttl, want := range map[time.Duration]time.Duration{
		time.Second:      100 * time.Millisecond,
		2 * time.Second:  100 * time.Millisecond,
		15 * time.Second: 750 * time.Millisecond,
		time.Minute:      3 * time.Second,
		time.Hour:        3 * time.Minute,
	} {
		if got := lease.Margin(ttl); got != want {
			t.Errorf("the margin of %s: %s, want %s", ttl, got, want)
		}
		sent := time.Now()
		if w := lease.WithMargin(sent, ttl, lease.Margin(ttl)); !w.Trusted(sent.Add(ttl-want-1)) || w.Trusted(sent.Add(ttl-want)) {
			t.Errorf("TTL %s: the window does not end %s before it", ttl, want)
		}
	}
	for ttl, want := range map[time.Duration]time.Duration{
		500 * time.Millisecond: 100 * time.Millisecond, time.Second: 100 * time.Millisecond, time.Minute: 6 * time.Second,
	} {
		if got := lease.KillMargin(ttl); got != want {
			t.Errorf("the margin for a kill of %s: %s, want %s", ttl, got, want)
		}
	}
}

// A process that works under a lease is killed before its holder stops trusting the lease.
func TestKillComesFirst(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		if ttl := ttls(t); lease.KillMargin(ttl) < lease.Margin(ttl) {
			t.Fatalf("TTL %s: %s < %s", ttl, lease.KillMargin(ttl), lease.Margin(ttl))
		}
	})
}

// Left, Trusted and HalfLeft agree at any moment, and trust that has ended does not return.
func TestAgree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		sent, ttl := time.Now(), ttls(t)
		left := time.Duration(rapid.Int64Range(0, int64(ttl)).Draw(t, "left"))
		w := lease.WithMargin(sent, left, lease.Margin(ttl))
		now := sent.Add(delay(t, "now"))
		if w.Trusted(now) != (w.Left(now) > 0) {
			t.Fatalf("trusted: %t, but %s left", w.Trusted(now), w.Left(now))
		}
		if w.Trusted(now) && w.Left(now) != left-lease.Margin(ttl)-now.Sub(sent) {
			t.Fatalf("%s left of %s, %s later", w.Left(now), left, now.Sub(sent))
		}
		if w.HalfLeft(now) && !w.Trusted(now) {
			t.Fatal("more than half is left of a window that is over")
		}
		if want := now.Sub(sent) < w.Left(now); w.HalfLeft(now) != want {
			t.Fatalf("half left: %t, want %t", w.HalfLeft(now), want)
		}
		if later := now.Add(delay(t, "later")); !w.Trusted(now) && w.Trusted(later) {
			t.Fatal("trusted again")
		}
		if whole := lease.WithMargin(sent, ttl, lease.Margin(ttl)); w.Left(now) > whole.Left(now) {
			t.Fatal("a lease that was found lasts longer than one that was renewed")
		}
		if !w.Since().Equal(sent) || w.IsZero() {
			t.Fatalf("since %s, zero: %t", w.Since(), w.IsZero())
		}
	})
}

func TestZero(t *testing.T) {
	var w lease.Window
	for _, now := range []time.Time{{}, time.Now()} {
		if w.Trusted(now) || w.Left(now) != 0 || w.HalfLeft(now) {
			t.Errorf("at %s there is trust in no lease", now)
		}
	}
	if !w.IsZero() || !w.Since().IsZero() {
		t.Error("the zero Window is not zero")
	}
}

// A timer set to Left fires when the trust ends, and not before.
func TestTimer(t *testing.T) {
	for _, ttl := range []time.Duration{time.Second, 15 * time.Second, 24 * time.Hour, maxTTL} {
		synctest.Test(t, func(t *testing.T) {
			sent := time.Now()
			time.Sleep(300 * time.Millisecond) // the answer takes this long
			w := lease.WithMargin(sent, ttl, lease.Margin(ttl))
			time.Sleep(w.Left(time.Now()) - 1)
			if !w.Trusted(time.Now()) || w.Left(time.Now()) != 1 {
				t.Errorf("TTL %s: %s left a nanosecond before the end", ttl, w.Left(time.Now()))
			}
			time.Sleep(time.Nanosecond)
			if w.Trusted(time.Now()) || time.Since(sent) != ttl-lease.Margin(ttl) {
				t.Errorf("TTL %s: the window was %s long", ttl, time.Since(sent))
			}
		})
	}
}
