package waits_test

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/db/mysql"
	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/internal/rules/claim"
	"github.com/locket-service/locket/internal/service/committer"
	"github.com/locket-service/locket/internal/service/committer/committertest"
	"github.com/locket-service/locket/internal/service/waits"
	"github.com/locket-service/locket/tests/harness"
)

// crowd has owners that take resources at random, hold them while they wait for others, and give up, over several
// servers.
type crowd struct {
	servers []*server
	seed    uint64
	// owners is how many there are. Each takes two or three of the resources in each of its rounds.
	owners, resources, rounds int
	// pause is the time between two ends of claims.
	pause func()
}

// member is one owner.
type member struct {
	*crowd
	*rand.Rand
	name string
	made int
}

// run has all owners do their rounds. It fails if one of them waits for ever.
func (c *crowd) run(t *testing.T) {
	t.Helper()
	var all sync.WaitGroup
	for i := range c.owners {
		m := &member{crowd: c, Rand: rand.New(rand.NewPCG(c.seed, uint64(i))), name: fmt.Sprint("owner", i)}
		all.Go(func() {
			for range c.rounds {
				m.round(t)
			}
		})
	}
	all.Wait()
}

// round takes some resources, one after the other, until a claim is aborted or the owner loses its patience, and ends
// all, in any order.
func (m *member) round(t *testing.T) {
	var taken []string
	for _, n := range m.Perm(m.resources)[:2+m.IntN(2)] {
		m.made++
		c := claim.Create{
			ID: fmt.Sprint(m.name, "-", m.made), Owner: m.name, Resource: fmt.Sprint("resource", n), TTL: time.Hour, AllowDeadlock: m.IntN(6) == 0,
		}
		if m.IntN(4) == 0 {
			c.Units = claim.Shared
		}
		taken = append(taken, c.ID)
		if !m.take(t, c) {
			break
		}
	}
	for _, i := range m.Perm(len(taken)) {
		id := taken[i]
		m.pause()
		if _, err := m.server().do(t.Context(), claim.End{ID: id}); err != nil {
			t.Error(err)
		}
	}
}

func (m *member) server() *server { return m.servers[m.IntN(len(m.servers))] }

// take makes a claim and waits for it. It reports whether the claim is granted. An owner that allows deadlocks is not
// patient: nobody ends them.
func (m *member) take(t *testing.T, cmd claim.Create) bool {
	if _, err := m.server().do(t.Context(), cmd); err != nil {
		t.Error(err)
		return false
	}
	looks, patient := 35+m.IntN(25), !cmd.AllowDeadlock && m.IntN(2) > 0 // some give up when a server has found the deadlock
	var got claim.Claim
	harness.Eventually(t, func() error {
		if got = m.server().get(t, cmd.ID); got.Status != claim.Waiting || !patient && looks == 0 {
			return nil
		}
		looks--
		return fmt.Errorf("seed %d: %s still waits", m.seed, got.ID)
	})
	return got.Status == claim.Active
}

// all returns all claims with some statuses.
func (c *crowd) all(t *testing.T, statuses ...claim.Status) []claim.Claim {
	t.Helper()
	claims, _, err := c.servers[0].store.List(t.Context(), db.Filter{Statuses: statuses, Limit: 1_000_000})
	committertest.Check(t, err)
	return claims
}

// toAbort returns the ids of the claims that must be aborted: each is the youngest of a deadlock, and does not allow it.
func (c *crowd) toAbort(t *testing.T) (ids []string) {
	t.Helper()
	claims := c.all(t, claim.Waiting, claim.Active)
	for _, last := range claims {
		older := slices.DeleteFunc(slices.Clone(claims), func(x claim.Claim) bool { return age(&x, &last) > 0 })
		if last.Status == claim.Waiting && !last.AllowDeadlock && waits.Reaches(older, last) {
			ids = append(ids, last.ID)
		}
	}
	return ids
}

func age(a, b *claim.Claim) int {
	return cmp.Or(cmp.Compare(a.Created, b.Created), cmp.Compare(a.Enqueued, b.Enqueued), cmp.Compare(a.ID, b.ID))
}

