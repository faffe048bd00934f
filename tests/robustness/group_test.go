//go:build mysql || chaos

package robustness_test

import (
	"testing"
	"time"

	"github.com/locket-service/locket/fixtures"
)

// onNodes starts a server for each DSN, with a timeout for transactions.
func onNodes(t *testing.T, timeout time.Duration, dsns ...string) (servers []*fixtures.Locket) {
	t.Helper()
	for _, dsn := range dsns {
		servers = append(servers, fixtures.StartLocket(t, "mysql:"+dsn, "--database-timeout", timeout.String()))
	}
	return servers
}

// contend loads servers on nodes of a cluster with requests for the same keys. The rules are kept, and no caller gets an error
// about a conflict.
func contend(t *testing.T, dsns ...string) {
	t.Helper()
	servers := onNodes(t, time.Minute, dsns...)
	load := startLoad(t, 24, 12, 5*time.Millisecond, servers...)
	time.Sleep(6 * time.Second)
	load.finish(t, servers[0].Client(t))
	load.checkFIFO(t)
	load.undisturbed(t)
}

// Two servers on two members of a group keep all rules, as in TestPair on one database.
func TestGroupPair(t *testing.T) {
	nodes := fixtures.NewGroup(t, 3).Nodes
	contend(t, nodes[0].DSN("locket"), nodes[1].DSN("locket"))
}
