package lock_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/lock"
)

// TestFirstLock: a new client of an idle server has its first lock at once, and needs no beat of the server for it but the first after a rest. So do a thousand
// that come together.
func TestFirstLock(t *testing.T) {
	for _, many := range []int{1, 1000} {
		t.Run(fmt.Sprint(many), func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				clients := make([]*lock.Client, many)
				for i := range clients {
					clients[i] = w.client()
				}
				time.Sleep(time.Minute + 10*time.Millisecond) // between two beats
				before, begun := w.beats.Load(), time.Now()
				var all sync.WaitGroup
				for i, c := range clients {
					all.Go(func() {
						if _, err := c.TryAcquire(t.Context(), fmt.Sprint(i)); err != nil {
							t.Error(err)
						}
					})
				}
				all.Wait()
				beats, took := w.beats.Load()-before, time.Since(begun)
				if extra := beats - int64(took/db.BeatInterval); extra > 1 || took >= db.BeatInterval {
					t.Errorf("it took %d beats more than come by themselves, and %v", extra, took)
				}
			})
		})
	}
}
