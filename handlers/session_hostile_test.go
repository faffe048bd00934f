package handlers_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/locket-service/locket/grpcserver"
	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/tests/harness"
)

// TestOpenRefused: only a valid OpenSession opens a stream, and each refusal names the field and its limit.
func TestOpenRefused(t *testing.T) {
	opens := func(change func(*models.OpenSession)) *models.SessionRequest {
		request := harness.OpenRequest("a", change)
		request.Sequence = 1
		return request
	}
	for name, c := range map[string]struct {
		request *models.SessionRequest
		field   string
		problem string
	}{
		"no command":          {&models.SessionRequest{Sequence: 1}, "open", "must be the first message of the stream"},
		"another command":     {&models.SessionRequest{Sequence: 1, Command: harness.LockCommand("k").GetCommand()}, "open", "must be the first message of the stream"},
		"no sequence":         {harness.OpenRequest("a"), "sequence", "must be greater than 0"},
		"no id":               {opens(func(o *models.OpenSession) { o.Id = "" }), "open.id", `must be 16 to 128 letters, digits and any of "-._~", not dots alone`},
		"a short id":          {opens(func(o *models.OpenSession) { o.Id = "short" }), "open.id", `must be 16 to 128 letters, digits and any of "-._~", not dots alone`},
		"a long id":           {opens(func(o *models.OpenSession) { o.Id = strings.Repeat("a", 129) }), "open.id", `must be 16 to 128 letters, digits and any of "-._~", not dots alone`},
		"a strange id":        {opens(func(o *models.OpenSession) { o.Id = "0123456789abcdef/../" }), "open.id", `must be 16 to 128 letters, digits and any of "-._~", not dots alone`},
		"a short secret":      {opens(func(o *models.OpenSession) { o.Secret = "short" }), "open.secret", "has 5 bytes; it must have 16 to 128"},
		"a long secret":       {opens(func(o *models.OpenSession) { o.Secret = strings.Repeat("a", 129) }), "open.secret", "has 129 bytes; it must have 16 to 128"},
		"a long owner":        {opens(func(o *models.OpenSession) { o.Owner = strings.Repeat("a", 1025) }), "open.owner", "has 1025 bytes, and at most 1024 are allowed"},
		"an owner with a NUL": {opens(func(o *models.OpenSession) { o.Owner = "a\x00" }), "open.owner", "contains a NUL byte"},
		"no ttl":              {opens(harness.SessionTTL(0)), "open.ttl", "must be a number of seconds between 1 and 86400"},
		"a long ttl":          {opens(harness.SessionTTL(86_401)), "open.ttl", "must be a number of seconds between 1 and 86400"},
		"a ttl that is none":  {opens(harness.SessionTTL(0 / zero)), "open.ttl", "must be a number of seconds between 1 and 86400"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, server *server) {
				st := server.dial(t)
				must(t, st.Send(c.request))
				st.Ends(codes.InvalidArgument, "INVALID_FIELD")
				invalid(t, st.Err, c.field)
				if got := c.field + ": " + c.problem; !strings.Contains(st.Err.Error(), got) {
					t.Errorf("%v, want %s", st.Err, got)
				}
			})
		})
	}
}

var zero = 0.0

// TestOpenNever: a stream that opens no session ends.
func TestOpenNever(t *testing.T) {
	bubble(t, func(t *testing.T, server *server) {
		silent, closed := server.dial(t), server.dial(t)
		begin := time.Now()
		must(t, closed.CloseSend())
		closed.Ends(codes.InvalidArgument, "INVALID_FIELD")
		silent.Ends(codes.DeadlineExceeded, "")
		if took := time.Since(begin); took != 10*time.Second {
			t.Errorf("it took %s", took)
		}
	})
}

// TestWrongSecret: a caller without the secret neither gets the session nor disturbs it.
func TestWrongSecret(t *testing.T) {
	bubble(t, func(t *testing.T, server *server) {
		a := server.open(t, "a")
		a.Lock("k", holding)
		for _, more := range []func(*models.OpenSession){harness.Resume, func(*models.OpenSession) {}} {
			thief := server.dial(t)
			thief.Ask(harness.OpenRequest("a", more, func(open *models.OpenSession) { open.Secret = secret + "?" }))
			thief.Ends(codes.PermissionDenied, "SESSION_SECRET")
		}
		a.Lock("k", holding)
		a.Quiet()
	})
}

