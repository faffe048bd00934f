package lease

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/locket-service/locket/internal/base/inbox"
	"github.com/locket-service/locket/internal/base/lease"
	"github.com/locket-service/locket/lock/internal/base"
)

// still are calls of a server that grants everything. Their process stands still when the clock was read for the first renewal, before
// that counts.
type still struct {
	ttl                    time.Duration
	until                  time.Time
	taken, classified, end atomic.Int32
}

func (s *still) take(context.Context, context.Context, uint64, func(string)) (uint64, time.Duration, error) {
	s.taken.Add(1)
	return 1, s.ttl, nil
}

func (s *still) release(_ context.Context, token uint64) error {
	s.end.Add(int32(token))
	return nil
}

func (s *still) classify(error) base.Verdict {
	if s.classified.Add(1) == 4 { // two for the grant, one by the attempt to renew
		time.Sleep(time.Until(s.until))
	}
	return base.Unclear
}

func (s *still) exact(uint64) bool                           { return true }
func (s *still) watch(context.Context, uint64, func()) error { return nil }
func (s *still) why(context.Context, uint64) error           { return nil }
func (s *still) timeout(uint64) time.Duration                { return s.ttl / 3 }
func (s *still) next() calls                                 { return s }
func (s *still) id() string                                  { return "" }

// TestLostBeforeItIsProlonged: the holder sees by the clock that the window has ended, in the moment before a renewal
// counts. It stays lost: nothing renews it further, and the server's grant is released.
func TestLostBeforeItIsProlonged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ttl = 15 * time.Second
		window := ttl - lease.Margin(ttl)
		s := &still{ttl: ttl, until: time.Now().Add(window + time.Second/5)}
		o := newHolder(base.Settings{
			TTL: ttl, RetryInterval: time.Second, Margin: lease.Margin(ttl), ReleaseTimeout: time.Second, Log: slog.New(slog.DiscardHandler),
		}, "k", "o", s)
		held, err := o.Acquire(t.Context(), base.Observer{Calls: new(inbox.Inbox)})
		if err != nil {
			t.Fatal(err)
		}
		held.StopClock()
		o.last.next.Reset(time.Second)
		time.Sleep(window + time.Second/10)
		if held.Check(); held.Context().Err() == nil {
			t.Fatal("held after its window")
		}
		time.Sleep(ttl)
		taken := s.taken.Load()
		time.Sleep(time.Hour)
		if again := s.taken.Load(); again != taken || s.end.Load() != 1 {
			t.Errorf("renewed %d times after the loss, released: %d", again-taken, s.end.Load())
		}
		select {
		case <-o.last.gone:
		default:
			held.Release(t.Context())
			t.Error("it goes on")
		}
	})
}

// slow are calls of a server whose first answer takes three seconds, and that answers no renewal.
type slow struct{ still }

func (s *slow) take(context.Context, context.Context, uint64, func(string)) (uint64, time.Duration, error) {
	if s.taken.Add(1) > 1 {
		return 0, 0, errors.New("no answer")
	}
	time.Sleep(3 * time.Second)
	return 1, s.ttl, nil
}

// TestSlowAnswer: the window begins when the request was sent, not when its answer came.
func TestSlowAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ttl = 15 * time.Second
		window, begin := ttl-lease.Margin(ttl), time.Now()
		o := newHolder(base.Settings{
			TTL: ttl, RetryInterval: time.Second, Margin: lease.Margin(ttl), ReleaseTimeout: time.Second, Log: slog.New(slog.DiscardHandler), RenewalFailed: func() {},
		}, "k", "o", &slow{still{ttl: ttl}})
		held, err := o.Acquire(t.Context(), base.Observer{Calls: new(inbox.Inbox)})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Until(begin.Add(window - time.Second/10)))
		if held.Context().Err() != nil {
			t.Error("lost within its window")
		}
		time.Sleep(time.Second / 5)
		if held.Context().Err() == nil {
			t.Error("held after its window")
		}
		held.Release(t.Context())
		time.Sleep(time.Hour) // until nothing is left to release
	})
}

// changing are calls of a server that answers each renewal with a new grant.
type changing struct{ still }

func (s *changing) take(context.Context, context.Context, uint64, func(string)) (uint64, time.Duration, error) {
	return uint64(s.taken.Add(1)), s.ttl, nil
}

// TestAnotherToken: a renewal that is answered with another token is a loss: somebody else may have held the lock in between.
func TestAnotherToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ttl = 15 * time.Second
		o := newHolder(base.Settings{
			TTL: ttl, RetryInterval: time.Second, Margin: lease.Margin(ttl), ReleaseTimeout: time.Second, Log: slog.New(slog.DiscardHandler), RenewalFailed: func() {},
		}, "k", "o", &changing{still{ttl: ttl}})
		held, err := o.Acquire(t.Context(), base.Observer{Calls: new(inbox.Inbox)})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(ttl)
		if why := context.Cause(held.Context()); !errors.Is(why, base.ErrTokenChanged) {
			t.Errorf("it ended with %v", why)
		}
		held.Release(t.Context())
		time.Sleep(time.Hour) // until nothing is left to release
	})
}
