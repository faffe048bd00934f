package handlers_test

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/locket-service/locket/grpcserver"
	whole "github.com/locket-service/locket/internal/program/server"
	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/tests/harness"
)

// TestCommandThatCannotBeRecorded: if a required audit log has no room for a command, the command is refused and and
// not executed. The stream continues, and the session keeps its locks.
func TestCommandThatCannotBeRecorded(t *testing.T) {
	record := func(ctx context.Context, call *grpcserver.Call, next func(context.Context) error) error {
		call.Check(func(message any) error {
			if request, ok := message.(*models.SessionRequest); ok && request.GetUnlock() != nil {
				return models.WithInfo(status.New(codes.Unavailable, "the call cannot be recorded"), models.ReasonAuditUnavailable, nil)
			}
			return nil
		})
		return next(ctx)
	}
	synctest.Test(t, func(t *testing.T) {
		s := startGuarded(t, t.TempDir(), asIs, slog.LevelDebug, whole.Guards{May: []grpcserver.Guard{record}})
		st := s.open(t, "a")
		st.Lock("k", holding)
		refused := st.Answer(st.Ask(harness.UnlockCommand("k"))).GetError()
		if refused.GetReason() != models.ReasonAuditUnavailable || codes.Code(refused.GetCode()) != codes.Unavailable {
			t.Errorf("it is answered with %v", refused)
		}
		st.Heartbeat()
		if again := st.Lock("k", holding); again.GetPrevious() != holding {
			t.Errorf("the session stands so: %v", again)
		}
	})
}
