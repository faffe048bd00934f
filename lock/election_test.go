package lock_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/locket-service/locket/lock"
)

// TestElection: the first client that campaigns leads; the next one leads when it resigns. Observers see each leader with its
// value and token.
func TestElection(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b, watcher := w.client(lock.WithOwner("a")), w.client(lock.WithOwner("b")), w.client()
		long := strings.Repeat("x", 10_000) // too long for Watch
		var seen diary
		ctx, cancel := context.WithCancel(t.Context())
		observed := make(chan error, 1)
		go func() {
			for leader, err := range lock.NewElection(watcher, "lead").Observe(ctx) {
				if err != nil {
					observed <- err
					return
				}
				if (leader.Token == 0) != (leader.Owner == "") {
					t.Errorf("%+v", leader)
				}
				seen.note("%s:%.5s", leader.Owner, leader.Value)
			}
			observed <- nil
		}()
		settle := func() {
			time.Sleep(3 * time.Second)
			synctest.Wait()
		}
		settle()
		first, other := lock.NewElection(a, "lead"), lock.NewElection(b, "lead")
		held, err := first.Campaign(t.Context(), "at 1")
		must(t, err)
		if _, err := first.Campaign(t.Context(), "twice"); !errors.Is(err, lock.ErrCampaigning) {
			t.Error(err)
		}
		settle()
		elected := holding(func() (*lock.Hold, error) { return other.Campaign(t.Context(), long) })
		settle()
		must(t, first.Resign(t.Context()))
		next := comes(t, time.Second, elected)
		if next.Token() <= held.Token() || !errors.Is(held.Err(), lock.ErrReleased) {
			t.Errorf("%d after %d, %v", next.Token(), held.Token(), held.Err())
		}
		settle()
		must(t, errors.Join(other.Resign(t.Context()), other.Resign(t.Context())))
		settle()
		again, err := first.Campaign(t.Context(), "at 2")
		must(t, err)
		settle()
		must(t, again.Release(t.Context())) // resigns
		settle()
		seen.says(t, ":, a:at 1, b:xxxxx, :, a:at 2, :")
		cancel()
		if err := <-observed; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		short, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		must(t, second(lock.NewElection(b, "lead").Campaign(t.Context(), "at b")))
		if _, err := first.Campaign(short, "in vain"); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		for _, err := range lock.NewElection(a, "").Observe(t.Context()) {
			if err == nil {
				t.Error("an election without a name")
			}
		}
		for leader, err := range first.Observe(t.Context()) { // a loop may end by itself
			if err != nil || leader.Value != "at b" {
				t.Errorf("%+v, %v", leader, err)
			}
			break
		}
	})
}
