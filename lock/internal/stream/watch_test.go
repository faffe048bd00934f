package stream

import (
	"errors"
	"runtime"
	"testing"

	"github.com/locket-service/locket/tests/harness"
)

// TestWatchersAreForgotten: the queue of a resource that only watchers keep is deleted with the last of them.
func TestWatchersAreForgotten(t *testing.T) {
	s := &Session{queues: make(map[string]*queue)}
	heard := make(chan Status, 1)
	kept := &Watcher{Locked: func(to Status) { heard <- to }}
	s.Watch("kept", kept)
	func() {
		for _, key := range []string{"gone", "kept"} {
			w := &Watcher{Locked: func(Status) { t.Error("it is notified") }}
			runtime.AddCleanup(w, func(stop func()) { stop() }, s.Watch(key, w))
		}
	}()
	harness.Eventually(t, func() error {
		runtime.GC()
		s.mu.Lock()
		defer s.mu.Unlock()
		if len(s.queues) != 1 || len(s.queues["kept"].watchers) != 1 {
			return errors.New("they are still there")
		}
		return nil
	})
	s.mu.Lock()
	s.queues["kept"].changed(Status{Current: Holding})
	s.mu.Unlock()
	<-heard
	runtime.KeepAlive(kept)
}
