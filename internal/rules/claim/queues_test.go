package claim_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/locket-service/locket/internal/rules/claim"
)

// threePrinters returns the queues of three resources, without any claims.
func threePrinters() *claim.Queues {
	queues := claim.NewQueues(claim.Instant{Wall: start, Lease: start}, 3)
	for _, name := range []string{"one", "two", "three"} {
		queues.Put(claim.NewQueue(claim.Row{Resource: name}, 0, nil))
	}
	return queues
}

func create(id, resource string) claim.Create {
	return claim.Create{ID: id, Resource: resource, Owner: "owner of " + id, TTL: time.Minute}
}

func must(t *testing.T, queues *claim.Queues, cmds ...claim.Command) {
	t.Helper()
	for _, cmd := range cmds {
		if _, err := queues.Do(cmd); err != nil {
			t.Fatalf("%T%+v: %v", cmd, cmd, err)
		}
	}
}

// A claim that was made is found by the commands behind it in the same transaction.
func TestClaimIsKnownAtOnce(t *testing.T) {
	queues := threePrinters()
	must(t, queues, create("a", "one"), claim.Renew{ID: "a", TTL: time.Hour}, claim.End{ID: "a"})
	must(t, queues, claim.Acquire{ID: "b", Resource: "two", Owner: "ann", TTL: time.Minute}, claim.Renew{ID: "b", TTL: time.Hour})
	equal(t, "the status of a", queues.Resource("one").Find("a").Status, claim.Released)
	equal(t, "the TTL of b", queues.Resource("two").Find("b").TTL, time.Hour)
}

func TestIDNamesOneClaimOnly(t *testing.T) {
	queues := threePrinters()
	must(t, queues, create("a", "one"))
	if _, err := queues.Do(create("a", "two")); !errors.Is(err, claim.ErrIDTaken) {
		t.Errorf("got error %v, want %v", err, claim.ErrIDTaken)
	}
	equal(t, "Changed", queues.Resource("two").Changed(), false)
}

func TestTargetThatIsNotThere(t *testing.T) {
	queues := threePrinters()
	for _, cmd := range []claim.Command{claim.Renew{ID: "a"}, claim.End{ID: ""}, create("a", "four"), claim.Expire{Resources: []string{"one", "four"}}} {
		if _, err := queues.Do(cmd); !errors.Is(err, claim.ErrNotFound) {
			t.Errorf("%T%+v: error %v, want %v", cmd, cmd, err, claim.ErrNotFound)
		}
	}
	equal(t, "the number of transitions", len(queues.Transitions()), 0)
}

// One command may work on several queues. Its transitions are in order.
func TestExpireSeveralResources(t *testing.T) {
	queues := threePrinters()
	must(t, queues, create("a", "one"), create("b", "one"), create("c", "two"), create("d", "three"))
	seen := len(queues.Transitions())
	queues.Now.Lease = queues.Now.Lease.Add(time.Hour)
	c, err := queues.Do(claim.Expire{Resources: []string{"one", "two"}})
	if c != nil || err != nil {
		t.Errorf("got %+v, error %v", c, err)
	}
	var got []string
	for _, change := range queues.Transitions()[seen:] {
		got = append(got, change.After.ID+" "+change.Before.Status.String()+" to "+change.After.Status.String())
	}
	want := []string{"a active to expired", "b waiting to active", "c active to expired"}
	if len(got) != len(want) {
		t.Fatalf("got %q, want %q", got, want)
	}
	for i := range want {
		equal(t, "the transition", got[i], want[i])
	}
	equal(t, "the status of d", queues.Resource("three").Find("d").Status, claim.Active)
}

// A returned claim does not change later.
func TestClaimsAreValues(t *testing.T) {
	queues := threePrinters()
	made, err := queues.Do(create("a", "one"))
	if err != nil {
		t.Fatal(err)
	}
	before := record(*made)
	must(t, queues, claim.Renew{ID: "a", TTL: time.Hour}, claim.End{ID: "a"})
	equal(t, "the claim that was handed out", record(*made), before)
	for i, want := range []claim.Status{claim.Waiting, claim.Active, claim.Active, claim.Released} {
		equal(t, "the status after a transition", queues.Transitions()[i].After.Status, want)
	}
}

