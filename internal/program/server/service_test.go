package server

import (
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

	"github.com/locket-service/locket/db/replica"
	"github.com/locket-service/locket/grpcserver"
	"github.com/locket-service/locket/models"
)

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
