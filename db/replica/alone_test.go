package replica_test

import (
	"errors"
	"log/slog"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/db/backup"
	"github.com/locket-service/locket/db/dbtest"
	"github.com/locket-service/locket/db/replica"
	"github.com/locket-service/locket/internal/rules/claim"
)

// openIn opens the store in a folder as a server of a cluster.
func (c *cluster) openIn(folder string) (*replica.Store, error) {
	s := &server{c: c, n: len(c.servers), run: 1, folder: folder, turn: make(chan struct{}, 1), clock: new(wallClock), log: c.log.Open()}
	s.log.Fail(latency, nil)
	c.mu.Lock()
	c.servers = append(c.servers, s)
	c.named[string(peers{s, s.run}.About())] = s
	c.mu.Unlock()
	store, err := replica.OpenWith(folder, replica.Options{Wall: s.clock.now, Cluster: &replica.Cluster{Log: s.log, Peers: peers{s, s.run}}})
	c.mu.Lock()
	s.store = store
	c.mu.Unlock()
	return store, err
}

// restored returns a folder that a backup was restored into.
func restored(t testing.TB) string {
	t.Helper()
	from, folder := used(t), filepath.Join(t.TempDir(), "filled")
	if err := replica.Fill(folder, func(to backup.Sink) error { return replica.Dump(from, to) }); err != nil {
		t.Fatal(err)
	}
	return folder
}

// TestClusterOfBackup: a new cluster goes on with the data that a backup was restored into, and its other servers get them.
func TestClusterOfBackup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1)
		folder := restored(t)
		for range 2 { // it begins once
			store, err := c.openIn(folder)
			if err != nil {
				t.Fatal(err)
			}
			if holder, err := store.Holder(t.Context(), "r3"); err != nil || holder.ID != "3" {
				t.Errorf("r3 is held by %v, %v", holder, err)
			}
			if err := store.Close(); err != nil {
				t.Fatal(err)
			}
			c.servers[len(c.servers)-1].store = nil
		}
		first, err := c.openIn(folder)
		if err != nil {
			t.Fatal(err)
		}
		dbtest.Do(t, first, create(4))
		if err := first.Announce(t.Context(), db.Member{Name: "first"}, false); err != nil {
			t.Fatal(err)
		}
		joins := filepath.Join(t.TempDir(), "joins")
		_, err = c.openIn(joins)
		var lags *replica.LaggingError
		if !errors.As(err, &lags) {
			t.Fatalf("a server without data: %v, want a LaggingError", err)
		}
		joining := c.servers[len(c.servers)-1]
		err = replica.CatchUp(t.Context(), joins, replica.Cluster{Log: c.log.Open(), Peers: peers{joining, 1}}, lags, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		second, err := c.openIn(joins)
		if err != nil {
			t.Fatal(err)
		}
		if string(first.Dump()) != string(second.Dump()) {
			t.Error("the servers have different states")
		}
		time.Sleep(time.Second)
		for _, s := range []*replica.Store{second, first} {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}
	})
}

// TestAlone: a server of a cluster and one by itself refuse each other's folders, or both would grant the same locks.
func TestAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1)
		if _, err := c.openIn(used(t)); !errors.Is(err, replica.ErrFolder) {
			t.Errorf("a cluster, and the folder of a server by itself: %v", err)
		}
		shared := filepath.Join(t.TempDir(), "shared")
		store, err := c.openIn(shared)
		if err != nil {
			t.Fatal(err)
		}
		dbtest.Do(t, store, create(1))
		if err := store.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := openSmall(shared); !errors.Is(err, replica.ErrFolder) {
			t.Errorf("a server by itself, and the folder of a cluster: %v", err)
		}
		found, again := 0, filepath.Join(t.TempDir(), "restored")
		if err := replica.Fill(again, func(to backup.Sink) error { return replica.Dump(shared, to) }); err != nil {
			t.Fatal(err)
		}
		alone := open(t, again)
		if holder, err := alone.Holder(t.Context(), "r1"); err == nil && holder.Status == claim.Active {
			found++
		}
		if err := alone.Close(); err != nil || found != 1 {
			t.Errorf("restored from a backup of the cluster: %d claims, %v", found, err)
		}
		if _, err := c.openIn(again); !errors.Is(err, replica.ErrFolder) {
			t.Errorf("the cluster, and a folder restored and used by a server by itself: %v", err)
		}
		if _, err := c.openIn(restored(t)); !errors.Is(err, replica.ErrFolder) {
			t.Errorf("a cluster that has begun, and restored data: %v", err)
		}
	})
}
