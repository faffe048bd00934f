package waits

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/locket-service/locket/internal/rules/claim"
)

// rules are queues that random commands change.
type rules struct {
	*rapid.T
	queues *claim.Queues
	claims map[string]*claim.Claim // all that were made, as they are now
	made   []string                // their ids
	seen   int                     // transitions
}

var resources = []string{"1", "2", "3"}

func newRules(rt *rapid.T) *rules {
	now := claim.Instant{Wall: 1, Lease: 1}
	r := &rules{T: rt, queues: claim.NewQueues(now, len(resources)), claims: make(map[string]*claim.Claim)}
	for _, name := range resources {
		r.queues.Put(claim.NewQueue(claim.Row{Resource: name}, 0, nil))
	}
	return r
}

// do carries out a command, a moment after the last one.
func (r *rules) do(cmd claim.Command) *claim.Claim {
	r.queues.Now.Wall++
	r.queues.Now.Lease++
	c, err := r.queues.Do(cmd)
	if err != nil {
		r.Fatalf("%+v: %v", cmd, err)
	}
	for _, t := range r.queues.Transitions()[r.seen:] {
		r.claims[t.After.ID] = t.After
	}
	r.seen = len(r.queues.Transitions())
	return c
}

// live returns the live claims, after the leases that have run out.
func (r *rules) live() (t *table) {
	r.do(claim.Expire{Resources: resources})
	t = &table{}
	for _, id := range r.made {
		if r.claims[id].Status.Live() {
			t.claims = append(t.claims, *r.claims[id])
		}
	}
	return t
}

// step makes a claim, which it returns, or ends one, or lets leases run out.
func (r *rules) step() *claim.Claim {
	switch rapid.IntRange(0, 9).Draw(r.T, "step") {
	case 0:
		r.queues.Now.Lease = r.queues.Now.Lease.Add(time.Second)
	case 1, 2, 3:
		if len(r.made) > 0 {
			r.do(claim.End{ID: rapid.SampledFrom(r.made).Draw(r.T, "ended")})
		}
	default:
		cmd := claim.Create{
			ID: fmt.Sprint("claim ", len(r.made)), Owner: rapid.SampledFrom([]string{"a", "b", "c"}).Draw(r.T, "owner"),
			Resource: rapid.SampledFrom(resources).Draw(r.T, "resource"), TTL: time.Duration(rapid.IntRange(1, 5).Draw(r.T, "ttl")) * time.Second,
		}
		if rapid.IntRange(0, 3).Draw(r.T, "shared") == 0 {
			cmd.Units = claim.Shared
		}
		r.made = append(r.made, cmd.ID)
		return r.do(cmd)
	}
	return nil
}

// TestPropertyEndDeadlock: however the queues change between the search and the transaction, a claim is aborted only
// if it is the youngest of a deadlock then, and certainly if nothing has changed. By then its owner may hold the
// resource.
func TestPropertyEndDeadlock(t *testing.T) {
	aborted, over := 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		r := newRules(rt)
		for range 50 {
			c := r.step()
			if c == nil || c.Status != claim.Waiting {
				continue
			}
			deadlock := deadlockIn(t, r.live(), *c)
			if deadlock == nil {
				continue
			}
			changes := rapid.IntRange(0, 4).Draw(rt, "changes")
			for range changes {
				r.step()
			}
			now := r.live()
			now.claims = slices.DeleteFunc(now.claims, func(x claim.Claim) bool { return younger(&x, c) })
			is := r.claims[c.ID].Status == claim.Waiting && now.returns(*r.claims[c.ID])
			switch was := r.do(claim.EndDeadlock{Waits: deadlock}).Status == claim.Aborted; {
			case was && !is:
				rt.Fatalf("%s was aborted for the deadlock %v, which is over: %+v", c.ID, deadlock, now.claims)
			case !was && changes == 0:
				rt.Fatalf("%s was not aborted: %v", c.ID, deadlock)
			case was:
				aborted++
			default:
				over++
			}
		}
	})
	if aborted == 0 || over == 0 {
		t.Errorf("%d claims were aborted, and %d were not", aborted, over)
	}
}
