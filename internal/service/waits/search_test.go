package waits

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/rules/claim"
)

// table has holders and waiters in order of arrival.
type table struct {
	db.Reader
	claims []claim.Claim
	calls  int
}

func (t *table) add(owner, resource string, mode claim.Units) claim.Claim {
	n := uint64(len(t.claims) + 1)
	c := claim.Claim{ID: fmt.Sprint(n), Resource: resource, Owner: owner, Units: mode, Status: claim.Active, Enqueued: n}
	for i := range t.claims {
		if o := &t.claims[i]; o.Resource == resource && (o.Conflicts(&c) || o.Status == claim.Waiting) {
			c.Status = claim.Waiting
		}
	}
	t.claims = append(t.claims, c)
	return c
}

func (t *table) Queue(_ context.Context, resource string, limit int) (s db.Snapshot, _ claim.Instant, _ error) {
	s.Resource = resource
	for _, c := range t.claims {
		switch {
		case c.Resource != resource:
		case c.Status == claim.Active && len(s.Holders) < limit:
			s.Holders = append(s.Holders, c)
		case c.Status == claim.Waiting && len(s.Waiters) < limit:
			s.Waiters = append(s.Waiters, c)
		}
	}
	t.calls++
	return s, claim.Instant{}, nil
}

func (t *table) WaitsOf(_ context.Context, owners []claim.OwnerKey, limit int) (waits []claim.Claim, _ error) {
	for _, c := range t.claims {
		if c.Status == claim.Waiting && slices.Contains(owners, c.OwnerKey()) && len(waits) < limit {
			waits = append(waits, c)
		}
	}
	t.calls++
	return waits, nil
}

// deadlockIn returns the deadlock that a claim is in.
func deadlockIn(t testing.TB, store db.Reader, c claim.Claim) (waits []claim.Wait) {
	t.Helper()
	found, err := deadlockOf(t.Context(), newReads(store), c)
	if err != nil {
		t.Fatal(err)
	}
	if found != nil {
		waits = found.waits
	}
	return waits
}