// checkAborted checks that each claim that was aborted was the youngest of a deadlock at that time, and returns how
// many there were.
func (c *crowd) checkAborted(t *testing.T) (aborted int) {
	t.Helper()
	claims := c.all(t)
	byID := make(map[string]*claim.Claim)
	for i := range claims {
		byID[claims[i].ID] = &claims[i]
	}
	for _, victim := range claims {
		ids := claim.Deadlock(victim.Status, victim.Reason)
		if victim.Status == claim.Aborted {
			aborted++
		}
		if victim.Status == claim.Aborted && (len(ids) < 2 || ids[0] != victim.ID || victim.AllowDeadlock) {
			t.Errorf("seed %d: %+v was aborted", c.seed, victim)
		}
		at := victim.Finished
		for i, id := range ids {
			m, next := byID[id], byID[ids[(i+1)%len(ids)]]
			waited := m.Created <= at && (m.Activated == 0 || m.Activated >= at) && (m.Finished == 0 || m.Finished >= at)
			blocked := slices.ContainsFunc(claims, func(b claim.Claim) bool {
				return b.Resource == m.Resource && (b.Owner == next.Owner || b.ID == next.ID) && b.Enqueued < m.Enqueued && b.Conflicts(m) && (b.Finished == 0 || b.Finished >= at)
			})
			if !waited || !blocked || age(m, &victim) > 0 {
				t.Errorf("seed %d: %s was aborted, and %s was in no deadlock with it (waited: %t, for the next: %t): %+v", c.seed, victim.ID, id, waited, blocked, m)
			}
		}
	}
	return aborted
}

// TestRandom: over three servers with one store, a claim that must be aborted is aborted within two seconds, and no
// other claim is.
func TestRandom(t *testing.T) {
	for seed := range uint64(2) {
		randomInBubble(t, seed, 8)
	}
}

func randomInBubble(t *testing.T, seed uint64, rounds int) {
	t.Helper()
	committertest.Bubble(t, func(t *testing.T, w *committertest.World) {
		c := &crowd{seed: seed, owners: 16, resources: 6, rounds: rounds, pause: func() { time.Sleep(rand.N(100 * time.Millisecond)) }}
		for range 3 {
			queues := committer.New(w.Store, committer.Config{
				Timeout: harness.HangTimeout, Log: slog.New(slog.DiscardHandler), Metrics: committer.NewMetrics(prometheus.NewRegistry()),
			})
			committertest.Run(t, queues)
			// The queues change between the reads of a search, and before the transaction.
			slowly := func() error { time.Sleep(rand.N(10 * time.Millisecond)); return nil }
			s := serve(t, queues, w.Store, func(ctx context.Context, cmd claim.Command) (claim.Claim, error) {
				time.Sleep(rand.N(200 * time.Millisecond))
				result, err := queues.Do(ctx, cmd)
				return result.Claim, err
			})
			s.reads.before.Store(&slowly)
			c.servers = append(c.servers, s)
		}
		over := make(chan struct{})
		go func() {
			defer close(over)
			c.run(t)
		}()
		since := make(map[string]time.Time)
		for done := false; !done; {
			select {
			case <-over:
				done = true
			case <-time.After(100 * time.Millisecond):
			}
			found := make(map[string]time.Time)
			for _, id := range c.toAbort(t) {
				if found[id] = since[id]; found[id].IsZero() {
					found[id] = time.Now()
				}
				if waited := time.Since(found[id]); waited > contract {
					t.Errorf("seed %d: %s has been the youngest of a deadlock for %s", seed, id, waited)
					found[id] = time.Now()
				}
			}
			since = found
		}
		if n := c.checkAborted(t); n == 0 {
			t.Errorf("seed %d: there was no deadlock", seed)
		}
	})
}

// TestRandomDatabase is TestRandom with three servers that share a database, in real time.
func TestRandomDatabase(t *testing.T) { randomDatabase(t, 1, 1) }

func randomDatabase(t *testing.T, seed uint64, rounds int) {
	t.Helper()
	dsn := fixtures.MySQL(t)
	c := &crowd{seed: seed, owners: 16, resources: 6, rounds: rounds, pause: func() {}}
	for range 3 {
		c.servers = append(c.servers, connected(t, dsn))
	}
	c.run(t)
	if ids := c.toAbort(t); len(ids) > 0 {
		t.Errorf("seed %d: nobody waits any more, but for %q", seed, ids)
	}
	t.Logf("seed %d: %d claims were aborted", seed, c.checkAborted(t))
}

// connected returns a server of a database.
func connected(t *testing.T, dsn string) *server {
	t.Helper()
	store, err := mysql.Open(t.Context(), dsn)
	committertest.Check(t, err)
	t.Cleanup(func() { committertest.Check(t, store.Close()) })
	queues := committer.New(store, committer.Config{
		Timeout: harness.HangTimeout, Log: slog.New(slog.DiscardHandler), Metrics: committer.NewMetrics(prometheus.NewRegistry()),
	})
	committertest.Run(t, queues)
	return serve(t, queues, store, nil)
}
