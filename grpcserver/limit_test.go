package grpcserver_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"

	"github.com/locket-service/locket/grpcserver"
	"github.com/locket-service/locket/models"
)

// TestLimit: the limit holds for gRPC and local calls together. New work is refused first, calls that wait for a claim
// do not count, and there is room again for each call that ends.
func TestLimit(t *testing.T) {
	const limit = 4
	metrics := prometheus.NewRegistry()
	var ending chan struct{}
	handled := func(ctx context.Context) error {
		select {
		case <-ending:
		case <-ctx.Done():
		}
		return nil
	}
	limited := grpcserver.Limit(limit, metrics)
	bubble(t, config{lock: handled, guards: []grpcserver.Guard{limited}}, func(t *testing.T, s *server) {
		ending = make(chan struct{}) // of the bubble
		local := models.NewLocketClient(s.local)
		begin := func(client models.LocketClient, call func(context.Context, models.LocketClient) error) <-chan error {
			done := make(chan error, 1)
			go func() { done <- call(t.Context(), client) }()
			synctest.Wait()
			return done
		}
		lock := func(ctx context.Context, c models.LocketClient) error {
			_, err := c.Lock(ctx, &models.LockRequest{})
			return err
		}
		await := func(ctx context.Context, c models.LocketClient) error {
			_, err := c.AwaitClaim(ctx, &models.AwaitClaimRequest{})
			return err
		}
		create := func(ctx context.Context, c models.LocketClient) error { // not implemented by this service
			_, err := c.CreateClaim(ctx, &models.CreateClaimRequest{})
			return err
		}
		refused := func(what string, err error) {
			t.Helper()
			if status.Code(err) != codes.ResourceExhausted || models.ReasonOf(err) != models.ReasonOverloaded {
				t.Errorf("%s: got %v", what, err)
			}
		}
		underWay := func(want float64) {
			t.Helper()
			synctest.Wait()
			families, err := metrics.Gather()
			must(t, err)
			if got := families[0].GetMetric()[0].GetGauge().GetValue(); got != want {
				t.Errorf("%v calls are under way, want %v", got, want)
			}
		}
		var calls []<-chan error
		for range limit { // these wait, and do not count
			calls = append(calls, begin(s, await), begin(local, await))
		}
		calls = append(calls, begin(s, lock))
		wantCode(t, <-begin(s, create), codes.Unimplemented)
		calls = append(calls, begin(local, lock))
		for _, client := range []models.LocketClient{s, local} {
			refused("new work", <-begin(client, create))
		}
		calls = append(calls, begin(s, lock), begin(local, lock))
		underWay(limit)
		for _, client := range []models.LocketClient{s, local} {
			refused("a renewal", <-begin(client, lock))
			refused("new work", <-begin(client, create))
		}
		underWay(limit)
		close(ending)
		for _, call := range calls {
			must(t, <-call)
		}
		underWay(0)
		must(t, <-begin(local, lock))
		wantCode(t, <-begin(s, create), codes.Unimplemented)
	})
}

// TestLimitAfterPanics: a handler that panics frees its room.
func TestLimitAfterPanics(t *testing.T) {
	limited := grpcserver.Limit(1, prometheus.NewRegistry())
	bubble(t, config{
		lock:   func(context.Context) error { panic("a bug") },
		guards: []grpcserver.Guard{limited},
	}, func(t *testing.T, s *server) {
		for range 3 {
			wantCode(t, <-s.call(t.Context()), codes.Internal)
		}
	})
}

// TestShareOfTheLimit: an identity that uses all the room for new work does not exclude the others.
func TestShareOfTheLimit(t *testing.T) {
	const limit = 16
	ending := make(chan struct{})
	limited := grpcserver.Limit(limit, prometheus.NewRegistry())
	begin := func(identity, method string) error {
		done := make(chan error, 1)
		go func() {
			call := &grpcserver.Call{FullMethod: method}
			call.Identify(identity)
			done <- limited(t.Context(), call, func(context.Context) error {
				done <- nil
				<-ending
				return nil
			})
		}()
		return <-done
	}
	is := func(want codes.Code, identity, method string) {
		t.Helper()
		if err := begin(identity, method); status.Code(err) != want {
			t.Errorf("%s of %s: %v, want %s", method, identity, err, want)
		}
	}
	read, renew := models.Locket_GetClaim_FullMethodName, models.Locket_UpdateClaim_FullMethodName
	for range limit / 2 {
		is(codes.OK, "noisy", read)
	}
	is(codes.ResourceExhausted, "noisy", read)
	for range limit / 4 { // its share
		is(codes.OK, "modest", read)
	}
	is(codes.ResourceExhausted, "modest", read)
	is(codes.ResourceExhausted, "third", read)
	for range limit / 4 {
		is(codes.OK, "third", renew)
	}
	is(codes.ResourceExhausted, "third", renew)
	close(ending)
}

// TestReflectionTakesNoRoom: streams of reflection, which last as long as their callers like, leave the room of requests; they have a bound of their own.
func TestReflectionTakesNoRoom(t *testing.T) {
	const limit = 4
	limited := grpcserver.Limit(limit, prometheus.NewRegistry())
	synctest.Test(t, func(t *testing.T) {
		ended := make(chan struct{})
		defer close(ended)
		started, refused := 0, error(nil)
		begin := func(call *grpcserver.Call) {
			go func() {
				err := limited(t.Context(), call, func(context.Context) error {
					started++
					<-ended
					return nil
				})
				if err != nil {
					refused = err
				}
			}()
			synctest.Wait()
		}
		for refused == nil && started < 10_000 {
			begin(&grpcserver.Call{FullMethod: grpc_reflection_v1.ServerReflection_ServerReflectionInfo_FullMethodName, Stream: true})
		}
		if started < 100*limit || models.ReasonOf(refused) != models.ReasonOverloaded {
			t.Errorf("%d streams, then %v", started, refused)
		}
		refused = nil
		begin(&grpcserver.Call{FullMethod: models.Locket_CreateClaim_FullMethodName})
		must(t, refused)
	})
}
