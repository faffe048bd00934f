package lock_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/locket-service/locket/lock"
)

// TestListenerSlow: a slow listener delays only itself. It is called for every change, in order, and never twice at the same time. A
// listener that was stopped is not called any more.
func TestListenerSlow(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		s := w.session()
		var slow, quick, stopped diary
		busy := false // guarded by nothing: calls do not overlap
		note := lines(&slow)
		s.Listen(func(status lock.Status) {
			if busy {
				t.Error("called twice at once")
			}
			busy = true
			time.Sleep(time.Minute)
			note(status)
			busy = false
		})
		s.Listen(lines(&quick))
		var late diary
		noteLate := lines(&late)
		stopLate := s.Listen(func(status lock.Status) {
			time.Sleep(time.Minute)
			noteLate(status)
		})
		stop := s.Listen(lines(&stopped))
		for _, key := range []string{"a", "b"} {
			must(t, second(s.Lock(t.Context(), key)))
		}
		synctest.Wait()
		stop()
		stopLate() // one call is under way, and another one waits
		must(t, s.UnlockAll(t.Context()))
		synctest.Wait()
		stopped.says(t, "a NONE-HOLDING, b NONE-HOLDING")
		slow.says(t, "")
		want := quick.String()
		if want != "a NONE-HOLDING, b NONE-HOLDING, a HOLDING-NONE, b HOLDING-NONE" && want != "a NONE-HOLDING, b NONE-HOLDING, b HOLDING-NONE, a HOLDING-NONE" {
			t.Errorf("heard: %s", want)
		}
		must(t, s.Close(t.Context()))
		time.Sleep(5 * time.Minute)
		slow.says(t, want)
		late.says(t, "a NONE-HOLDING")
	})
}
