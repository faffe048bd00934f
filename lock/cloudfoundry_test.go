package lock_test

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/tedsuo/ifrit"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/locket-service/locket/lock"
	"github.com/locket-service/locket/models"
)

// theirs acts like the runner of Cloud Foundry's package lock: it calls Lock every retry interval. After the first
// error while it holds, a lock's runner ends, and a presence's continues. It ignores tokens.
type theirs struct {
	client     models.LocketClient
	resource   *models.Resource
	exitOnLoss bool
}

func (r theirs) Run(signals <-chan os.Signal, ready chan<- struct{}) error {
	var acquired, isReady bool
	lock := func() error {
		ctx, cancel := context.WithTimeout(context.Background(), ttl)
		defer cancel()
		_, err := r.client.Lock(ctx, &models.LockRequest{Resource: r.resource, TtlInSeconds: int64(ttl.Seconds())}, grpc.WaitForReady(true))
		if err == nil && !isReady {
			close(ready)
			isReady = true
		}
		lost := acquired && err != nil && r.exitOnLoss
		acquired = err == nil
		if lost {
			return err
		}
		return nil
	}
	_ = lock()
	for {
		select {
		case <-signals:
			_, _ = r.client.Release(context.Background(), &models.ReleaseRequest{Resource: r.resource})
			return nil
		case <-time.After(retry): // real time: none, worlds are in bubbles
			if err := lock(); err != nil {
				return err
			}
		}
	}
}

// TestTheirClient: Cloud Foundry's client works here as with its own server.
func TestTheirClient(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		theirLock := func(owner string) *models.Resource {
			return &models.Resource{Key: "bbs", Owner: owner, Value: "{}", Type: models.LockType, TypeCode: models.TypeCode_LOCK}
		}
		first := ifrit.Invoke(theirs{w.rpc(), theirLock("z1"), true})
		second := ifrit.Background(theirs{w.rpc(), theirLock("z2"), true})
		cell := ifrit.Invoke(theirs{w.rpc(), &models.Resource{Key: "cell-1", Owner: "c", Value: "10.0.0.1", Type: models.PresenceType}, false})
		time.Sleep(2 * time.Minute)
		if isReady(second) {
			t.Error("the second got the lock")
		}
		// A collision is recognized by code and message, nothing else.
		_, err := w.rpc().Lock(t.Context(), &models.LockRequest{Resource: theirLock("z3"), TtlInSeconds: 15})
		want := status.Convert(models.ErrLockCollision)
		if got := status.Convert(err); got.Code() != want.Code() || got.Message() != want.Message() {
			t.Errorf("a collision: %v", err)
		}
		// Locking again updates the value.
		updated := theirLock("z1")
		updated.Value = `{"url": "new"}`
		_, err = w.rpc().Lock(t.Context(), &models.LockRequest{Resource: updated, TtlInSeconds: 15})
		must(t, err)
		got, err := w.rpc().Fetch(t.Context(), &models.FetchRequest{Key: "bbs"})
		must(t, err)
		if !proto.Equal(got.GetResource(), updated) {
			t.Errorf("fetched %v, want %v", got.GetResource(), updated)
		}
		// Presences are found by either way to name the type.
		for _, req := range []*models.FetchAllRequest{{Type: models.PresenceType}, {TypeCode: models.TypeCode_PRESENCE}} {
			list, err := w.rpc().FetchAll(t.Context(), req)
			must(t, err)
			if r := list.GetResources(); len(r) != 1 || r[0].GetKey() != "cell-1" || r[0].GetTypeCode() != models.TypeCode_PRESENCE {
				t.Errorf("the presences by %v: %v", req, list)
			}
		}
		begin := time.Now()
		must(t, end(first))
		<-second.Ready()
		if took := time.Since(begin); took > retry {
			t.Errorf("the second took over after %s", took)
		}
		// Their runners and ours exclude each other, and take over from each other.
		ours := ifrit.Background(lock.NewLockRunner(w.rpc(), resource("bbs", "ours"), ttl, retry))
		time.Sleep(time.Minute)
		if isReady(ours) {
			t.Error("ours got the lock while theirs holds it")
		}
		must(t, end(second))
		<-ours.Ready()
		must(t, errors.Join(end(ours), end(cell)))
	})
}

// tokenless is a server without tokens, as Cloud Foundry's is.
type tokenless struct{ models.LocketClient }

func (c tokenless) Lock(ctx context.Context, in *models.LockRequest, opts ...grpc.CallOption) (*models.LockResponse, error) {
	_, err := c.LocketClient.Lock(ctx, &models.LockRequest{Resource: in.GetResource(), TtlInSeconds: in.GetTtlInSeconds()}, opts...)
	return &models.LockResponse{}, err
}

func (c tokenless) Release(ctx context.Context, in *models.ReleaseRequest, opts ...grpc.CallOption) (*models.ReleaseResponse, error) {
	return c.LocketClient.Release(ctx, &models.ReleaseRequest{Resource: in.GetResource()}, opts...)
}

// TestTheirServer: our runners work with a server that has no tokens.
func TestTheirServer(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		var d diary
		first := lock.NewLockRunner(tokenless{w.rpc()}, resource("k", "a"), ttl, retry, d.callbacks())
		p := ifrit.Invoke(first)
		q := ifrit.Background(lock.NewLockRunner(tokenless{w.rpc()}, resource("k", "b"), ttl, retry))
		time.Sleep(time.Minute)
		if _, held := first.Held(); !held || isReady(q) {
			t.Errorf("held %t, the second is ready: %t", held, isReady(q))
		}
		w.take("k", "a")
		if err := <-p.Wait(); !errors.Is(err, models.ErrLockCollision) {
			t.Errorf("got %v", err)
		}
		<-q.Ready()
		must(t, end(q))
		w.holds("", "k")
	})
}

// replacing is a server with tokens that ignores the token of a renewal, and may answer it with a new grant.
type replacing struct{ models.LocketClient }

func (c replacing) Lock(ctx context.Context, in *models.LockRequest, opts ...grpc.CallOption) (*models.LockResponse, error) {
	return c.LocketClient.Lock(ctx, &models.LockRequest{Resource: in.GetResource(), TtlInSeconds: in.GetTtlInSeconds()}, opts...)
}

// TestTokenChanged: a renewal that returns another token is a loss. A lock is released; a presence continues with the new
// grant.
func TestTokenChanged(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		var d diary
		p := ifrit.Invoke(lock.NewLockRunner(replacing{unwatched{w.rpc()}}, resource("k", "a"), ttl, retry))
		presence := lock.NewPresenceRunner(replacing{unwatched{w.rpc()}}, resource("p", "a"), ttl, retry, d.callbacks())
		q := ifrit.Invoke(presence)
		before, _ := presence.Held()
		for _, key := range []string{"k", "p"} {
			w.release(key, "a")
		}
		if err := <-p.Wait(); !errors.Is(err, lock.ErrTokenChanged) || !errors.Is(err, lock.ErrLost) {
			t.Errorf("got %v", err)
		}
		time.Sleep(2 * retry) // the release is in the background, after the margin; and the presence is renewed within 5 s, and announced again 1.5 s later
		w.holds("", "k")
		if after, held := presence.Held(); !held || after <= before {
			t.Errorf("held %t, token %d after %d", held, after, before)
		}
		d.says(t, "acquired, lost, acquired")
		must(t, end(q))
	})
}
