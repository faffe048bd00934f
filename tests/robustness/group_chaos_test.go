//go:build chaos

package robustness_test

import (
	"testing"
	"time"

	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/tests/harness"
)

func TestChaosGaleraPair(t *testing.T) {
	nodes := fixtures.NewGalera(t, 3)
	contend(t, nodes[0].DSN("locket"), nodes[1].DSN("locket"))
}

// probe returns the time that a server takes to grant a lock and to release it.
func (l *load) probe(t *testing.T, server *fixtures.Locket) time.Duration {
	t.Helper()
	l.probes++
	prober, began := &worker{load: l, n: 1000, seq: l.probes, client: server.Client(t)}, time.Now()
	done := make(chan struct{})
	go func() {
		prober.useLock("probe")
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatal("a server grants nothing for a minute")
	}
	return time.Since(began).Round(time.Millisecond)
}

// A member is lost in several ways, and comes back. The server on the other member continues when the group has expelled the lost one.
// Nothing that was acknowledged is lost.
func TestChaosGroupMemberLost(t *testing.T) {
	g := fixtures.NewGroup(t, 3)
	servers := onNodes(t, 3*time.Second, g.Nodes[0].DSN("locket"), g.Nodes[1].DSN("locket"))
	load := startLoad(t, 16, 40, 20*time.Millisecond, servers...)
	for name, fault := range map[string]struct{ begin, end func() error }{
		"killed": {g.Nodes[1].Kill, func() error { return nil }},
		"paused": {g.Nodes[1].Pause, g.Nodes[1].Resume},
	} {
		time.Sleep(time.Second)
		harness.Must(t, fault.begin())
		other := load.probe(t, servers[0])
		harness.Must(t, g.AwaitOnline(0, 2))
		expelled := load.probe(t, servers[0])
		time.Sleep(2 * time.Second)
		harness.Must(t, fault.end())
		harness.Must(t, g.Rejoin(1))
		t.Logf("%s: the other server grants after %v, and after the expulsion after %v; its own when it is back after %v",
			name, other, expelled, load.probe(t, servers[1]))
		load.sample(t, servers[0].Client(t), load.keys)
	}
	load.finish(t, servers[1].Client(t))
	load.checkFIFO(t)
}

// A member that cannot reach a majority grants nothing until it can again. This time does not count for leases.
func TestChaosGroupMinority(t *testing.T) {
	g := fixtures.NewGroup(t, 3)
	server := onNodes(t, 3*time.Second, g.Nodes[0].DSN("locket"))[0]
	client := server.Client(t)
	const ttl = 2 * time.Second
	lockToken, claimToken := hold(t, client, "held", ttl)
	harness.Must(t, g.Nodes[1].Pause())
	harness.Must(t, g.Nodes[2].Pause())
	callersAreTold(t, client, 10*time.Second)
	harness.Must(t, g.Nodes[1].Resume())
	harness.Must(t, g.Nodes[2].Resume())
	harness.Must(t, g.AwaitOnline(0, 3))
	awaitDatabase(t, client)
	stillHeld(t, client, "held", lockToken, claimToken, ttl)
}

// This is the same with the setting of docs/databases.md: a member that cannot reach a majority leaves the group after some time, and
// transactions that wait for the group end. After that callers are refused at once.
func TestChaosGroupMinorityLeaves(t *testing.T) {
	g := fixtures.NewGroup(t, 3)
	harness.Must(t, g.Set(0, "group_replication_unreachable_majority_timeout", 2))
	server := onNodes(t, 3*time.Second, g.Nodes[0].DSN("locket"))[0]
	client := server.Client(t)
	const ttl = 2 * time.Second
	lockToken, claimToken := hold(t, client, "held", ttl)
	harness.Must(t, g.Nodes[1].Pause())
	harness.Must(t, g.Nodes[2].Pause())
	callersAreTold(t, client, 15*time.Second)
	harness.Must(t, g.Await(0, "MEMBER_ID = @@server_uuid AND MEMBER_STATE = 'ERROR'", 1))
	began := time.Now()
	callersAreTold(t, client, time.Millisecond)
	if took := time.Since(began); took > time.Second {
		t.Errorf("callers of a member that has left are told after %v", took)
	}
	harness.Must(t, g.Nodes[1].Resume())
	harness.Must(t, g.Nodes[2].Resume())
	harness.Must(t, g.Rejoin(0))
	awaitDatabase(t, client)
	stillHeld(t, client, "held", lockToken, claimToken, ttl)
}

// With a single primary only the server on it serves. The primary is moved several times, and killed.
func TestChaosGroupPrimaryMoved(t *testing.T) {
	g := fixtures.NewSinglePrimaryGroup(t, 3)
	servers := onNodes(t, 3*time.Second, g.Nodes[0].DSN("locket"))
	harness.Must(t, g.MovePrimary(1))
	servers = append(servers, onNodes(t, 3*time.Second, g.Nodes[1].DSN("locket"))...)
	load := startLoad(t, 16, 40, 20*time.Millisecond, servers...)
	for primary := range 4 {
		primary %= 2
		time.Sleep(time.Second)
		harness.Must(t, g.MovePrimary(primary))
		t.Logf("on the new primary a lock is granted after %v", load.probe(t, servers[primary]))
		load.sample(t, servers[primary].Client(t), load.keys)
	}
	harness.Must(t, g.Nodes[1].Kill())
	harness.Must(t, g.AwaitOnline(0, 2))
	harness.Must(t, g.MovePrimary(0))
	t.Logf("after the primary was killed and another chosen a lock is granted after %v", load.probe(t, servers[0]))
	harness.Must(t, g.Rejoin(1))
	stopped := make(chan struct{})
	go func() {
		load.stop()
		close(stopped)
	}()
	primary := 0
	for done := false; !done; { // each client releases its locks when its server can write
		select {
		case <-stopped:
			done = true
		case <-time.After(3 * time.Second):
			primary = 1 - primary
			harness.Must(t, g.MovePrimary(primary))
		}
	}
	awaitDatabase(t, servers[primary].Client(t))
	load.finish(t, servers[primary].Client(t))
}
