package server

import (
	"errors"
	"testing"
	"testing/synctest"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/claim"
	"github.com/locket-service/locket/internal/committer"
	"github.com/locket-service/locket/internal/committer/committertest"
)

// TestDoer: a part of the server whose command the committer does not take learns that this is not because of the command: it does not
// cut it in two.
func TestDoer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := committertest.NewBounded(t, 0, 2)
		queues := committertest.Run(t, w.Committer)
		do := doer(w.Committer)
		goOn := w.Store.Hold()
		w.Send(t.Context(), committertest.Lock("under way"))
		w.Send(t.Context(), claim.Expire{Resources: []string{"r"}}, claim.Expire{Resources: []string{"s"}})
		cmd := claim.KeepWaiting{IDs: []string{"a", "b"}}
		if err := do(t.Context(), cmd); !errors.Is(err, committer.ErrOverloaded) || !errors.Is(err, db.ErrUnavailable) {
			t.Errorf("with a full queue: %v", err)
		}
		goOn()
		synctest.Wait()
		committertest.Check(t, do(t.Context(), cmd))
		committertest.Stop(t, queues)
		if err := do(t.Context(), cmd); !errors.Is(err, committer.ErrStopping) || !errors.Is(err, db.ErrUnavailable) {
			t.Errorf("after the end: %v", err)
		}
	})
}
