package committer_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/rules/claim"
	"github.com/locket-service/locket/internal/service/committer"
	"github.com/locket-service/locket/internal/service/committer/committertest"
)

// TestIsolate: the names at fault are found, and the others are carried out.
func TestIsolate(t *testing.T) {
	broken := errors.New("broken")
	var done, faults []string
	err := committer.Isolate(t.Context(), []string{"a", "b", "c", "d", "e"}, func(names []string) error {
		if slices.Contains(names, "b") || slices.Contains(names, "e") {
			return broken
		}
		done = append(done, names...)
		return nil
	}, func(name string, err error) {
		if !errors.Is(err, broken) {
			t.Errorf("%s: %v", name, err)
		}
		faults = append(faults, name)
	})
	if err != nil || !slices.Equal(done, []string{"a", "c", "d"}) || !slices.Equal(faults, []string{"b", "e"}) {
		t.Errorf("done %q, faults %q, %v", done, faults, err)
	}
}

// TestIsolateWithoutCommands: no name is at fault if no command is taken, whatever its names are.
func TestIsolateWithoutCommands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := committertest.NewBounded(t, 0, 2)
		queues := committertest.Run(t, w.Committer)
		refused := func(ctx context.Context, want error, keep func([]string) error) {
			t.Helper()
			calls := 0
			err := committer.Isolate(ctx, []string{"a", "b"}, func(ids []string) error {
				calls++
				return keep(ids)
			}, func(name string, err error) { t.Errorf("%s is at fault: %v", name, err) })
			if !errors.Is(err, want) || calls != 1 {
				t.Errorf("after %d calls: %v, want one and %v", calls, err, want)
			}
		}
		keep := func(ids []string) error {
			_, err := w.Do(t.Context(), claim.KeepWaiting{IDs: ids})
			return err
		}
		goOn := w.Store.Hold()
		w.Send(t.Context(), committertest.Lock("under way"))
		w.Send(t.Context(), claim.Expire{Resources: []string{"r"}}, claim.Expire{Resources: []string{"s"}})
		refused(t.Context(), committer.ErrOverloaded, keep)
		goOn()
		synctest.Wait()
		committertest.Check(t, keep([]string{"a", "b"}))
		committertest.Stop(t, queues)
		refused(t.Context(), committer.ErrStopping, keep)
		for _, err := range []error{db.ErrUnavailable, db.ErrOutcomeUnknown} {
			refused(t.Context(), err, func([]string) error { return err })
		}
		over, cancel := context.WithCancel(t.Context())
		refused(over, errDone, func([]string) error { cancel(); return errDone })
	})
}

var errDone = errors.New("done")
