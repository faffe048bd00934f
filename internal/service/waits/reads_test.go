package waits

import (
	"fmt"
	"testing"

	"github.com/locket-service/locket/internal/rules/claim"
)

// TestReadsOfAnotherSearch: a search that comes after a large one, and shares its reads, finds what it finds alone. A look
// of the detector examines all claims that are due with the same reads.
func TestReadsOfAnotherSearch(t *testing.T) {
	store := &table{}
	x := claim.Exclusive
	store.add("b", "of b", x)
	store.add("y", "of y", x)
	for i := range 19 {
		store.add(fmt.Sprint("h", i), fmt.Sprint("h", i), x)
		store.add("b", fmt.Sprint("h", i), x)
	}
	store.add("b", "of y", x)
	y := store.add("y", "of b", x) // y waits for b, and b for y
	store.add("q", "of q", x)
	for i := range 29 { // q waits for 29 resources with 32 holders each; b is one of these
		name := fmt.Sprint("wide", i)
		for j := range 32 {
			owner := fmt.Sprint("o", i, "-", j)
			if i+j == 0 {
				owner = "b"
			}
			store.add(owner, name, claim.Shared)
		}
		store.add("q", name, x)
	}
	z := store.add("z", "of q", x)
	if got := deadlockIn(t, store, y); got == nil {
		t.Fatal("alone: no deadlock")
	}
	r := newReads(store)
	if _, err := deadlockOf(t.Context(), r, z); err != nil {
		t.Fatal(err)
	}
	if got, err := deadlockOf(t.Context(), r, y); got == nil || err != nil {
		t.Errorf("after the search from z, which has read %d of the 20 claims that b waits for: no deadlock (%v)", len(r.waits[claim.OwnerKey{Owner: "b"}]), err)
	}
}

// TestItselfInTheMiddle: an owner that waits for itself is in no deadlock, whichever claim is the youngest. To abort a claim of another owner
// ends no wait.
func TestItselfInTheMiddle(t *testing.T) {
	x := claim.Exclusive
	for name, requests := range map[string][][2]string{
		"its claim is the youngest (as in TestDeadlocks)": {{"a", "1"}, {"a", "2"}, {"c", "1"}, {"c", "2"}, {"a", "1"}},
		"another is the youngest":                         {{"a", "1"}, {"a", "2"}, {"c", "1"}, {"a", "1"}, {"c", "2"}},
	} {
		t.Run(name, func(t *testing.T) {
			store := &table{}
			var last claim.Claim
			for _, r := range requests {
				last = store.add(r[0], r[1], x)
			}
			if got := deadlockIn(t, store, last); got != nil {
				var of []string
				for _, w := range got {
					c, b := store.find(w.Waiter), store.find(w.Blocker)
					of = append(of, fmt.Sprintf("%s waits for %s of %s", c.Owner, c.Resource, b.Owner))
				}
				t.Errorf("a deadlock: %q", of)
			}
		})
	}
}
