//go:build mysql || chaos

package mysql

import (
	"testing"

	"github.com/locket-service/locket/fixtures"
)

// TestGroup runs the suite on a multi-primary group of three nodes.
func TestGroup(t *testing.T) {
	g := fixtures.NewGroup(t, 3)
	runOnNodes(t, len(g.Nodes), func(node int, database string) string { return g.Nodes[node].DSN(database) })
}

// TestGroupOpenTogether: the schema is made once. A member of a group that runs the same
// CREATE TABLE a second time leaves the group for good.
func TestGroupOpenTogether(t *testing.T) {
	g := fixtures.NewGroup(t, 3)
	openTogether(t, len(g.Nodes), func(node int, database string) string { return g.Nodes[node].DSN(database) })
	if err := g.AwaitOnline(0, 3); err != nil {
		t.Error(err)
	}
}
