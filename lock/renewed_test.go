package lock_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/locket-service/locket/internal/base/lease"
	"github.com/locket-service/locket/lock"
	"github.com/locket-service/locket/lock/internal/locktest"
	"github.com/locket-service/locket/tests/harness"
)

// TestConnectionBreaksOften: a session keeps its claims over connections that break four times a second, each after the answer to a command and before
// that to a heartbeat.
func TestConnectionBreaksOften(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		session := w.session(lock.WithTTL(ttl))
		must(t, second(session.Lock(t.Context(), "kept")))
		token := session.Status("kept").Token
		for started, i := time.Now(), 0; time.Since(started) < 3*ttl; i++ {
			if err := second(session.Lock(t.Context(), fmt.Sprint("k", i))); err != nil {
				t.Fatalf("after %v: %v", time.Since(started), err)
			}
			w.Set(locktest.Cut)
			time.Sleep(time.Second / 4)
			w.Set(locktest.Open)
		}
		if got := stands(t, session, "kept", lock.Holding); got.Token != token {
			t.Errorf("%+v, and it had the token %d", got, token)
		}
		w.holds(session.Owner(), "kept")
	})
}

// TestAnswersRenew: while heartbeats are not answered, the trust window counts from the sending of a command that has
// renewed the session, as its answer says. No other answer prolongs it.
func TestAnswersRenew(t *testing.T) {
	for name, c := range map[string]struct {
		after   time.Duration // after the opening
		renewed bool
		counts  bool
	}{
		"renewed":           {ttl / 2, true, true},
		"heartbeats may do": {ttl / 4, true, false},
		"not renewed":       {ttl / 2, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			scripted(t, func(t *testing.T, s *script) {
				started := time.Now()
				session := s.session(lock.WithTTL(ttl))
				st := s.Attach()
				time.Sleep(c.after)
				answered := harness.Later(func() error { return second(session.Lock(context.Background(), "k")) })
				asked := st.Raw()
				for ; asked.GetLock() == nil; asked = st.Raw() { // heartbeats, which nobody answers
				}
				time.Sleep(time.Second)
				holds := locktest.Holds("k", 1, 1)
				holds.Renewed = c.renewed
				st.Answer(asked, holds)
				must(t, <-answered)
				st.End <- status.Error(codes.Unavailable, "shutting down")
				<-session.Done() // further streams are not opened
				want := ttl - lease.Margin(ttl)
				if c.counts {
					want += c.after
				}
				if held := time.Since(started); held != want || !errors.Is(session.Err(), lock.ErrTimeUp) {
					t.Errorf("it was trusted for %v, want %v: %v", held, want, session.Err())
				}
			})
		})
	}
}
