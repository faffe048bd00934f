//go:build chaos

package mysql

import (
	"testing"

	"github.com/locket-service/locket/fixtures"
)

// TestChaosGalera runs the suite on a real cluster of three nodes.
func TestChaosGalera(t *testing.T) {
	nodes := fixtures.NewGalera(t, 3)
	runOnNodes(t, len(nodes), func(node int, database string) string { return nodes[node].DSN(database) })
}

// TestChaosGaleraPackets: on a node of a cluster each statement goes by itself. With several
// in a packet, ServersContend of the suite finds halves of transactions.
func TestChaosGaleraPackets(t *testing.T) {
	node := fixtures.NewGalera(t, 1)[0]
	if s := open(t, node.DSN("packets")); s.packets() {
		t.Error("several statements go in one packet")
	}
}

// TestChaosGaleraOpenTogether: the schema is made once.
func TestChaosGaleraOpenTogether(t *testing.T) {
	nodes := fixtures.NewGalera(t, 3)
	openTogether(t, len(nodes), func(node int, database string) string { return nodes[node].DSN(database) })
}

// TestChaosGaleraLostTransaction: a node of a cluster skips locked rows too, each statement of
// a transaction by itself.
func TestChaosGaleraLostTransaction(t *testing.T) {
	dsn := fixtures.NewGalera(t, 2)[0].DSN("lost")
	lostIsLeftAlone(t, open(t, dsn), dsn)
}
