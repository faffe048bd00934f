package lock_test

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/tedsuo/ifrit"
	"github.com/tedsuo/ifrit/grouper"

	"github.com/locket-service/locket/lock"
)

// TestFromGroup: FromGroup finds the loss of a lock in the error of a group, and of a group within a group.
func TestFromGroup(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		wait := func(signals <-chan os.Signal, ready chan<- struct{}) error {
			close(ready)
			<-signals
			return nil
		}
		inner := grouper.NewOrdered(os.Interrupt, grouper.Members{
			{Name: "lock", Runner: lock.NewSessionRunner(w.client(), "k")},
			{Name: "work", Runner: ifrit.RunFunc(wait)},
		})
		p := ifrit.Invoke(grouper.NewParallel(os.Interrupt, grouper.Members{{Name: "inner", Runner: inner}, {Name: "other", Runner: ifrit.RunFunc(wait)}}))
		w.resetSessions()
		err := <-p.Wait()
		var trace grouper.ErrorTrace
		if got := lock.FromGroup(err); errors.Is(err, lock.ErrLost) || !errors.Is(got, lock.ErrLost) || !errors.As(got, &trace) || got.Error() != err.Error() {
			t.Errorf("%v, and of the group %v", got, err)
		}
		for _, err := range []error{nil, lock.ErrClosed, fmt.Errorf("own: %w", lock.ErrClosed)} {
			if got := lock.FromGroup(err); !errors.Is(got, err) || fmt.Sprint(got) != fmt.Sprint(err) {
				t.Errorf("%v of %v", got, err)
			}
		}
		if got := lock.FromGroup(fmt.Errorf("wrapped: %w", grouper.ErrorTrace{{Err: lock.ErrLost}})); !errors.Is(got, lock.ErrLost) || errors.Is(got, lock.ErrClosed) {
			t.Error(got)
		}
	})
}
