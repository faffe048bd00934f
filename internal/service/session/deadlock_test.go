package session_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/rules/claim"
	"github.com/locket-service/locket/internal/service/committer/committertest"
	"github.com/locket-service/locket/internal/service/session"
	"github.com/locket-service/locket/internal/service/waits"
)

// detect ends deadlocks beside a committer.
func detect(t *testing.T, w *committertest.World) {
	t.Helper()
	d := waits.NewDetector(w.Store, func(ctx context.Context, cmd claim.Command) (claim.Claim, error) {
		result, err := w.Do(ctx, cmd)
		return result.Claim, err
	}, w.Log, prometheus.NewRegistry())
	w.Listen(d)
	committertest.Run(t, d)
}

// closeCircle has sessions a and b hold x and y, and wait for each other's, first a.
func closeCircle(t *testing.T, a, b *session.Attached) {
	t.Helper()
	do(t, a, session.Lock{Sequence: 2, Resource: "x"})
	do(t, b, session.Lock{Sequence: 2, Resource: "y"})
	expect(t, do(t, a, session.Lock{Sequence: 3, Resource: "y"}), "y: 0 to 1 (waiting, )")
	time.Sleep(time.Millisecond)
	expect(t, do(t, b, session.Lock{Sequence: 3, Resource: "x"}), "x: 0 to 1 (waiting, )")
}

// TestDeadlock: two sessions wait for each other. The later one is told once that its claim was aborted, and why. The
// other gets its resource when that is released.
func TestDeadlock(t *testing.T) {
	bubble(t, session.Config{}, func(t *testing.T, w *committertest.World, m *session.Manager) {
		detect(t, w)
		a, b := open(t, m, "a"), open(t, m, "b")
		closeCircle(t, a, b)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if got := heard(t, b); !strings.HasPrefix(got, "x: 1 to 0 (aborted, "+claim.ReasonDeadlock) || strings.Contains(got, ";") {
			t.Errorf("b heard %s", got)
		}
		do(t, b, session.Unlock{Sequence: 4, Resource: "y"})
		synctest.Wait()
		expect(t, heard(t, a), "y: 1 to 2 (active, )")
	})
}

// TestDeadlockOutlivesTheStream: the claim of a session is examined even if its stream breaks as soon as it waits, or
// before the answer. Another stream that resumes the session finds it ended.
func TestDeadlockOutlivesTheStream(t *testing.T) {
	for name, answered := range map[string]bool{"after the answer": true, "before the answer": false} {
		t.Run(name, func(t *testing.T) {
			bubble(t, session.Config{}, func(t *testing.T, w *committertest.World, m *session.Manager) {
				detect(t, w)
				a, b := open(t, m, "a"), open(t, m, "b")
				do(t, a, session.Lock{Sequence: 2, Resource: "x"})
				do(t, b, session.Lock{Sequence: 2, Resource: "y"})
				do(t, a, session.Lock{Sequence: 3, Resource: "y"})
				time.Sleep(time.Millisecond)
				goOn := w.Store.Hold()
				if answered {
					goOn()
				}
				b.Room(t.Context())
				b.Do(session.Lock{Sequence: 3, Resource: "x"})
				synctest.Wait()
				b.End(session.ErrDetached)
				goOn()
				time.Sleep(2 * time.Second)
				expect(t, heard(t, open(t, m, "b")), "y: 2 to 2 (active, )")
				expect(t, heard(t, a), "")
			})
		})
	}
}

// TestDeadlockEndedElsewhere: a session is told once that its claim was aborted, even if another server has done that
// and this one learns of it by a read.
func TestDeadlockEndedElsewhere(t *testing.T) {
	bubble(t, session.Config{}, func(t *testing.T, w *committertest.World, m *session.Manager) {
		a, b := open(t, m, "a"), open(t, m, "b")
		closeCircle(t, a, b)
		claims := make(map[string]string) // by session and resource
		for _, id := range []string{"a", "b"} {
			of, err := w.Store.Live(t.Context(), db.LiveOf{Session: id}, db.Page{})
			committertest.Check(t, err)
			for _, c := range of {
				claims[id+c.Resource] = c.ID
			}
		}
		committertest.Transact(t, w.Store.Store, claim.EndDeadlock{Waits: []claim.Wait{
			{Waiter: claims["bx"], Blocker: claims["ax"]}, {Waiter: claims["ay"], Blocker: claims["by"]},
		}})
		for range 3 {
			b.Missed()
			synctest.Wait()
		}
		expect(t, heard(t, b), "x: 1 to 0 (aborted, "+claim.ReasonDeadlock+claims["bx"]+", "+claims["ay"]+")")
		expect(t, do(t, b, session.Lock{Sequence: 4, Resource: "x"}), "x: 0 to 1 (waiting, )")
	})
}
