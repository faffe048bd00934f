package watch_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/rules/claim"
	"github.com/locket-service/locket/internal/service/committer/committertest"
	"github.com/locket-service/locket/internal/service/upkeep"
	"github.com/locket-service/locket/internal/service/watch"
)

const waitTTL = time.Minute

// keep runs a WaitRenewer and a sweeper, and counts the commands of the WaitRenewer.
func keep(t *testing.T, w *committertest.World) *atomic.Int64 {
	t.Helper()
	w.Must(t, claim.Create{ID: "holder", Resource: "r", TTL: 100 * time.Hour})
	var commands atomic.Int64
	committertest.Run(t, watch.NewWaitRenewer(w.Hub, func(ctx context.Context, cmd claim.Command) error {
		commands.Add(1)
		_, err := w.Do(ctx, cmd)
		return err
	}, w.Log))
	committertest.Run(t, upkeep.NewSweeper(w.Store, w.Committer, w.Log))
	return &commands
}

func wait(t *testing.T, w *committertest.World, ids ...string) {
	t.Helper()
	for _, id := range ids {
		w.Must(t, claim.Create{ID: id, Resource: "r", TTL: time.Hour, WaitTTL: waitTTL})
	}
}

// TestWaitRenewer: a claim waits for as long as a call waits for it, with two writes per wait TTL, and is aborted one
// wait TTL after the last write.
func TestWaitRenewer(t *testing.T) {
	committertest.Bubble(t, func(t *testing.T, w *committertest.World) {
		commands := keep(t, w)
		wait(t, w, "kept", "left")
		ctx, leave := context.WithCancel(t.Context())
		replies, again := w.Await(ctx, "kept"), w.Await(ctx, "kept")
		time.Sleep(3*waitTTL + waitTTL/4)
		pending(t, replies)
		gets(t, w.Await(t.Context(), "left"), claim.Aborted)
		if n := commands.Load(); n < 5 || n > 7 {
			t.Errorf("%d commands in three wait TTLs", n)
		}
		leave()
		<-replies
		<-again
		time.Sleep(waitTTL / 4)
		if c, _, _, err := w.Store.Get(t.Context(), "kept", 0); err != nil || c.Status != claim.Waiting {
			t.Errorf("%s half a wait TTL after the last write (%v)", c.Status, err)
		}
		time.Sleep(waitTTL)
		gets(t, w.Await(t.Context(), "kept"), claim.Aborted)
		before := commands.Load()
		time.Sleep(3 * waitTTL)
		if n := commands.Load() - before; n != 0 {
			t.Errorf("%d commands while nobody waits", n)
		}
	})
}

// TestWaitRenewerTogether: a few commands renew the waits of many calls that began at different times.
func TestWaitRenewerTogether(t *testing.T) {
	const calls = 150
	committertest.Bubble(t, func(t *testing.T, w *committertest.World) {
		commands := keep(t, w)
		var replies []chan committertest.Reply
		for i := range calls {
			wait(t, w, fmt.Sprint(i))
			replies = append(replies, w.Await(t.Context(), fmt.Sprint(i)))
			time.Sleep(waitTTL / calls)
		}
		before := commands.Load()
		time.Sleep(3 * waitTTL)
		for _, r := range replies {
			pending(t, r)
		}
		if n := commands.Load() - before; n > 3*4*3 { // at most four times per wait TTL, three commands each
			t.Errorf("%d commands for %d calls in three wait TTLs", n, calls)
		}
	})
}

// TestWaitRenewerOfAnotherReading: a call that begins when most of the wait TTL has passed, as after the loss of
// another server, renews in time.
func TestWaitRenewerOfAnotherReading(t *testing.T) {
	committertest.Bubble(t, func(t *testing.T, w *committertest.World) {
		keep(t, w)
		wait(t, w, "a")
		time.Sleep(waitTTL - 500*time.Millisecond)
		replies := w.Await(t.Context(), "a")
		time.Sleep(waitTTL)
		pending(t, replies)
	})
}

