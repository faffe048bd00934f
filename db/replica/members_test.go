package replica_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/locket-service/locket/db"
)

// TestTrimNeedsMajority: the shared log keeps everything that only a minority of the servers has in snapshots, so that the others can
// catch up with it.
func TestTrimNeedsMajority(t *testing.T) {
	inCluster(t, 3, func(c *cluster) {
		decider := c.servers[0]
		for _, s := range c.servers {
			s.announce()
		}
		for _, s := range c.servers[1:] {
			s.log.Pause()
		}
		defer decider.beats()()
		decider.trims()
		if first, _ := c.log.Records(); first != 1 {
			c.Errorf("the log begins with entry %d, and two of three servers lack entry 1", first)
		}
		for _, s := range c.servers[1:] {
			s.log.Resume()
		}
		c.same()
		time.Sleep(time.Second) // they make snapshots
		c.servers[1].announce()
		decider.trims()
		if first, _ := c.log.Records(); first == 1 {
			c.Error("the log was not trimmed when a majority had a snapshot")
		}
	})
}

// TestTrimAfterCrashes: the earlier runs of a server that crashes again and again count for nothing. Otherwise the log would not be trimmed
// until they are forgotten, and fill etcd.
func TestTrimAfterCrashes(t *testing.T) {
	inCluster(t, 3, func(c *cluster) {
		decider, crashes := c.servers[0], c.servers[2]
		for _, s := range c.servers {
			s.announce()
		}
		for range 4 {
			crashes.stop(true)
			crashes.start()
			crashes.announce()
		}
		if members, _, err := decider.store.Members(c.Context()); err != nil || len(members) != 3 {
			c.Errorf("three servers are %+v (%v)", members, err)
		}
		crashes.stop(true)
		defer decider.beats()()
		decider.trims()
		time.Sleep(time.Second) // the other one makes its snapshot
		c.servers[1].announce()
		decider.trims()
		if first, _ := c.log.Records(); first == 1 {
			c.Error("the log was not trimmed although two of three servers have a snapshot")
		}
	})
}

// announce has a run of a server announce itself, and its last snapshot.
func (s *server) announce() {
	s.c.Helper()
	if err := s.store.Announce(s.c.Context(), db.Member{Name: fmt.Sprintf("server %d, run %d", s.n, s.run)}, false); err != nil {
		s.c.Fatal(err)
	}
}

// trims has a decider make a snapshot, announce it, and trim the log.
func (s *server) trims() {
	s.c.Helper()
	for n := range 4 {
		s.takeMany(fmt.Sprint(time.Now().UnixNano(), n))
	}
	time.Sleep(time.Second)
	s.announce()
	time.Sleep(time.Minute)
}

// TestMembersWithOtherClocks: servers whose clocks differ by hours know each other, and forget the ones that have gone.
func TestMembersWithOtherClocks(t *testing.T) {
	inCluster(t, 3, func(c *cluster) {
		c.servers[0].clock.set(time.Hour)
		c.servers[1].clock.set(-time.Hour)
		announce := func(servers ...*server) {
			for _, s := range servers {
				s.announce()
			}
		}
		wants := func(want int) {
			c.Helper()
			for _, s := range c.servers {
				members, now, err := s.store.Members(c.Context())
				if err != nil || len(members) != want {
					c.Fatalf("server %d knows %+v (%v)", s.n, members, err)
				}
				for _, m := range members {
					if age := now.Wall.Sub(m.Seen); age < 0 || age > db.MemberAge {
						c.Errorf("server %d has seen %s %s ago", s.n, m.Name, age)
					}
				}
			}
		}
		announce(c.servers...)
		wants(3)
		for range 6 {
			time.Sleep(time.Minute)
			announce(c.servers[:2]...)
			if _, _, err := c.servers[0].store.Members(c.Context()); err != nil {
				c.Fatal(err)
			}
		}
		wants(2)
	})
}