// TestNoCommand: a message that is not a command ends the stream, and the session may be resumed.
func TestNoCommand(t *testing.T) {
	for name, c := range map[string]struct {
		request proto.Message
		code    codes.Code
		reason  string
	}{
		"a second open":      {&models.SessionRequest{Sequence: 7, Command: harness.OpenRequest("a").GetCommand()}, codes.InvalidArgument, "INVALID_FIELD"},
		"no sequence":        {harness.LockCommand("k"), codes.InvalidArgument, "INVALID_FIELD"},
		"no command":         {&models.SessionRequest{Sequence: 7}, codes.InvalidArgument, "INVALID_FIELD"},
		"no protobuf":        {&anypb.Any{Value: []byte("\xff\xff")}, codes.InvalidArgument, ""},
		"a large one":        {&models.SessionRequest{Sequence: 7, Command: harness.LockCommand("k", func(l *models.LockCommand) { l.Value = strings.Repeat("v", grpcserver.MaxRequest) }).GetCommand()}, codes.ResourceExhausted, ""},
		"257 at once":        {withMore(harness.LockCommand("l"), slices.Repeat([]*models.SessionRequest{harness.LockCommand("l")}, 256)...), codes.InvalidArgument, "INVALID_FIELD"},
		"more of more":       {withMore(harness.LockCommand("l"), withMore(harness.LockCommand("l"), harness.LockCommand("l"))), codes.InvalidArgument, "INVALID_FIELD"},
		"no command in more": {withMore(harness.LockCommand("k"), &models.SessionRequest{Sequence: 8}), codes.InvalidArgument, "INVALID_FIELD"},
		"not valid UTF8":     {&anypb.Any{Value: []byte("\x0a\x01\xff")}, codes.InvalidArgument, "INVALID_FIELD"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, server *server) {
				a := server.open(t, "a")
				a.Lock("k", holding)
				must(t, a.BidiStreamingClient.(grpc.ClientStream).SendMsg(c.request))
				a.Ends(c.code, c.reason)
				if had := server.dial(t).Open("a", harness.Resume); len(had) != 1 {
					t.Errorf("it had %v", had)
				}
			})
		})
	}
}

// withMore returns a request with more in its message.
func withMore(request *models.SessionRequest, more ...*models.SessionRequest) *models.SessionRequest {
	request.Sequence, request.More = 7, more
	return request
}

// TestCommandFields: a command with invalid fields is refused, and the stream continues.
func TestCommandFields(t *testing.T) {
	long := strings.Repeat("a", 1025)
	for name, c := range map[string]struct {
		request *models.SessionRequest
		problem string
	}{
		"no resource":           {harness.LockCommand(""), "resource: is required"},
		"a long resource":       {harness.LockCommand(long), "resource: has 1025 bytes, and at most 1024 are allowed"},
		"a resource with a NUL": {harness.LockCommand("\x00"), "resource: contains a NUL byte"},
		"a long value":          {harness.LockCommand("k", func(l *models.LockCommand) { l.Value = strings.Repeat("v", 65_537) }), "value: has 65537 bytes, and at most 65536 are allowed"},
		"an unknown mode":       {harness.LockCommand("k", func(l *models.LockCommand) { l.Mode = 7 }), "mode: unknown mode 7"},
		"an unknown type":       {harness.LockCommand("k", func(l *models.LockCommand) { l.TypeCode = 7 }), "type_code: unknown type 7"},
		"user data":             {harness.LockCommand("k", func(l *models.LockCommand) { l.UserData = ptr("{") }), "user_data: is not valid JSON"},
		"unlock without":        {harness.UnlockCommand(""), "resource: is required"},
		"unlock with token 0": {&models.SessionRequest{Command: &models.SessionRequest_Unlock{
			Unlock: &models.UnlockCommand{Resource: "k", Token: ptr(uint64(0))},
		}}, "token: must not be 0"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, server *server) {
				a := server.open(t, "a")
				got := a.Answer(a.Ask(c.request)).GetError()
				if codes.Code(got.GetCode()) != codes.InvalidArgument || got.GetReason() != "INVALID_FIELD" || got.GetMessage() != c.problem {
					t.Errorf("got %v, want %s", got, c.problem)
				}
				a.Lock("k", holding)
			})
		})
	}
	t.Run("reset", func(t *testing.T) {
		bubble(t, func(t *testing.T, server *server) {
			server.open(t, "a")
			_, err := server.ResetSessions(t.Context(), &models.ResetSessionsRequest{Keep: []string{"no id"}})
			invalid(t, err, "keep")
			if len(server.sessions(t)) != 1 {
				t.Error("it was carried out")
			}
			_, err = server.ListSessions(t.Context(), &models.ListSessionsRequest{Limit: ptr(uint32(1001))})
			invalid(t, err, "limit")
			_, err = server.ListSessions(t.Context(), &models.ListSessionsRequest{PageToken: "?"})
			invalid(t, err, "page_token")
		})
	})
}

// TestCommandsUnderWay: a server reads only a limited number of unanswered commands of a session, and runs the others
// later.
func TestCommandsUnderWay(t *testing.T) {
	const commands = 5000
	synctest.Test(t, func(t *testing.T) {
		store := &faulty{}
		server := startWith(t, t.TempDir(), store.wrap)
		a := server.open(t, "a")
		release := store.hold()
		go func() {
			for i := range commands {
				if err := a.Send(&models.SessionRequest{Sequence: uint64(i + 10), Command: harness.LockCommand(fmt.Sprint(i)).GetCommand()}); err != nil {
					t.Error(err)
				}
			}
		}()
		synctest.Wait()
		release()
		for range commands {
			if got := a.Next(); got.GetStatus().GetCurrent() != holding {
				t.Fatalf("got %v", got)
			}
		}
	})
}
