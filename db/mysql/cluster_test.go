//go:build mysql || chaos

package mysql

import (
	"fmt"
	"testing"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/db/dbtest"
)

// runOnNodes runs the suite on a cluster, whose nodes dsn tells: a store is reopened on another
// node than its first, and a second server uses another node than the first.
func runOnNodes(t *testing.T, nodes int, dsn func(node int, database string) string) {
	databases := 0
	dbtest.Run(t, func(t testing.TB) dbtest.Engine {
		databases++
		name, stores := fmt.Sprint("suite", databases), 0
		next := func(t testing.TB) db.Store {
			stores++
			return open(t, dsn(stores%nodes, name))
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
