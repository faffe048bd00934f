//go:build mysql || chaos

package mysql

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/db/dbtest"
)

// runOnNodes runs the suite on a cluster, whose nodes dsn tells: a store is reopened on another
// node than its first, and a second server uses another node than the first.
func runOnNodes(t *testing.T, nodes int, dsn func(node int, database string) string) {
	var databases atomic.Int64
	dbtest.Run(t, func(t testing.TB) dbtest.Engine {
		name, stores := fmt.Sprint("suite", databases.Add(1)), 0
		next := func(t testing.TB) *Store {
			stores++
			return open(t, patient(t, dsn(stores%nodes, name)))
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
			Second: func(t testing.TB) db.Store { return next(t) },
			Step:   func(by time.Duration) { store.fault.Store(int64(by)) },
		}
	})
}

// openTogether opens stores on all nodes at once, on a database that is not there yet, and
// then on one whose migration was interrupted.
func openTogether(t *testing.T, nodes int, dsn func(node int, database string) string) {
	for round := range 5 {
		name := fmt.Sprint("together", round)
		if round%2 == 1 {
			if _, err := open(t, dsn(0, "any")).reader.Exec("CREATE DATABASE " + name); err != nil {
				t.Fatal(err)
			}
			halfMigrated(t, dsn(0, name))
		}
		var group sync.WaitGroup
		start := make(chan struct{})
		for i := range 2 * nodes {
			group.Go(func() {
				<-start
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				s, err := Open(ctx, dsn(i%nodes, name))
				if err != nil {
					t.Errorf("round %d, node %d: %v", round, i%nodes, err)
					return
				}
				t.Cleanup(func() { _ = s.Close() })
				resource := fmt.Sprint("resource ", i)
				if err := acquire(t.Context(), s, resource); err != nil {
					t.Errorf("round %d, node %d: %v", round, i%nodes, err)
				}
			})
		}
		close(start)
		group.Wait()
		for node := range nodes {
			s := open(t, dsn(node, name))
			for i := range 2 * nodes {
				if _, err := s.Holder(t.Context(), fmt.Sprint("resource ", i)); err != nil {
					t.Errorf("round %d, node %d does not know the lock of server %d: %v", round, node, i, err)
				}
			}
		}
	}
}
