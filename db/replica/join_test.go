package replica_test

import (
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/db/dbtest"
	"github.com/locket-service/locket/db/replica"
	"github.com/locket-service/locket/db/replica/order/ordertest"
	"github.com/locket-service/locket/internal/rules/claim"
)

// TestFromOneMachine: a server that has served by itself becomes the first one of a cluster, with all that it has. Others join
// with its snapshot. From then on nobody opens its folder without the cluster.
func TestFromOneMachine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1)
		defer c.stop()
		first, second := c.server(), c.server()
		alone, err := replica.OpenWith(first.folder, replica.Options{Disk: first.disk})
		if err != nil {
			t.Fatal(err)
		}
		held := dbtest.Do(t, alone, claim.Acquire{ID: "held", Resource: "r", Owner: "o", TTL: time.Hour}, claim.Create{ID: "ended", Resource: "q", TTL: time.Hour}, claim.End{ID: "ended"})[0]
		if err := alone.Close(); err != nil {
			t.Fatal(err)
		}
		first.start()
		announce(t, first)
		first.has(t, held)
		second.join(t)
		for _, s := range []*server{first, second} {
			s.has(t, held)
			if c, _, _, err := s.store.Get(t.Context(), "ended", 0); err != nil || c.Status != claim.Released {
				t.Errorf("the claim that has ended is %+v (%v)", c, err)
			}
		}
		next := dbtest.Do(t, remote{second.store, c}, claim.Release{Resource: "r", Owner: "o"}, claim.Acquire{ID: "next", Resource: "r", Owner: "p", TTL: time.Hour})[1]
		if next.Token <= held.Token {
			t.Errorf("token %d follows %d", next.Token, held.Token)
		}
		first.has(t, next)
		first.stop(false)
		if _, err := replica.OpenWith(first.folder, replica.Options{Disk: first.disk}); !errors.Is(err, replica.ErrFolder) {
			t.Errorf("the folder is opened without the cluster: %v", err)
		}
		first.start()
		first.has(t, next)
	})
}

// TestForeignFolder: the folder of another server by itself does not join a cluster.
func TestForeignFolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1)
		defer c.stop()
		c.add()
		foreign := c.server()
		alone, err := replica.OpenWith(foreign.folder, replica.Options{Disk: foreign.disk})
		if err != nil {
			t.Fatal(err)
		}
		if err := alone.Close(); err != nil {
			t.Fatal(err)
		}
		if err := foreign.open(); !errors.Is(err, replica.ErrFolder) {
			t.Errorf("it has joined: %v", err)
		}
	})
}

func announce(t *testing.T, s *server) {
	t.Helper()
	if err := s.store.Announce(t.Context(), db.Member{Name: "a server"}, false); err != nil {
		t.Fatal(err)
	}
}

// join starts a server with another one's snapshot.
func (s *server) join(t testing.TB) {
	t.Helper()
	s.catchUp(t)
	s.start()
}

// catchUp gets another server's snapshot for a server that cannot start without one.
func (s *server) catchUp(t testing.TB) {
	t.Helper()
	var lags *replica.LaggingError
	if err := s.open(); !errors.As(err, &lags) {
		t.Fatalf("it does not need a snapshot: %v", err)
	}
	if err := replica.CatchUp(t.Context(), s.folder, replica.Cluster{Log: s.c.log.Open(), Peers: peers{s, s.run}}, lags, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
}

func (s *server) has(t *testing.T, want claim.Claim) {
	t.Helper()
	if c, err := s.store.Holder(t.Context(), want.Resource); err != nil || c.ID != want.ID || c.Token != want.Token {
		t.Errorf("server %d has the holder %q with token %d (%v), want %q with %d", s.n, c.ID, c.Token, err, want.ID, want.Token)
	}
}

// TestLogWithoutCluster: a server of a cluster begins no second one where the cluster's log is missing: under a mistyped
// prefix, or in an etcd that was emptied. Otherwise both would grant the same locks.
func TestLogWithoutCluster(t *testing.T) {
	inCluster(t, 2, func(c *cluster) {
		s := c.servers[1]
		s.stop(false)
		right, other := c.log, ordertest.New()
		c.log = other
		if err := s.open(); !errors.Is(err, replica.ErrFolder) {
			c.Errorf("with an empty log: %v", err)
		}
		if id, err := other.Open().Cluster(c.Context(), 0, 0); id != 0 || err != nil {
			c.Errorf("it has begun the cluster %x (%v)", id, err)
		}
		c.log = right
		s.start()
		s.take("again")
	})
}
