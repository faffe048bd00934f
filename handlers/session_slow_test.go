package handlers_test

import (
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/grpcserver"
	whole "github.com/locket-service/locket/internal/program/server"
	"github.com/locket-service/locket/internal/rules/claim"
	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/tests/harness"
)

// slowStore takes its time to read the claims of a session.
type slowStore struct{ db.Store }

func (s slowStore) Live(ctx context.Context, of db.LiveOf, page db.Page) ([]claim.Claim, error) {
	if of.Session != "" {
		time.Sleep(4 * time.Second) // real time: none, the tests are in bubbles
	}
	return s.Store.Live(ctx, of, page)
}

// TestSlowOpen: a client cannot send anything while its session is being opened, and that does not count as silence.
func TestSlowOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := startWith(t, t.TempDir(), func(real db.Store) db.Store { return slowStore{real} })
		a := s.open(t, "a", harness.SessionTTL(6))
		time.Sleep(2 * time.Second)
		a.Lock("k", holding)
	})
}

// TestDeadWithoutRoom: a client dies while one of its commands waits for room, because it has not read its answers. Its
// session still ends a TTL after it was last heard.
func TestDeadWithoutRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen atomic.Int64
		s := startGuarded(t, t.TempDir(), asIs, slog.LevelError, whole.Guards{May: []grpcserver.Guard{passedGuards(&seen)}})
		b := s.open(t, "b", harness.SessionTTL(3600))
		conn := s.connect(grpc.WithInitialWindowSize(65535))
		defer conn.Close()
		a, err := models.NewLocketClient(conn).Session(t.Context())
		must(t, err)
		send := func(request *models.SessionRequest) (read bool) {
			before := seen.Load()
			must(t, a.Send(request))
			synctest.Wait()
			return seen.Load() > before
		}
		open := harness.OpenRequest("a", harness.SessionTTL(20))
		lock := harness.LockCommand("k")
		open.Sequence, lock.Sequence = 1, 2
		if !send(open) || !send(lock) {
			t.Fatal("they are not read")
		}
		b.Lock("k", inLine)
		for sequence := uint64(3); ; sequence++ {
			unlock := harness.UnlockCommand(strings.Repeat("n", 1000))
			if unlock.Sequence = sequence; !send(unlock) {
				break // the one before waits for room
			}
		}
		if !b.Heard(21 * time.Second) {
			t.Error("it holds what it held for more than its TTL")
		}
	})
}
