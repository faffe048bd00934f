package handlers_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/grpcserver"
	whole "github.com/locket-service/locket/internal/program/server"
	"github.com/locket-service/locket/internal/rules/claim"
	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/tests/harness"
)

// TestRequestsTogether: requests that come in one message are taken one by one, in their order; one that is refused changes nothing for the
// others.
func TestRequestsTogether(t *testing.T) {
	bubble(t, func(t *testing.T, server *server) {
		a, b := server.open(t, "a"), server.open(t, "b")
		b.Lock("l", holding)
		first := a.AskTogether(
			harness.LockCommand("k"), harness.LockCommand(""), harness.HeartbeatCommand(), harness.LockCommand("l"), harness.UnlockCommand("k"),
			harness.LockCommand("k", harness.Try),
		)
		got := a.Answers(first, 6)
		was := a.Stands(got[0], "k", holding)
		if e := got[1].GetError(); codes.Code(e.GetCode()) != codes.InvalidArgument || e.GetReason() != "INVALID_FIELD" {
			t.Errorf("got %v", got[1])
		}
		if got[2].GetHeartbeat() == nil {
			t.Errorf("got %v", got[2])
		}
		a.Stands(got[3], "l", inLine)
		a.Stands(got[4], "k", none)
		if again := a.Stands(got[5], "k", holding); again.GetToken() <= was.GetToken() {
			t.Errorf("%v, after %v", again, was)
		}
		b.Unlock("l")
		a.Hears("l", inLine, holding)
		a.Quiet()
	})
}

// TestMostTogether: all of 256 requests in one message are served. A client that reads batches gets up to 64
// responses in one message; other clients get each in its own.
func TestMostTogether(t *testing.T) {
	bubble(t, func(t *testing.T, server *server) {
		a := server.open(t, "a")
		var requests []*models.SessionRequest
		for i := range 256 {
			requests = append(requests, harness.LockCommand(fmt.Sprint(i)))
		}
		for i, answer := range a.Answers(a.AskTogether(requests...), len(requests)) {
			a.Stands(answer, fmt.Sprint(i), holding)
		}
		for _, c := range []struct {
			together bool
			messages int64
		}{{true, 5}, {false, 257}} { // 256 claims, and that it is open
			again := server.dial(t)
			had := again.Open("a", harness.Resume, func(open *models.OpenSession) { open.Batches = c.together })
			resources := make(map[string]bool)
			for _, status := range had {
				resources[status.GetResource()] = true
			}
			if len(had) != 256 || len(resources) != 256 || again.Messages.Load() != c.messages {
				t.Errorf("together: %v: it has %d claims of %d resources, which %d messages told", c.together, len(had), len(resources), again.Messages.Load())
			}
		}
	})
}

// TestOpenTogether: what comes in one message with the request that opens the session is taken after it.
func TestOpenTogether(t *testing.T) {
	bubble(t, func(t *testing.T, server *server) {
		a := server.dial(t)
		first := a.AskTogether(harness.OpenRequest("a"), harness.LockCommand("k"), harness.UnlockCommand("k"))
		got := a.Answers(first, 3)
		if got[0].GetOpened() == nil {
			t.Errorf("got %v", got[0])
		}
		a.Stands(got[1], "k", holding)
		a.Stands(got[2], "k", none)
	})
	bubble(t, func(t *testing.T, server *server) {
		a := server.dial(t)
		a.AskTogether(append([]*models.SessionRequest{harness.OpenRequest("a")}, slices.Repeat([]*models.SessionRequest{harness.LockCommand("k")}, 256)...)...)
		a.Ends(codes.InvalidArgument, "INVALID_FIELD")
		if got := server.sessions(t); len(got) != 0 {
			t.Errorf("there are %v", got)
		}
	})
}

// refusing is a guard that refuses requests for one resource.
func refusing(ctx context.Context, call *grpcserver.Call, next func(context.Context) error) error {
	call.Check(func(message any) error {
		if request, ok := message.(*models.SessionRequest); ok && request.GetLock().GetResource() == "forbidden" {
			return status.Error(codes.PermissionDenied, "forbidden")
		}
		return nil
	})
	return next(ctx)
}

// passedGuards returns a guard that counts the messages that have passed the guards.
func passedGuards(seen *atomic.Int64) grpcserver.Guard {
	return func(ctx context.Context, call *grpcserver.Call, next func(context.Context) error) error {
		call.Checked(func(any, error) { seen.Add(1) })
		return next(ctx)
	}
}

