package guard

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/locket-service/locket/grpcserver"
	"github.com/locket-service/locket/models"
)

// TestAuditOfLongNames: a line has valid names whole, and only the beginnings of longer ones, because lines wait in
// memory while the log cannot be written.
func TestAuditOfLongNames(t *testing.T) {
	for _, asks := range []func(name string) proto.Message{
		func(name string) proto.Message {
			return &models.LockRequest{Resource: &models.Resource{Key: name, Owner: name}}
		},
		func(name string) proto.Message {
			return &models.ReleaseRequest{Resource: &models.Resource{Key: name, Owner: name}}
		},
		func(name string) proto.Message { return &models.CreateClaimRequest{Resource: name, Owner: name} },
		func(name string) proto.Message { return &models.UpdateClaimRequest{Id: name} },
		func(name string) proto.Message { return &models.EndClaimRequest{Id: name} },
		func(name string) proto.Message { return &models.GetClaimRequest{Id: name} },
		func(name string) proto.Message { return &models.AwaitClaimRequest{Id: name} },
		func(name string) proto.Message { return &models.GetSessionRequest{Id: name} },
		func(name string) proto.Message { return &models.EndSessionRequest{Id: name} },
		func(name string) proto.Message { return &models.FetchRequest{Key: name} },
		func(name string) proto.Message { return &models.GetQueueRequest{Resource: name} },
		func(name string) proto.Message { return &models.WatchRequest{Resource: &name} },
		func(name string) proto.Message {
			return &models.SessionRequest{Command: &models.SessionRequest_Open{Open: &models.OpenSession{Id: name}}}
		},
		func(name string) proto.Message {
			return &models.SessionRequest{Command: &models.SessionRequest_Lock{Lock: &models.LockCommand{Resource: name}}}
		},
		func(name string) proto.Message {
			return &models.SessionRequest{Command: &models.SessionRequest_Unlock{Unlock: &models.UnlockCommand{Resource: name}}}
		},
	} {
		for _, c := range []struct{ name, want string }{
			{strings.Repeat("é", 512), strings.Repeat("é", 512)},
			{strings.Repeat("é", 100<<10), strings.Repeat("é", 512) + "…"},
			{"a" + strings.Repeat("é", 512), "a" + strings.Repeat("é", 511) + "…"},
			{"\xff", "\xff"}, // in JSON it is valid
		} {
			message, found := asks(c.name), 0
			for _, attr := range whatOf(message) {
				switch got := attr.Value.String(); {
				case got == c.want:
					found++
				case len(got) > 100:
					t.Errorf("%T: %s has %d bytes, valid: %t, of a name of %d", message, attr.Key, len(got), utf8.ValidString(got), len(c.name))
				}
			}
			if found == 0 {
				t.Errorf("%T: a name of %d bytes is not there", message, len(c.name))
			}
		}
	}
}

// TestAuditBesideAnIssuerThatIsDown: reads by callers that cannot be authenticated now have no audit line, so they do
// not use up the lines for refusals.
func TestAuditBesideAnIssuerThatIsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lines bytes.Buffer
		audit := Audit(AuditLog{Lines: slog.New(slog.NewTextHandler(&lines, nil))}, prometheus.NewRegistry())
		call := func(code codes.Code) (line string) {
			lines.Reset()
			refused := &grpcserver.Call{FullMethod: models.Locket_Fetch_FullMethodName}
			_ = audit(t.Context(), refused, func(context.Context) error {
				refused.Refused = "whatever"
				return status.Error(code, "")
			})
			return lines.String()
		}
		for range 2 * recordedRefusals.Burst {
			if line := call(codes.Unavailable); line != "" {
				t.Fatalf("a line about a read that was not refused: %s", line)
			}
		}
		if line := call(codes.Unauthenticated); line == "" {
			t.Error("a refusal has no line")
		}
	})
}