func TestDeadlocks(t *testing.T) {
	x, sh := claim.Exclusive, claim.Shared
	type request struct {
		owner, resource string
		mode            claim.Units
	}
	for name, c := range map[string]struct {
		requests []request
		deadlock []string // owners, from the last request on; nil for none
	}{
		"a holder that waits for nothing":   {[]request{{"a", "1", x}, {"b", "1", x}}, nil},
		"two":                               {[]request{{"a", "1", x}, {"b", "2", x}, {"a", "2", x}, {"b", "1", x}}, []string{"b", "a"}},
		"three in a ring":                   {[]request{{"a", "1", x}, {"b", "2", x}, {"c", "3", x}, {"a", "2", x}, {"b", "3", x}, {"c", "1", x}}, []string{"c", "a", "b"}},
		"a chain without an end":            {[]request{{"a", "1", x}, {"b", "2", x}, {"c", "3", x}, {"a", "2", x}, {"b", "3", x}, {"d", "1", x}}, nil},
		"a deadlock of others":              {[]request{{"a", "1", x}, {"b", "2", x}, {"a", "2", x}, {"b", "1", x}, {"c", "1", x}}, nil},
		"an owner that waits for itself":    {[]request{{"a", "1", x}, {"a", "1", x}}, nil},
		"itself, in two queues":             {[]request{{"a", "1", x}, {"a", "2", x}, {"a", "2", x}, {"a", "1", x}}, nil},
		"itself, behind another":            {[]request{{"a", "1", x}, {"b", "1", x}, {"a", "1", x}}, nil},
		"through the order of a queue":      {[]request{{"h", "1", x}, {"a", "1", x}, {"b", "2", x}, {"a", "2", x}, {"b", "1", x}}, []string{"b", "a"}},
		"behind shared holders":             {[]request{{"a", "1", sh}, {"b", "1", sh}, {"b", "2", x}, {"a", "2", x}, {"c", "1", x}, {"b", "3", x}}, nil},
		"shared holders":                    {[]request{{"a", "1", sh}, {"c", "1", sh}, {"b", "2", x}, {"c", "2", x}, {"b", "1", x}}, []string{"b", "c"}},
		"shared, behind an exclusive one":   {[]request{{"h", "1", sh}, {"a", "1", x}, {"b", "2", x}, {"a", "2", x}, {"b", "1", sh}}, []string{"b", "a"}},
		"shared claims are not in the way":  {[]request{{"a", "1", sh}, {"b", "2", sh}, {"a", "2", sh}, {"b", "1", sh}}, nil},
		"shared waiters are not in the way": {[]request{{"h", "1", x}, {"a", "1", sh}, {"b", "2", x}, {"a", "2", x}, {"b", "1", sh}}, nil},
		"itself, and another elsewhere":     {[]request{{"a", "1", x}, {"a", "2", x}, {"c", "1", x}, {"c", "2", x}, {"a", "1", x}}, nil},
		"nobody":                            {[]request{{"", "1", x}, {"b", "2", x}, {"", "2", x}, {"b", "1", x}}, nil},
		"over nobody, in a queue":           {[]request{{"a", "1", sh}, {"b", "2", x}, {"a", "2", x}, {"", "1", x}, {"b", "1", sh}}, []string{"b", "", "a"}},
	} {
		t.Run(name, func(t *testing.T) {
			store := &table{}
			var last claim.Claim
			for _, r := range c.requests {
				last = store.add(r.owner, r.resource, r.mode)
			}
			var owners []string
			for _, w := range deadlockIn(t, store, last) {
				owners = append(owners, store.find(w.Waiter).Owner)
			}
			if !slices.Equal(owners, c.deadlock) {
				t.Errorf("the deadlock is %q, want %q", owners, c.deadlock)
			}
		})
	}
}

// TestPropertyDeadlocks compares the search with all paths from claim to claim.
func TestPropertyDeadlocks(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		store := &table{}
		var last claim.Claim
		for range rapid.IntRange(1, 14).Draw(rt, "claims") {
			last = store.add(
				rapid.SampledFrom([]string{"a", "b", "c", ""}).Draw(rt, "owner"),
				rapid.SampledFrom([]string{"1", "2", "3"}).Draw(rt, "resource"),
				rapid.SampledFrom([]claim.Units{claim.Exclusive, claim.Exclusive, claim.Exclusive, claim.Shared}).Draw(rt, "units"))
		}
		if last.Status != claim.Waiting || last.Owner == "" {
			return
		}
		deadlock := deadlockIn(t, store, last)
		if want := store.reaches(last); want != (deadlock != nil) {
			rt.Fatalf("deadlock %v, want %t: %+v", deadlock, want, store.claims)
		}
		store.check(rt, last, deadlock)
	})
}

// reaches reports whether there is a path from a waiting claim over other owners to a claim of its own owner in another
// queue. It follows all paths until nothing new is reached.
func (t *table) reaches(first claim.Claim) bool {
	return t.ways(first, func(c claim.Claim) bool {
		return c.Owner != "" && slices.ContainsFunc(t.claims, func(b claim.Claim) bool {
			return b.Resource == c.Resource && b.Status == claim.Active && b.Owner == c.Owner && b.Conflicts(&c)
		})
	})
}

// returns is reaches for an owner that may wait for itself, too.
func (t *table) returns(first claim.Claim) bool {
	return t.ways(first, func(claim.Claim) bool { return false })
}