// TestWrongTogether: a message with too many requests, or with one that cannot be decoded, ends the stream. Nothing of
// it is carried out, even if a guard would refuse the first request.
func TestWrongTogether(t *testing.T) {
	tooMany := append([]*models.SessionRequest{harness.LockCommand("forbidden")}, slices.Repeat([]*models.SessionRequest{harness.LockCommand("k")}, 256)...)
	nested := harness.LockCommand("l")
	nested.More = []*models.SessionRequest{harness.LockCommand("k")}
	notUTF8 := harness.LockCommand("bad!")
	for name, requests := range map[string][]*models.SessionRequest{
		"too many":    tooMany,
		"more itself": {harness.LockCommand("forbidden"), harness.LockCommand("k"), nested},
		"not UTF-8":   {harness.LockCommand("forbidden"), harness.LockCommand("k"), notUTF8, harness.LockCommand("l")},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := startGuarded(t, t.TempDir(), asIs, slog.LevelDebug, whole.Guards{May: []grpcserver.Guard{refusing}})
				a := s.open(t, "a")
				for i, request := range requests {
					request.Sequence = uint64(100 + i)
				}
				data, err := proto.Marshal(requests[0]) // before the others: guards see it, even if the rest cannot be decoded
				must(t, err)
				more, err := proto.Marshal(&models.SessionRequest{More: requests[1:]})
				must(t, err)
				raw := new(emptypb.Empty)
				raw.ProtoReflect().SetUnknown(append(data, bytes.ReplaceAll(more, []byte("bad!"), []byte("bad\xff"))...))
				must(t, a.BidiStreamingClient.(grpc.ClientStream).SendMsg(raw))
				a.Ends(codes.InvalidArgument, "INVALID_FIELD")
				b := s.open(t, "b")
				b.Lock("k", holding)
			})
		})
	}
}

// TestMemoryTogether: a message of very many empty requests is refused before it is decoded: that takes fifty times its memory.
func TestMemoryTogether(t *testing.T) {
	bubble(t, func(t *testing.T, server *server) {
		raw := new(emptypb.Empty)
		field := new(models.SessionRequest).ProtoReflect().Descriptor().Fields().ByName("more").Number()
		for range 100_000 {
			raw.ProtoReflect().SetUnknown(protowire.AppendBytes(protowire.AppendTag(raw.ProtoReflect().GetUnknown(), field, protowire.BytesType), nil))
		}
		a := server.open(t, "a")
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		must(t, a.BidiStreamingClient.(grpc.ClientStream).SendMsg(raw))
		a.Ends(codes.InvalidArgument, "INVALID_FIELD")
		runtime.ReadMemStats(&after)
		if n := after.TotalAlloc - before.TotalAlloc; n > 4<<20 {
			t.Errorf("it took %d bytes", n)
		}
	})
}

// TestTogetherBrokenOff: the stream ends after several requests came in one message. No guard sees the remaining
// ones.
func TestTogetherBrokenOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen atomic.Int64
		stuck := make(chan struct{})
		wrap := func(real db.Store) db.Store { return stuckStore{real, stuck} }
		s := startGuarded(t, t.TempDir(), wrap, slog.LevelError, whole.Guards{May: []grpcserver.Guard{passedGuards(&seen)}})
		a := s.open(t, "a")
		for range 5 { // more than there is room for
			a.AskTogether(slices.Collect(func(yield func(*models.SessionRequest) bool) {
				for i := 0; i < 256 && yield(harness.LockCommand(fmt.Sprint("stuck ", i))); i++ {
				}
			})...)
		}
		synctest.Wait()
		before := seen.Load()
		a.BreakOff()
		time.Sleep(time.Second)
		close(stuck)
		synctest.Wait()
		if n := seen.Load() - before; n > 1 {
			t.Errorf("guards have seen %d requests after the stream had broken", n)
		}
	})
}

// stuckStore keeps transactions about resources that are stuck, until the channel is closed.
type stuckStore struct {
	db.Store
	stuck <-chan struct{}
}

func (s stuckStore) Transact(ctx context.Context, b db.Batch) (db.Outcome, db.Completion, error) {
	for _, request := range b.Requests {
		if create, ok := request.Command.(claim.Create); ok && strings.HasPrefix(create.Resource, "stuck") {
			select {
			case <-s.stuck:
			case <-ctx.Done():
				return db.Outcome{}, nil, ctx.Err()
			}
		}
	}
	return s.Store.Transact(ctx, b)
}
