//go:build chaos

package mysql

import (
	"fmt"
	"testing"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/db/dbtest"
	"github.com/locket-service/locket/fixtures"
)

// TestChaosGalera runs the suite on a real cluster of three nodes: a store is reopened on
// another node than its first, and a second server uses another node than the first.
func TestChaosGalera(t *testing.T) {
	nodes := fixtures.NewGalera(t, 3)
	databases := 0
	dbtest.Run(t, func(t testing.TB) dbtest.Engine {
		databases++
		name, stores := fmt.Sprint("suite", databases), 0
		next := func(t testing.TB) db.Store {
			stores++
			return open(t, nodes[stores%len(nodes)].DSN(name))
		}
		store := next(t)
		return dbtest.Engine{
			Store: store,
			Reopen: func(t testing.TB) db.Store {
				if err := store.Close(); err != nil {
					t.Fatal(err)
				}
				store = next(t)
				return store
			},
			Second: next,
		}
	})
}

// TestChaosGaleraPackets: on a node of a cluster each statement goes by itself. With several
// in a packet, ServersContend of the suite finds halves of transactions.
func TestChaosGaleraPackets(t *testing.T) {
	node := fixtures.NewGalera(t, 1)[0]
	if s := open(t, node.DSN("packets")); s.packets {
		t.Error("several statements go in one packet")
	}
}
