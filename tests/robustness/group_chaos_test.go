//go:build chaos

package robustness_test

import (
	"context"
	"testing"
	"time"

	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/tests/harness"
)

func TestChaosGaleraPair(t *testing.T) {
	nodes := fixtures.NewGalera(t, 3)
	contend(t, onNodes(t, nodes[0].DSN("locket"), nodes[1].DSN("locket")))
}

// awaitLock returns how long it took until a server grants a lock.
func awaitLock(t *testing.T, server *fixtures.Locket, within time.Duration) time.Duration {
	t.Helper()
	client, began := server.Client(t), time.Now()
	harness.Eventually(t, within, func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		_, err := client.Lock(ctx, &models.LockRequest{Resource: &models.Resource{Key: "probe", Owner: "probe"}, TtlInSeconds: int64(loadTTL / time.Second)})
		return err
	})
	return time.Since(began).Round(time.Millisecond)
}

// endProbe gives the lock of awaitLock back.
func endProbe(t *testing.T, server *fixtures.Locket) {
	t.Helper()
	_, err := server.Client(t).Release(t.Context(), &models.ReleaseRequest{Resource: &models.Resource{Key: "probe", Owner: "probe"}})
	harness.Must(t, err)
}

// A member is lost, one way or the other, and comes back. The server on the other member goes
// on when the group has expelled it; nothing that was acknowledged is lost.
func TestChaosGroupMemberLost(t *testing.T) {
	g := fixtures.NewGroup(t, 3)
	servers := onNodes(t, g.Nodes[0].DSN("locket"), g.Nodes[1].DSN("locket"))
	load := startLoad(t, 16, 40, 20*time.Millisecond, servers...)
	for name, fault := range map[string]struct{ begin, end func() error }{
		"killed": {g.Nodes[1].Kill, func() error { return nil }},
		"paused": {g.Nodes[1].Pause, g.Nodes[1].Resume},
	} {
		time.Sleep(time.Second)
		harness.Must(t, fault.begin())
		other := awaitLock(t, servers[0], 30*time.Second)
		harness.Must(t, g.AwaitOnline(0, 2))
		expelled := awaitLock(t, servers[0], 10*time.Second)
		time.Sleep(2 * time.Second)
		harness.Must(t, fault.end())
		harness.Must(t, g.Rejoin(1))
		t.Logf("%s: the other server grants after %v, and after the expulsion after %v; its own when it is back after %v",
			name, other, expelled, awaitLock(t, servers[1], 30*time.Second))
		harness.Must(t, load.sample(t.Context(), servers[0].Client(t), load.keys))
	}
	endProbe(t, servers[0])
	load.finish(t, servers[1].Client(t))
	load.checkFIFO(t)
}

// A member that cannot reach a majority grants nothing, and continues when it can again. The
// time does not count for leases.
func TestChaosGroupMinority(t *testing.T) {
	g := fixtures.NewGroup(t, 3)
	server := onNodes(t, g.Nodes[0].DSN("locket"))[0]
	client := server.Client(t)
	const ttl = 2 * time.Second
	lockToken, claimToken := hold(t, client, "held", ttl)
	harness.Must(t, g.Nodes[1].Pause())
	harness.Must(t, g.Nodes[2].Pause())
	callersAreTold(t, client, 10*time.Second)
	harness.Must(t, g.Nodes[1].Resume())
	harness.Must(t, g.Nodes[2].Resume())
	harness.Must(t, g.AwaitOnline(0, 3))
	t.Logf("grants again after %v", awaitLock(t, server, 30*time.Second))
	stillHeld(t, client, "held", lockToken, claimToken, ttl)
}

// With one primary, only the server on it serves. The primary is moved to and fro, and killed.
func TestChaosGroupPrimaryMoved(t *testing.T) {
	g := fixtures.NewSinglePrimaryGroup(t, 3)
	servers := onNodes(t, g.Nodes[0].DSN("locket"))
	harness.Must(t, g.MovePrimary(1))
	servers = append(servers, onNodes(t, g.Nodes[1].DSN("locket"))...)
	load := startLoad(t, 16, 40, 20*time.Millisecond, servers...)
	for primary := range 4 {
		primary %= 2
		time.Sleep(time.Second)
		harness.Must(t, g.MovePrimary(primary))
		t.Logf("on the new primary a lock is granted after %v", awaitLock(t, servers[primary], 30*time.Second))
		harness.Must(t, load.sample(t.Context(), servers[primary].Client(t), load.keys))
	}
	harness.Must(t, g.Nodes[1].Kill())
	harness.Must(t, g.AwaitOnline(0, 2))
	harness.Must(t, g.MovePrimary(0))
	t.Logf("after the primary was killed and another chosen a lock is granted after %v", awaitLock(t, servers[0], 30*time.Second))
	harness.Must(t, g.Rejoin(1))
	stopped := make(chan struct{})
	go func() {
		load.stop()
		close(stopped)
	}()
	primary := 0
	for done := false; !done; { // each client releases what it holds when its server may write
		select {
		case <-stopped:
			done = true
		case <-time.After(3 * time.Second):
			primary = 1 - primary
			harness.Must(t, g.MovePrimary(primary))
		}
	}
	awaitLock(t, servers[primary], 30*time.Second)
	endProbe(t, servers[primary])
	load.finish(t, servers[primary].Client(t))
}
