//go:build chaos

package mysql

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/locket-service/locket/db/backup"
	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/internal/rules/claim"
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

// TestChaosGaleraTwoRestores: of two restores at two nodes, one fills the database, for longer than its turn lasts without a renewal, and the other
// waits, and is refused.
func TestChaosGaleraTwoRestores(t *testing.T) {
	nodes := fixtures.NewGalera(t, 3)
	const claims = 3 * maxKeys
	fill := func(node int, started func()) error {
		return Fill(t.Context(), patient(t, nodes[node].DSN("restored")), func(to backup.Sink) error {
			must(t, to.Begin(backup.Head{}))
			started()
			for i := range claims {
				if err := to.Ended(&claim.Claim{ID: fmt.Sprint(i), Resource: "r", Status: claim.Released, Version: 1}); err != nil {
					return err
				}
			}
			return to.End(backup.Head{})
		})
	}
	second := make(chan error, 1)
	must(t, fill(0, func() {
		go func() { second <- fill(1, func() { t.Error("both fill it") }) }()
		time.Sleep(migrateLease + time.Second) // real time: its turn is kept for it
	}))
	if err := <-second; !errors.Is(err, backup.ErrNotEmpty) {
		t.Errorf("the second one: %v", err)
	}
	var n int
	must(t, open(t, nodes[2].DSN("restored")).reader.QueryRow("SELECT COUNT(*) FROM claims WHERE resource = 'r'").Scan(&n))
	if n != claims {
		t.Errorf("%d of %d claims are there", n, claims)
	}
}
