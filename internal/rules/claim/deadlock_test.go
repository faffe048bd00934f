package claim_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/locket-service/locket/internal/rules/claim"
)

// circle returns queues of two resources whose holders, a-1 and b-2, wait for each other with a-2 and b-1; a third one, c-1,
// waits behind. It returns the deadlock, with b-1 first.
func circle(t *testing.T) (*claim.Queues, claim.Instant, []claim.Wait) {
	t.Helper()
	now := claim.Instant{Wall: start, Lease: start}
	queues := claim.NewQueues(now, 2)
	for _, name := range []string{"1", "2"} {
		queues.Put(claim.NewQueue(claim.Row{Resource: name}, 0, nil))
	}
	for _, id := range []string{"a-1", "b-2", "a-2", "b-1", "c-1"} {
		owner, resource, _ := strings.Cut(id, "-")
		now.Wall, now.Lease = now.Wall+1, now.Lease+1
		if _, err := carryOut(queues, claim.Create{ID: id, Owner: owner, Resource: resource, TTL: time.Minute}, now); err != nil {
			t.Fatal(err)
		}
	}
	return queues, now, []claim.Wait{{Waiter: "b-1", Blocker: "a-1"}, {Waiter: "a-2", Blocker: "b-2"}}
}

// TestEndDeadlock: the first claim of a deadlock is aborted, and its reason lists the claims that waited. Repeated, the
// command changes nothing.
func TestEndDeadlock(t *testing.T) {
	queues, now, waits := circle(t)
	for range 2 {
		c, err := carryOut(queues, claim.EndDeadlock{Waits: waits}, now)
		if err != nil || c.ID != "b-1" || c.Status != claim.Aborted || c.EndedBy != "" || !slices.Equal(claim.Deadlock(c.Status, c.Reason), []string{"b-1", "a-2"}) {
			t.Fatalf("%+v, %v", c, err)
		}
	}
	if n := len(queues.Transitions()); queues.Resource("1").Waiting != 1 || n != 8 { // five were made, two granted, one aborted
		t.Errorf("%d transitions, %+v", n, queues.Resource("1").Row)
	}
}

// TestDeadlockThatIsOver: nothing is aborted when one of the claims no longer waits, or no longer blocks another: its
// lease may have run out.
func TestDeadlockThatIsOver(t *testing.T) {
	for name, end := range map[string]claim.Command{
		"the victim has left":     claim.End{ID: "b-1"},
		"the other one has left":  claim.End{ID: "a-2"},
		"a holder has released":   claim.End{ID: "a-1"},
		"the other has released":  claim.End{ID: "b-2"},
		"a lease has run out":     nil,
		"another one was aborted": claim.EndDeadlock{Waits: []claim.Wait{{Waiter: "a-2", Blocker: "b-2"}, {Waiter: "b-1", Blocker: "a-1"}}},
	} {
		t.Run(name, func(t *testing.T) {
			queues, now, waits := circle(t)
			if end == nil {
				now.Lease = now.Lease.Add(time.Hour)
			} else if _, err := carryOut(queues, end, now); err != nil {
				t.Fatal(err)
			}
			c, err := carryOut(queues, claim.EndDeadlock{Waits: waits}, now)
			if err != nil || c.ID != "b-1" || c.Status == claim.Aborted {
				t.Errorf("%+v, %v", c, err)
			}
		})
	}
}

// TestDeadlockBehindAWaiterThatLeft: nothing is aborted when the claim that another one waited behind has left the queue.
func TestDeadlockBehindAWaiterThatLeft(t *testing.T) {
	queues, now, waits := circle(t)
	waits[0] = claim.Wait{Waiter: "c-1", Blocker: "b-1"}
	if _, err := carryOut(queues, claim.End{ID: "b-1"}, now); err != nil {
		t.Fatal(err)
	}
	if c, err := carryOut(queues, claim.EndDeadlock{Waits: waits}, now); err != nil || c.ID != "c-1" || c.Status != claim.Waiting {
		t.Errorf("%+v, %v", c, err)
	}
}

// TestDeadlockBesideOthers: other waiters, and waiters that leave, change nothing.
func TestDeadlockBesideOthers(t *testing.T) {
	queues, now, waits := circle(t)
	for _, cmd := range []claim.Command{
		claim.End{ID: "c-1"}, claim.Create{ID: "d-1", Owner: "d", Resource: "1", TTL: time.Minute}, claim.Renew{ID: "a-1", TTL: time.Hour},
	} {
		if _, err := carryOut(queues, cmd, now); err != nil {
			t.Fatal(err)
		}
	}
	if c, err := carryOut(queues, claim.EndDeadlock{Waits: waits}, now); err != nil || c.Status != claim.Aborted {
		t.Errorf("%+v, %v", c, err)
	}
}

// TestLargeDeadlock: a reason has no more ids than there is room for, and each of them whole.
func TestLargeDeadlock(t *testing.T) {
	now := claim.Instant{Wall: start, Lease: start}
	queues := claim.NewQueues(now, 100)
	var waits []claim.Wait
	for i := range 100 {
		name := fmt.Sprint("resource ", i)
		queues.Put(claim.NewQueue(claim.Row{Resource: name}, 0, nil))
		wait := claim.Wait{Waiter: fmt.Sprintf("%037d", i), Blocker: fmt.Sprint("holder ", i)}
		for _, id := range []string{wait.Blocker, wait.Waiter} {
			if _, err := carryOut(queues, claim.Create{ID: id, Owner: id, Resource: name, TTL: time.Minute}, now); err != nil {
				t.Fatal(err)
			}
		}
		waits = append(waits, wait)
	}
	c, err := carryOut(queues, claim.EndDeadlock{Waits: waits}, now)
	if err != nil {
		t.Fatal(err)
	}
	ids := claim.Deadlock(c.Status, c.Reason)
	if len(c.Reason) > 1024 || len(ids) < 20 || len(ids[len(ids)-1]) != 37 || ids[0] != waits[0].Waiter {
		t.Errorf("%d ids in %d bytes: %s", len(ids), len(c.Reason), c.Reason)
	}
}

// TestNoDeadlock: only the reason of a claim that was aborted says that it was in one.
func TestNoDeadlock(t *testing.T) {
	for _, s := range []claim.Status{claim.Waiting, claim.Active, claim.Withdrawn, claim.Revoked} {
		if ids := claim.Deadlock(s, claim.ReasonDeadlock+"a, b"); ids != nil {
			t.Errorf("%s: %q", s, ids)
		}
	}
	if ids := claim.Deadlock(claim.Aborted, claim.ReasonAbandoned); ids != nil {
		t.Errorf("%q", ids)
	}
}
