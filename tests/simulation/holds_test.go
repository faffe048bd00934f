package simulation_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/locket-service/locket/models"
)

// trusts notes when a holder trusts that it holds a resource, for a while, and reports whether it lost the resource.
func (c *client) trusts(key string, held func() (token uint64, holds bool)) (lost bool) {
	token, _ := held()
	until := time.Now().Add(time.Duration(c.IntN(int(3 * leaseTTL))))
	if c.IntN(2) == 0 { // until it loses the resource
		until = until.Add(time.Minute)
		ctx, stop := context.WithCancel(c.ctx)
		var flapping sync.WaitGroup
		flapping.Go(func() { c.flap(ctx, c.rand(c.newID())) })
		defer flapping.Wait()
		defer stop()
	}
	for time.Now().Before(until) && c.ctx.Err() == nil {
		now, holds := held()
		if !holds || now != token {
			c.trace.note(c.name, "no longer trusts that it holds %s", key)
			return true
		}
		c.held.trust(key, token, c.name)
		sleep(c.ctx, 20*time.Millisecond)
	}
	return false
}

// flap interrupts the client's network again and again until a context ends: answers are late, or requests too.
func (c *client) flap(ctx context.Context, rnd *rand.Rand) {
	for ctx.Err() == nil {
		sleep(ctx, time.Duration(rnd.IntN(1000))*time.Millisecond)
		resume := []func(){c.network.answers.pause()}
		longest := 600
		if rnd.IntN(2) == 0 {
			resume, longest = append(resume, c.network.requests.pause()), 2*int(leaseTTL.Milliseconds())
		}
		sleep(ctx, time.Duration(rnd.IntN(longest))*time.Millisecond)
		for _, each := range resume {
			each()
		}
	}
}

// holds is when clients trusted that they held resources, and what watches were told about claims.
type holds struct {
	began time.Time

	mu     sync.Mutex // guards the following
	holds  map[string][]*trusted
	grants map[string][]granted
	claims map[string]bool // by id
}

// trusted is when a client trusted that it held a resource.
type trusted struct {
	token       uint64
	who         string
	first, last time.Duration // since the simulation began
}

// granted is a grant that a watch was told about.
type granted struct {
	token uint64
	claim string
	told  time.Duration
}

func newHolds() holds {
	return holds{
		began: time.Now(), holds: make(map[string][]*trusted), grants: make(map[string][]granted), claims: make(map[string]bool),
	}
}

func (h *holds) trust(key string, token uint64, who string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, t := range h.holds[key] {
		if t.token == token {
			t.last = time.Since(h.began)
			return
		}
	}
	now := time.Since(h.began)
	h.holds[key] = append(h.holds[key], &trusted{token, who, now, now})
}

// hear notes a report to a watch.
func (h *holds) hear(report *models.WatchResponse) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range report.GetSnapshot() {
		h.see(c)
	}
	for _, t := range report.GetTransitions() {
		h.see(t.GetClaim())
	}
}

func (h *holds) see(c *models.Claim) {
	h.claims[c.GetId()] = true
	if c.GetToken() != 0 {
		h.grants[c.GetResource()] = append(h.grants[c.GetResource()], granted{c.GetToken(), c.GetId(), time.Since(h.began)})
	}
}

// knows reports whether a watch was told about a claim.
func (h *holds) knows(id string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.claims[id]
}

// conflicts returns pairs of clients that trusted at the same time that they held a resource, or whose later grant has the lower token,
// and clients that trusted so when the resource was known to be granted to another claim.
func (h *holds) conflicts() (found []string) {
	for key, all := range h.holds {
		for i, a := range all {
			for _, b := range all[i+1:] { // b began later
				if b.first < a.last || b.token < a.token {
					found = append(found, fmt.Sprintf("%s: %+v and %+v both trusted that they held it", key, *a, *b))
				}
			}
			for _, g := range h.grants[key] {
				if g.token > a.token && g.told < a.last {
					found = append(found, fmt.Sprintf("%s: %+v trusted that it held it after a watch had reported %+v", key, *a, g))
					break
				}
			}
		}
	}
	return found
}
