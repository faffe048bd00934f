package lock_test

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/tedsuo/ifrit"

	"github.com/locket-service/locket/lock"
	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/tests/harness"
)

// sessionsOpen returns how many sessions there are.
func (w *world) sessionsOpen() int {
	w.t.Helper()
	synctest.Wait()
	list, err := w.own().ListSessions(w.t.Context(), &models.ListSessionsRequest{})
	must(w.t, err)
	return len(list.GetSessions())
}

// TestSessionsAreClosed: the sessions that a client has opened beside its own, for readers whose claims differ, for another TTL and for another owner, are closed
// soon after they were last used, and opened again when they are needed again.
func TestSessionsAreClosed(t *testing.T) {
	const readers = 10
	inWorld(t, func(t *testing.T, w *world) {
		client := w.client()
		for round := range 2 {
			var holds []*lock.Hold
			acquire := func(key string, options ...lock.AcquireOption) {
				t.Helper()
				hold, err := client.TryAcquire(t.Context(), key, options...)
				must(t, err)
				holds = append(holds, hold)
			}
			for i := range readers {
				acquire("k", lock.WithShared(), lock.WithValue(fmt.Sprint(i)))
			}
			acquire("other", lock.WithTTL(time.Minute))
			runner := ifrit.Invoke(lock.NewSessionRunner(client, "mine", lock.WithOwner("another")))
			time.Sleep(time.Minute)
			if got := w.sessionsOpen(); got != readers+2 {
				t.Errorf("round %d: %d sessions are open, while %d are used", round, got, readers+2)
			}
			for _, hold := range holds {
				must(t, hold.Err())
				must(t, hold.Release(t.Context()))
			}
			must(t, end(runner))
			time.Sleep(time.Minute)
			if got := w.sessionsOpen(); got != 1 {
				t.Errorf("round %d: %d sessions are open, and one should be", round, got)
			}
		}
		session, err := client.Session()
		must(t, err)
		must(t, session.Err())
	})
}

// TestSessionsAreClosedBesideUse: no reader fails because the session that it would use is closed at that moment.
func TestSessionsAreClosedBesideUse(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		client := w.client()
		first, err := client.Acquire(t.Context(), "k", lock.WithShared(), lock.WithValue("first"))
		must(t, err)
		for i := range 21 {
			hold, err := client.Acquire(t.Context(), "k", lock.WithShared(), lock.WithValue("second"))
			must(t, err)
			must(t, hold.Err())
			must(t, hold.Release(t.Context()))
			time.Sleep(lock.KeepUnused + time.Duration(i-10)*100*time.Microsecond)
		}
		must(t, first.Release(t.Context()))
	})
}

// TestMutexesAreForgotten: a mutex that nobody has any more takes no memory while its session continues, even if it had a callback for unexpected locks.
func TestMutexesAreForgotten(t *testing.T) {
	session, err := lock.NewSession(anyAddress)
	must(t, err)
	t.Cleanup(func() { must(t, session.Close(context.Background())) })
	const many = 100
	data := make([]weak.Pointer[[1000]byte], many) // what their functions refer to
	for i := range data {
		kept := new([1000]byte)
		data[i] = weak.Make(kept)
		m := lock.NewMutex(session, fmt.Sprint(i), lock.WithUnexpectedLock(func(lock.Status) { kept[0]++ }))
		if i%2 == 0 {
			m.Locker()
		}
	}
	harness.Eventually(t, func() error {
		runtime.GC()
		for i := range data {
			if data[i].Value() != nil {
				return fmt.Errorf("mutex %d is still there", i)
			}
		}
		return nil
	})
}
