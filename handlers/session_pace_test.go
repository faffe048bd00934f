package handlers_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/grpcserver"
	"github.com/locket-service/locket/internal/doors/guard/guardtest"
	whole "github.com/locket-service/locket/internal/program/server"
	"github.com/locket-service/locket/internal/rules/access"
	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/tests/harness"
)

// TestPacedCommands: commands that come faster than a quota allows are carried out later, in their order. Heartbeats do not wait
// for them, and the client is not taken for silent.
func TestPacedCommands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := startGuarded(t, t.TempDir(), asIs, slog.LevelDebug, whole.Guards{Who: guardtest.Limited(access.Quota{Requests: 1})})
		st := s.open(t, "a", harness.SessionTTL(10))
		begin := time.Now()
		var asked, answered []uint64
		for i := range 60 {
			name := fmt.Sprint("k", i)
			asked = append(asked, st.Ask(harness.LockCommand(name)), st.Ask(harness.UnlockCommand(name)))
		}
		for len(answered) < len(asked) {
			sent := time.Now()
			heartbeat := st.Ask(harness.HeartbeatCommand())
			for {
				response := st.Next()
				if response.GetSequence() == heartbeat {
					break
				}
				if response.GetStatus() == nil {
					t.Fatalf("got %v", response)
				}
				answered = append(answered, response.GetSequence())
			}
			if took := time.Since(sent); took > db.BeatInterval {
				t.Fatalf("a heartbeat was answered after %s", took)
			}
			time.Sleep(3 * time.Second)
		}
		if took := time.Since(begin); took < time.Duration(len(asked)-2)*time.Second {
			t.Errorf("%d commands took %s", len(asked), took)
		}
		if !slices.Equal(answered, asked) {
			t.Errorf("the commands %v were answered in the order %v", asked, answered)
		}
	})
}

// TestPacedCommandsAreBounded: a stream is read no further when its commands that wait take much memory.
func TestPacedCommandsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := startGuarded(t, t.TempDir(), asIs, slog.LevelDebug, whole.Guards{Who: guardtest.Limited(access.Quota{Requests: 1})})
		st := s.open(t, "a", harness.SessionTTL(3600))
		var sent atomic.Int64
		go func() {
			for i := range uint64(1000) {
				command := harness.LockCommand(fmt.Sprint("k", i), func(l *models.LockCommand) { l.Value = strings.Repeat("v", 64<<10) })
				command.Sequence = i + 2
				if st.Send(command) != nil {
					return
				}
				sent.Add(1)
			}
		}()
		synctest.Wait()
		if n := sent.Load(); n > 100 {
			t.Errorf("%d commands of 64 KiB were read", n)
		}
	})
}

// TestRefusedCommandsArePaced: a command that a guard refuses counts like one that is carried out, and is answered in its
// turn.
func TestRefusedCommandsArePaced(t *testing.T) {
	refuse := func(ctx context.Context, call *grpcserver.Call, next func(context.Context) error) error {
		call.Check(func(message any) error {
			if strings.HasPrefix(message.(*models.SessionRequest).GetLock().GetResource(), "forbidden") {
				return status.Error(codes.PermissionDenied, "no rule allows it")
			}
			return nil
		})
		return next(ctx)
	}
	synctest.Test(t, func(t *testing.T) {
		guards := whole.Guards{Who: guardtest.Limited(access.Quota{Requests: 1}), May: []grpcserver.Guard{refuse}}
		s := startGuarded(t, t.TempDir(), asIs, slog.LevelDebug, guards)
		st := s.open(t, "a", harness.SessionTTL(600))
		begin := time.Now()
		var asked []uint64
		for i := range 20 {
			asked = append(asked, st.Ask(harness.LockCommand(fmt.Sprint("forbidden", i))), st.Ask(harness.LockCommand(fmt.Sprint("k", i))))
		}
		for i, sequence := range asked {
			response := st.Next()
			refused := codes.Code(response.GetError().GetCode()) == codes.PermissionDenied
			if response.GetSequence() != sequence || refused != (i%2 == 0) {
				t.Errorf("command %d is answered with %v", sequence, response)
			}
		}
		if took := time.Since(begin); took < time.Duration(len(asked)-2)*time.Second {
			t.Errorf("%d commands took %s", len(asked), took)
		}
	})
}
