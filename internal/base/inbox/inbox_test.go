package inbox_test

import (
	"slices"
	"testing"
	"testing/synctest"

	"github.com/locket-service/locket/internal/base/inbox"
)

// TestOrder: functions are executed one after the other, in their order, even if a function adds another one; nobody
// who adds one waits.
func TestOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var done []int
		gate := make(chan struct{})
		b := inbox.New(1000, nil)
		b.Put(func() { <-gate })
		for i := range 100 {
			b.Offer(func() {
				done = append(done, i) // the race detector sees two at once
				b.Put(func() { done = append(done, 100+i) })
			})
		}
		close(gate)
		synctest.Wait()
		if len(done) != 200 || !slices.IsSorted(done) {
			t.Errorf("%v", done)
		}
	})
}

// TestFull: offers beyond the limit are dropped, which is reported once, in order. Puts are never dropped.
func TestFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var done []string
		note := func(s string) func() { return func() { done = append(done, s) } }
		gate := make(chan struct{})
		b := inbox.New(2, note("full"))
		b.Put(func() { <-gate })
		synctest.Wait()
		for _, s := range []string{"1", "2", "3", "4"} {
			b.Offer(note(s))
		}
		b.Put(note("put"))
		close(gate)
		b.Flush()
		if want := []string{"1", "2", "full", "put"}; !slices.Equal(done, want) {
			t.Errorf("%v, want %v", done, want)
		}
	})
}
