package upkeep_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/rules/claim"
	"github.com/locket-service/locket/internal/service/committer/committertest"
	"github.com/locket-service/locket/internal/service/upkeep"
)

// TestLargeGrantIsContinued: the server that has granted the first claims of very many fails. The others are still
// granted.
func TestLargeGrantIsContinued(t *testing.T) {
	const shared = 2*claim.MaxGrants + 10
	committertest.Bubble(t, func(t *testing.T, w *committertest.World) {
		w.Must(t, claim.Create{ID: "writer", Resource: "r", TTL: time.Hour})
		var cmds []claim.Command
		for i := range shared {
			cmds = append(cmds, claim.Create{ID: fmt.Sprint(i), Resource: "r", Units: claim.Shared, TTL: time.Hour})
		}
		for _, r := range w.Send(t.Context(), cmds...) {
			committertest.Check(t, (<-r).Err)
		}
		committertest.Transact(t, w.Store.Store, claim.End{ID: "writer"}) // at another server
		counts(t, w, db.Census{Active: claim.MaxGrants, Waiting: shared - claim.MaxGrants, Finished: 1})
		committertest.Run(t, upkeep.NewGranter(w.Store, do(w), w.Log))
		time.Sleep(25 * time.Second)
		synctest.Wait()
		counts(t, w, db.Census{Active: shared, Finished: 1})
	})
}

// TestOneGrantFails: a resource whose command fails delays no grants of the others that are continued with it.
func TestOneGrantFails(t *testing.T) {
	committertest.Bubble(t, func(t *testing.T, w *committertest.World) {
		for _, name := range []string{"a", "locked", "z"} {
			w.Must(t, claim.Create{ID: name, Resource: name, Units: claim.Shared, TTL: time.Hour})
			w.Must(t, claim.Create{ID: name + "2", Resource: name, TTL: time.Hour})
		}
		granted := make(map[string]bool)
		committertest.Run(t, upkeep.NewGranter(w.Store, func(_ context.Context, cmd claim.Command) error {
			resources := cmd.(claim.Expire).Resources
			if slices.Contains(resources, "locked") {
				return db.ErrRowLocked
			}
			for _, name := range resources {
				granted[name] = true
			}
			return nil
		}, w.Log))
		time.Sleep(25 * time.Second)
		synctest.Wait()
		if !granted["a"] || !granted["z"] {
			t.Errorf("of the resources a and z, %v were continued", granted)
		}
	})
}

func do(w *committertest.World) upkeep.Doer {
	return func(ctx context.Context, cmd claim.Command) error {
		_, err := w.Do(ctx, cmd)
		return err
	}
}

// TestGrantsAreNotAskedForAgainAndAgain: a resource where claims wait for shared holders costs hardly anything.
func TestGrantsAreNotAskedForAgainAndAgain(t *testing.T) {
	committertest.Bubble(t, func(t *testing.T, w *committertest.World) {
		w.Must(t, claim.Create{ID: "reader", Resource: "r", Units: claim.Shared, TTL: time.Hour})
		w.Must(t, claim.Create{ID: "writer", Resource: "r", TTL: time.Hour})
		w.Must(t, claim.Create{ID: "holder", Resource: "q", TTL: time.Hour})
		w.Must(t, claim.Create{ID: "next", Resource: "q", TTL: time.Hour})
		asked := 0
		committertest.Run(t, upkeep.NewGranter(w.Store, func(ctx context.Context, cmd claim.Command) error {
			if asked++; fmt.Sprint(cmd) != fmt.Sprint(claim.Expire{Resources: []string{"r"}}) {
				t.Errorf("it asks for %+v", cmd)
			}
			return do(w)(ctx, cmd)
		}, w.Log))
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if asked < 2 || asked > 6 {
			t.Errorf("it asked %d times in ten minutes", asked)
		}
	})
}
