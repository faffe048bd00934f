package lock_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/locket-service/locket/lock"
)

// TestSlowNetwork: over a network that is just fast enough for heartbeats, a session survives many requests at once,
// and a resume with many locks. Each message takes a small part of the TTL.
func TestSlowNetwork(t *testing.T) {
	const many, rate = 64, 20 << 10
	within := func(t *testing.T, session *lock.Session, what string, done <-chan struct{}) {
		t.Helper()
		select {
		case <-done:
		case <-session.Done():
			t.Errorf("%s: %v", what, session.Err())
		case <-time.After(time.Minute):
			t.Errorf("%s takes more than a minute", what)
		}
	}
	t.Run("to the server", func(t *testing.T) {
		inWorld(t, func(t *testing.T, w *world) {
			session := w.session(lock.WithTTL(3 * time.Second))
			must(t, second(session.Lock(t.Context(), "first")))
			w.Up.Store(rate)
			var asked sync.WaitGroup
			for i := range many {
				asked.Go(func() {
					if _, err := session.Lock(t.Context(), fmt.Sprint(i), lock.WithValue(strings.Repeat("v", 1000))); err != nil {
						t.Errorf("lock %d: %v", i, err)
					}
				})
			}
			done := make(chan struct{})
			go func() {
				defer close(done)
				asked.Wait()
			}()
			within(t, session, "much at once", done)
			asked.Wait()
		})
	})
	t.Run("from the server", func(t *testing.T) {
		inWorld(t, func(t *testing.T, w *world) {
			session := w.session(lock.WithTTL(3 * time.Second))
			for i := range many {
				must(t, second(session.Lock(t.Context(), strings.Repeat("n", 200)+fmt.Sprint(i))))
			}
			w.Down.Store(rate)
			for _, wire := range w.Wires() {
				must(t, wire.Conn.Close()) // it breaks
			}
			done := make(chan struct{})
			time.AfterFunc(20*time.Second, func() { close(done) })
			within(t, session, "resuming with much", done)
		})
	})
}