// ways is returns without the ways over some claims.
func (t *table) ways(first claim.Claim, without func(claim.Claim) bool) bool {
	reached := map[string]bool{first.ID: true}
	for grown := true; grown; {
		grown = false
		for id := range reached {
			c := *t.find(id)
			if without(c) {
				continue
			}
			for _, b := range t.claims {
				if b.Resource != c.Resource || b.Enqueued >= c.Enqueued || !b.Conflicts(&c) {
					continue
				}
				if b.Owner == first.Owner {
					if b.Resource != first.Resource {
						return true
					}
					continue
				}
				for _, next := range t.claims {
					same := b.Owner != "" && next.Owner == b.Owner
					if next.Status == claim.Waiting && (next.ID == b.ID || same) && !reached[next.ID] {
						reached[next.ID], grown = true, true
					}
				}
			}
		}
	}
	return false
}

// Reaches reports whether there is a path from a waiting claim back to its owner, among some claims.
func Reaches(claims []claim.Claim, first claim.Claim) bool {
	return (&table{claims: claims}).reaches(first)
}

func (t *table) find(id string) *claim.Claim {
	i := slices.IndexFunc(t.claims, func(c claim.Claim) bool { return c.ID == id })
	return &t.claims[i]
}

// check checks that a deadlock is one.
func (t *table) check(rt *rapid.T, first claim.Claim, deadlock []claim.Wait) {
	for i, w := range deadlock {
		waiter, blocker, next := t.find(w.Waiter), t.find(w.Blocker), t.find(deadlock[(i+1)%len(deadlock)].Waiter)
		switch {
		case waiter.Status != claim.Waiting, !waiter.Conflicts(blocker), blocker.Resource != waiter.Resource, blocker.Enqueued >= waiter.Enqueued:
			rt.Fatalf("%+v does not wait for %+v", waiter, blocker)
		case blocker.ID != next.ID && (blocker.Owner != next.Owner || next.Owner == ""):
			rt.Fatalf("%+v is not of the owner of %+v", blocker, next)
		case i == 0 && waiter.ID != first.ID:
			rt.Fatalf("it begins with %+v", waiter)
		}
	}
}

// TestSearchIsBounded: there are 10,000 waiters, and each waits elsewhere too. A search visits MaxVisited waits, and still
// finds the deadlock through the holder.
func TestSearchIsBounded(t *testing.T) {
	store := &table{}
	store.add("a", "1", claim.Exclusive)
	store.add("b", "2", claim.Exclusive)
	for i := range 10_000 {
		owner := fmt.Sprint("w", i)
		n := uint64(len(store.claims))
		for j, resource := range []string{"1", fmt.Sprint("of ", i%10)} {
			store.claims = append(store.claims, claim.Claim{
				ID: fmt.Sprint(resource, i), Resource: resource, Owner: owner, Status: claim.Waiting, Enqueued: n + uint64(j) + 1,
			})
		}
	}
	store.claims = append(store.claims, claim.Claim{ID: "a2", Resource: "2", Owner: "a", Status: claim.Waiting, Enqueued: 30_000})
	last := claim.Claim{ID: "b1", Resource: "1", Owner: "b", Status: claim.Waiting, Enqueued: 30_001}
	if deadlock := deadlockIn(t, store, last); len(deadlock) != 2 {
		t.Errorf("%d in the deadlock", len(deadlock))
	}
	last.Owner, store.calls = "c", 0
	if deadlock := deadlockIn(t, store, last); deadlock != nil || store.calls > 2*MaxVisited {
		t.Errorf("%d reads; %v", store.calls, deadlock)
	}
}

// silent is a store that does not answer.
type silent struct{ table }

func (*silent) WaitsOf(context.Context, []claim.OwnerKey, int) ([]claim.Claim, error) {
	return nil, db.ErrUnavailable
}

func TestSearchWithoutDatabase(t *testing.T) {
	store := &silent{}
	store.add("a", "1", claim.Exclusive)
	if _, err := deadlockOf(t.Context(), newReads(store), store.add("b", "1", claim.Exclusive)); !errors.Is(err, db.ErrUnavailable) {
		t.Error(err)
	}
}