func TestNet(t *testing.T) {
	queues := threePrinters()
	equal(t, "the number of changes", len(queues.Changes()), 0)
	must(t, queues, create("a", "one"), create("b", "one"))
	equal(t, "the number of changes", len(queues.Changes()), 2)
	must(t, queues, claim.End{ID: "a"})
	changes := queues.Changes()
	equal(t, "the number of changes", len(changes), 2)
	for i, want := range []struct {
		id     string
		status claim.Status
	}{{"a", claim.Released}, {"b", claim.Active}} {
		equal(t, "the claim", changes[i].After.ID, want.id)
		equal(t, "its status", changes[i].After.Status, want.status)
		if changes[i].Before != nil {
			t.Errorf("%s was there before: %+v", want.id, changes[i].Before)
		}
		if changes[i].StoppedWaiting() {
			t.Errorf("%s has waited for nobody outside of the transaction", want.id)
		}
	}
	var last claim.Transition
	for _, change := range queues.Transitions() {
		if change.After.ID == "b" {
			last = change
		}
	}
	equal(t, "StoppedWaiting of the grant", last.StoppedWaiting(), true)
}

// TestNetRises: in the net changes of a transaction the versions of each resource rise, even if claims change several
// times and in turns. Readers see an end before the grant that follows from it.
func TestNetRises(t *testing.T) {
	queues := threePrinters()
	must(t, queues,
		create("a", "one"), create("b", "one"), create("c", "one"), create("d", "two"),
		claim.Renew{ID: "a", TTL: time.Hour}, claim.End{ID: "c"}, claim.Renew{ID: "d", TTL: time.Hour},
		claim.Renew{ID: "a", TTL: time.Minute}, claim.End{ID: "a"}, claim.Renew{ID: "b", TTL: time.Hour},
	)
	last := make(map[string]uint64)
	var got []string
	for _, change := range queues.Changes() {
		after := change.After
		if after.Version <= last[after.Resource] {
			t.Errorf("%s: version %d of %s comes after %d", after.Resource, after.Version, after.ID, last[after.Resource])
		}
		last[after.Resource] = after.Version
		got = append(got, after.ID+" "+after.Status.String())
	}
	equal(t, "what has changed", strings.Join(got, ", "), "c withdrawn, d active, a released, b active")
}

// A queue that could not be loaded: commands on the resource and on its claims get the error
// that says why, the sweep leaves it alone, and other resources are not affected.
func TestRefuse(t *testing.T) {
	refused := errors.New("locked")
	qs := claim.NewQueues(claim.Instant{Wall: 1, Lease: 1}, 1)
	qs.Put(claim.NewQueue(claim.Row{Resource: "free"}, 0, nil))
	qs.Refuse(refused, "locked", "id")
	ttl := time.Minute
	for _, cmd := range []claim.Command{
		claim.Acquire{ID: "new", Resource: "locked", Owner: "o", TTL: ttl},
		claim.Release{Resource: "locked", Owner: "o"},
		claim.Create{ID: "id", Resource: "free", Owner: "o", TTL: ttl},
		claim.Renew{ID: "id", TTL: ttl},
	} {
		if _, err := qs.Do(cmd); !errors.Is(err, refused) {
			t.Errorf("%+v: got %v", cmd, err)
		}
	}
	if _, err := qs.Do(claim.Expire{Resources: []string{"free", "locked"}}); err != nil {
		t.Errorf("the sweep got %v", err)
	}
	if c, err := qs.Do(claim.Acquire{ID: "1", Resource: "free", Owner: "o", TTL: ttl}); err != nil || c.Status != claim.Active {
		t.Errorf("another resource: %v, %v", c, err)
	}
}