// TestWaitRenewerWithoutDatabase: an outage aborts no claim, and the WaitRenewer continues after it.
func TestWaitRenewerWithoutDatabase(t *testing.T) {
	committertest.Bubble(t, func(t *testing.T, w *committertest.World) {
		keep(t, w)
		wait(t, w, "a")
		replies := w.Await(t.Context(), "a")
		time.Sleep(waitTTL / 4)
		w.Store.Set(func(s *committertest.Store) {
			s.OnTransact = func(context.Context, func(db.Tx) error) error { return db.ErrUnavailable }
		})
		time.Sleep(waitTTL / 2)
		w.Store.Set(func(s *committertest.Store) { s.OnTransact = nil })
		time.Sleep(2 * waitTTL)
		pending(t, replies)
	})
}

// TestWaitRenewerOfLockedRow: a claim's row is locked just when its wait must be renewed. The command leaves it out; it
// is renewed as soon as the row is free.
func TestWaitRenewerOfLockedRow(t *testing.T) {
	committertest.Bubble(t, func(t *testing.T, w *committertest.World) {
		w.Must(t, claim.Create{ID: "holder", Resource: "r", TTL: 100 * time.Hour})
		begin := time.Now()
		committertest.Run(t, watch.NewWaitRenewer(w.Hub, func(ctx context.Context, cmd claim.Command) error {
			if took := time.Since(begin); took < 1500*time.Millisecond {
				return nil // as if the resource could not be loaded: see claim.KeepWaiting
			}
			_, err := w.Do(ctx, cmd)
			return err
		}, w.Log))
		committertest.Run(t, upkeep.NewSweeper(w.Store, w.Committer, w.Log))
		w.Must(t, claim.Create{ID: "a", Resource: "r", TTL: time.Hour, WaitTTL: 2 * time.Second})
		before, _, _, err := w.Store.Get(t.Context(), "a", 0)
		committertest.Check(t, err)
		replies := w.Await(t.Context(), "a")
		time.Sleep(1700 * time.Millisecond)
		after, _, _, err := w.Store.Get(t.Context(), "a", 0)
		committertest.Check(t, err)
		if after.Deadline <= before.Deadline {
			t.Errorf("its wait was not renewed in time: until %d, as before", after.Deadline)
		}
		time.Sleep(10 * time.Second)
		pending(t, replies)
	})
}

// TestWaitRenewerBesideFaults: claims that cannot be renewed, for example because rows of their resource contradict
// each other, do not stop others' renewal.
func TestWaitRenewerBesideFaults(t *testing.T) {
	const calls = 20
	committertest.Bubble(t, func(t *testing.T, w *committertest.World) {
		w.Must(t, claim.Create{ID: "holder", Resource: "r", TTL: 100 * time.Hour})
		var commands atomic.Int64
		committertest.Run(t, watch.NewWaitRenewer(w.Hub, func(ctx context.Context, cmd claim.Command) error {
			commands.Add(1)
			for _, id := range cmd.(claim.KeepWaiting).IDs {
				if id == "3" || id == "14" {
					return errors.New("the rows contradict each other")
				}
			}
			_, err := w.Do(ctx, cmd)
			return err
		}, w.Log))
		committertest.Run(t, upkeep.NewSweeper(w.Store, w.Committer, w.Log))
		replies := make(map[string]chan committertest.Reply)
		for i := range calls {
			id := fmt.Sprint(i)
			wait(t, w, id)
			replies[id] = w.Await(t.Context(), id)
		}
		time.Sleep(3 * waitTTL)
		for id, r := range replies {
			if id == "3" || id == "14" {
				gets(t, r, claim.Aborted)
			} else {
				pending(t, r)
			}
		}
		if n := commands.Load(); n > 250 { // each look while the two are due, a second apart
			t.Errorf("%d commands in three wait TTLs", n)
		}
	})
}
