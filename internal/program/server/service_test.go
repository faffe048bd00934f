package server

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/tedsuo/ifrit"
	"github.com/tedsuo/ifrit/grouper"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/db/replica"
	"github.com/locket-service/locket/grpcserver"
	"github.com/locket-service/locket/internal/rules/claim"
	"github.com/locket-service/locket/internal/service/committer"
	"github.com/locket-service/locket/internal/service/committer/committertest"
	"github.com/locket-service/locket/models"
)

// TestDoer: a part of the server whose command the committer does not take learns that this is not because of the command: it does not
// cut it in two.
func TestDoer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := committertest.NewBounded(t, 0, 2)
		queues := committertest.Run(t, w.Committer)
		do := doer(w.Committer)
		goOn := w.Store.Hold()
		w.Send(t.Context(), committertest.Lock("under way"))
		w.Send(t.Context(), claim.Expire{Resources: []string{"r"}}, claim.Expire{Resources: []string{"s"}})
		cmd := claim.KeepWaiting{IDs: []string{"a", "b"}}
		if err := do(t.Context(), cmd); !errors.Is(err, committer.ErrOverloaded) || !errors.Is(err, db.ErrUnavailable) {
			t.Errorf("with a full queue: %v", err)
		}
		goOn()
		synctest.Wait()
		committertest.Check(t, do(t.Context(), cmd))
		committertest.Stop(t, queues)
		if err := do(t.Context(), cmd); !errors.Is(err, committer.ErrStopping) || !errors.Is(err, db.ErrUnavailable) {
			t.Errorf("after the end: %v", err)
		}
	})
}

// TestWaitsOverBoth: the calls that wait over gRPC and over REST count together.
func TestWaitsOverBoth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, err := replica.Open(filepath.Join(t.TempDir(), "data"))
		must(t, err)
		defer func() { must(t, store.Close()) }()
		config := Config{DatabaseTimeout: time.Second, HistoryRetention: time.Hour, HistoryLimit: 1000, MaxWaiting: 1}
		service := NewService(config, store, slog.New(slog.DiscardHandler), prometheus.NewRegistry(), Guards{})
		process := ifrit.Invoke(grouper.NewOrdered(os.Interrupt, service.Members))
		dial := func() models.LocketClient {
			return models.NewLocketClient(grpcserver.NewLocal(service.Chain, service.Register))
		}
		one, other := dial(), dial()
		for _, id := range []string{"holds", "waits"} {
			_, err := one.CreateClaim(t.Context(), &models.CreateClaimRequest{Id: id, Resource: "r", Ttl: proto.Float64(3600)})
			must(t, err)
		}
		waited := make(chan error)
		go func() {
			_, err := one.AwaitClaim(t.Context(), &models.AwaitClaimRequest{Id: "waits"})
			waited <- err
		}()
		synctest.Wait()
		if _, err := other.AwaitClaim(t.Context(), &models.AwaitClaimRequest{Id: "waits", Timeout: durationpb.New(time.Second)}); models.ReasonOf(err) != models.ReasonTooManyWaiting {
			t.Errorf("a second call, over the other one: %v", err)
		}
		service.Drain()
		if err := <-waited; models.ReasonOf(err) != models.ReasonShuttingDown {
			t.Error(err)
		}
		process.Signal(os.Interrupt)
		must(t, <-process.Wait())
	})
}
