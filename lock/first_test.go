package lock_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/lock"
	"github.com/locket-service/locket/models"
)

// TestFirstLock: a new client of an idle server has its first lock at once, and needs no beat of the server for it but the first after a rest. So do
// hundreds that come together.
func TestFirstLock(t *testing.T) {
	for _, many := range []int{1, 300} {
		t.Run(fmt.Sprint(many), func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				clients := make([]*lock.Client, many)
				for i := range clients {
					clients[i] = w.client()
				}
				time.Sleep(time.Minute + 10*time.Millisecond) // between two beats
				before, started := w.beats.Load(), time.Now()
				var all sync.WaitGroup
				for i, c := range clients {
					all.Go(func() {
						if _, err := c.TryAcquire(t.Context(), fmt.Sprint(i)); err != nil {
							t.Error(err)
						}
					})
				}
				all.Wait()
				beats, took := w.beats.Load()-before, time.Since(started)
				if extra := beats - int64(took/db.BeatInterval); extra > 1 || took >= db.BeatInterval {
					t.Errorf("it took %d beats more than come by themselves, and %v", extra, took)
				}
			})
		})
	}
}

// TestResumedAtOnce: a session whose stream breaks opens the next one at once, if a server has answered a command over the
// last one, also without a heartbeat.
func TestResumedAtOnce(t *testing.T) {
	scripted(t, func(t *testing.T, s *script) {
		session := s.session()
		var broken time.Time
		for i := range 10 {
			st := s.Attach()
			if took := time.Since(broken); i > 0 && took > 0 {
				t.Errorf("stream %d came after %v", i, took)
			}
			answered := make(chan error, 1)
			go func() { answered <- second(session.Unlock(t.Context(), "k")) }()
			asked := st.Raw()
			for ; asked.GetUnlock() == nil; asked = st.Raw() {
			}
			st.Answer(asked, &models.SessionStatus{Resource: "k"})
			must(t, <-answered)
			broken = time.Now()
			st.End <- status.Error(codes.Unavailable, "broken")
		}
		s.Attach()
	})
}

// TestRevokedWaiterHearsAtOnce: a client learns at once that somebody has ended its waiting claim. It needs no
// heartbeat to know that its session continues.
func TestRevokedWaiterHearsAtOnce(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		c, other := w.client(), w.client()
		must(t, second(other.Acquire(t.Context(), "k")))
		waiting := acquiring(t.Context(), c, "k")
		waits(t, waiting)
		began := time.Now()
		w.finish(true, "k", models.Status_STATUS_REVOKED, "maintenance")
		got := <-waiting
		isToldOf(t, "the waiter", got.err, models.Status_STATUS_REVOKED)
		if took := time.Since(began); took > 0 {
			t.Errorf("it was told after %v", took)
		}
	})
}
