package guard

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/reflection/grpc_reflection_v1"

	"github.com/locket-service/locket/grpcserver"
	"github.com/locket-service/locket/internal/rules/access"
	"github.com/locket-service/locket/models"
)

// TestQuotaThatChanges: a stream keeps the quota that it began with while later calls have another one. Their
// requests are counted together: the bucket refills with time, not by a change of the quota.
func TestQuotaThatChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limit := Limit()
		ask := func(quota *access.Quota) bool {
			ctx := access.WithCaller(t.Context(), func() access.Caller {
				return access.Caller{Identity: access.Identity{Name: "credential:ci"}, Quota: quota}
			})
			err := limit(ctx, &grpcserver.Call{FullMethod: models.Locket_WhoAmI_FullMethodName}, func(context.Context) error { return nil })
			if err != nil && models.ReasonOf(err) != models.ReasonQuotaExceeded {
				t.Error(err)
			}
			return err == nil
		}
		before, after, unlimited := &access.Quota{Requests: 1, Burst: 10}, &access.Quota{Requests: 2, Burst: 10}, &access.Quota{Watches: 1}
		answered := func() (n int) {
			for range 50 {
				for _, quota := range []*access.Quota{before, after} {
					if ask(quota) {
						n++
					}
					if !ask(unlimited) {
						t.Error("a quota without requests per second limits them")
					}
				}
			}
			return n
		}
		if n := answered(); n != 10 {
			t.Errorf("%d requests were answered at once, want 10", n)
		}
		time.Sleep(3 * time.Second)
		if n := answered(); n < 3 || n > 6 {
			t.Errorf("%d requests were answered after 3 s, want 3 to 6", n)
		}
		time.Sleep(time.Minute)
		if n := answered(); n != 10 {
			t.Errorf("%d requests were answered after a pause, want 10", n)
		}
	})
}

// TestQuotaBesideManyIdentities: the requests of an identity count against one bucket until it has filled up again,
// however many identities call. Requests before a short pause count too, and those by its streams.
func TestQuotaBesideManyIdentities(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limit := Limit()
		slow, stream := &access.Quota{Requests: 0.001, Burst: 3}, &access.Quota{Requests: 1}
		call := func(name, method string, quota *access.Quota, do func(context.Context) error) error {
			ctx := access.WithCaller(t.Context(), func() access.Caller {
				return access.Caller{Identity: access.Identity{Name: name}, Quota: quota}
			})
			return limit(ctx, &grpcserver.Call{FullMethod: method}, do)
		}
		ask := func(name string, quota *access.Quota) bool {
			return call(name, models.Locket_WhoAmI_FullMethodName, quota, func(context.Context) error { return nil }) == nil
		}
		others := func() {
			for i := range 3 * minUsages {
				if !ask(strconv.Itoa(i), slow) {
					t.Fatal("one of the others has asked once in an hour, and is refused")
				}
			}
		}
		for range slow.Burst {
			ask("slow", slow)
		}
		must(t, call("stream", models.Locket_Session_FullMethodName, stream, func(ctx context.Context) error {
			time.Sleep(2 * time.Minute)
			others()
			must(t, access.PaceOf(ctx)(ctx)) // a command
			if ask("stream", stream) {
				t.Error("what a stream has asked for does not count")
			}
			return nil
		}))
		if ask("slow", slow) {
			t.Error("what was asked for two minutes ago does not count, and the bucket has not filled up")
		}
		time.Sleep(time.Hour)
		others()
		if !ask("slow", slow) || !ask("stream", stream) {
			t.Error("what was asked for an hour ago counts")
		}
	})
}

// questions answers nothing, and counts what a stream of reflection asks.
type questions struct {
	grpc_reflection_v1.UnimplementedServerReflectionServer
	asked int
}

func (q *questions) ServerReflectionInfo(stream grpc_reflection_v1.ServerReflection_ServerReflectionInfoServer) error {
	for ; ; q.asked++ {
		if _, err := stream.Recv(); err != nil {
			return nil
		}
	}
}

// TestReflectionWithQuota: each message of a stream of reflection is a request.
func TestReflectionWithQuota(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		quota, asked := &access.Quota{Requests: 1}, &questions{}
		known := func(ctx context.Context, _ *grpcserver.Call, next func(context.Context) error) error {
			return next(access.WithCaller(ctx, func() access.Caller {
				return access.Caller{Identity: access.Identity{Name: "credential:ci"}, Quota: quota}
			}))
		}
		chain := grpcserver.NewChain(slog.New(slog.DiscardHandler), prometheus.NewRegistry(), known, Limit())
		local := grpcserver.NewLocal(chain, func(s grpc.ServiceRegistrar) { grpc_reflection_v1.RegisterServerReflectionServer(s, asked) })
		stream, err := grpc_reflection_v1.NewServerReflectionClient(local).ServerReflectionInfo(t.Context())
		must(t, err)
		begin := time.Now()
		for range 20 {
			must(t, stream.Send(&grpc_reflection_v1.ServerReflectionRequest{}))
		}
		must(t, stream.CloseSend())
		if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
			t.Error(err)
		}
		if took := time.Since(begin); asked.asked != 20 || took < 19*time.Second {
			t.Errorf("%d questions in %s", asked.asked, took)
		}
	})
}
