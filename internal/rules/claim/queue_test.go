package claim_test

import (
	"cmp"
	"errors"
	"math"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/locket-service/locket/internal/rules/access"
	"github.com/locket-service/locket/internal/rules/claim"
)

func TestFirstClaimIsActiveAtOnce(t *testing.T) {
	d := setup(t)
	got := d.exclusive("a")
	equal(t, "the status", got.Status, claim.Active)
	equal(t, "the deadline", got.Deadline, d.now.Lease.Add(10*time.Second))
	if got.Token == 0 {
		t.Error("no token was given")
	}
	equal(t, "the row", d.Row, claim.Row{Resource: "printer", Version: got.Version, Holder: "a"})
}

func TestGrantsInOrder(t *testing.T) {
	d := setup(t)
	for _, id := range []string{"a", "b", "c"} {
		d.exclusive(id)
	}
	d.wantStatus(claim.Active, "a")
	d.wantStatus(claim.Waiting, "b", "c")
	d.release("a")
	d.wantStatus(claim.Active, "b")
	d.wantStatus(claim.Waiting, "c")
	d.release("b")
	d.wantStatus(claim.Active, "c")
}

func TestLeavingTheMiddleOfTheLine(t *testing.T) {
	d := setup(t)
	for _, id := range []string{"a", "b", "c"} {
		d.exclusive(id)
	}
	d.withdraw("b")
	d.wantStatus(claim.Active, "a")
	d.release("a")
	d.wantStatus(claim.Active, "c")
	d.wantStatus(claim.Withdrawn, "b")
}

func TestSharedClaimsHoldTogether(t *testing.T) {
	d := setup(t)
	d.shared("r1")
	d.shared("r2")
	d.wantStatus(claim.Active, "r1", "r2")
	equal(t, "the number of shared holders", d.Shared, 2)
	d.exclusive("w")
	d.release("r1")
	d.wantStatus(claim.Waiting, "w")
	d.release("r2")
	d.wantStatus(claim.Active, "w")
}

func TestSharedWaitsBehindAWaitingExclusive(t *testing.T) {
	d := setup(t)
	d.shared("r1")
	d.exclusive("w")
	d.shared("r2")
	d.wantStatus(claim.Active, "r1")
	d.wantStatus(claim.Waiting, "w", "r2")
	d.release("r1")
	d.wantStatus(claim.Active, "w")
	d.wantStatus(claim.Waiting, "r2")
}

func TestSharedRunIsGrantedTogether(t *testing.T) {
	d := setup(t)
	d.exclusive("w1")
	d.shared("r1")
	d.shared("r2")
	d.exclusive("w2")
	d.shared("r3")
	d.release("w1")
	d.wantStatus(claim.Active, "r1", "r2")
	d.wantStatus(claim.Waiting, "w2", "r3")
	if d.get("r1").Token >= d.get("r2").Token {
		t.Error("the tokens of a run do not rise in the order of the line")
	}
}

func TestWithdrawnExclusiveLetsSharedOnesJoin(t *testing.T) {
	d := setup(t)
	d.shared("r1")
	d.exclusive("w1")
	d.shared("r2")
	d.shared("r3")
	d.exclusive("w2")
	d.withdraw("w1")
	d.wantStatus(claim.Active, "r1", "r2", "r3")
	d.wantStatus(claim.Waiting, "w2")
}

func TestDueLeaseIsTakenOverAtOnce(t *testing.T) {
	d := setup(t)
	d.exclusive("a")
	d.after(10 * time.Second)
	got := d.exclusive("b")
	equal(t, "the status of the next", got.Status, claim.Active)
	d.wantStatus(claim.Expired, "a")
	equal(t, "the end of the first", d.get("a").Finished, d.now.Wall)
}

func TestDueLeaseIsTakenOverByAWaiterWhateverTheCommand(t *testing.T) {
	d := setup(t)
	d.exclusive("a")
	d.exclusive("b")
	d.after(10 * time.Second)
	err := d.refuse(claim.Release{Resource: "printer", Owner: "nobody"})
	equal(t, "the error", describe(err), "collision with b, token "+uitoa(d.get("b").Token))
	d.wantStatus(claim.Expired, "a")
	d.wantStatus(claim.Active, "b")
}

func TestDueLeaseIsTakenOverByALock(t *testing.T) {
	d := setup(t)
	d.do(lock("a", "ann"))
	d.after(10 * time.Second)
	got := d.do(lock("b", "ben"))
	equal(t, "the claim", got.ID, "b")
	d.wantStatus(claim.Expired, "a")
}

func TestLeaseDoesNotEndEarly(t *testing.T) {
	d := setup(t)
	d.exclusive("a")
	d.exclusive("b")
	d.after(10*time.Second - time.Microsecond)
	d.do(claim.Expire{Resources: []string{"printer"}})
	d.wantStatus(claim.Active, "a")
	d.after(time.Microsecond)
	d.do(claim.Expire{Resources: []string{"printer"}})
	d.wantStatus(claim.Active, "b")
}

// Where the servers' clocks differ, a lease ends that much later.
func TestSkew(t *testing.T) {
	d := setup(t)
	d.exclusive("a")
	d.exclusive("b")
	d.now.Skew = time.Second
	d.after(11*time.Second - time.Microsecond)
	d.do(claim.Expire{Resources: []string{"printer"}})
	d.wantStatus(claim.Active, "a")
	d.after(time.Microsecond)
	d.do(claim.Expire{Resources: []string{"printer"}})
	d.wantStatus(claim.Active, "b")
}

// After a restore no lease ends, and nothing is granted, before the quarantine has ended: a claim may have been renewed, or granted,
// after the backup was taken.
func TestQuarantine(t *testing.T) {
	d := setup(t)
	d.exclusive("a")
	d.now.Quarantine = d.now.Lease.Add(time.Minute)
	d.exclusive("b")
	d.after(time.Minute - time.Microsecond)
	d.do(claim.Expire{Resources: []string{"printer"}})
	d.wantStatus(claim.Active, "a")
	d.release("a")
	d.wantStatus(claim.Waiting, "b")
	d.after(time.Microsecond)
	d.do(claim.Expire{Resources: []string{"printer"}})
	d.wantStatus(claim.Active, "b")
}

// While no server could take renewals the lease clock stood still.
func TestOutageCountsAgainstNobody(t *testing.T) {
	d := setup(t)
	d.exclusive("a")
	d.exclusive("b")
	d.now.Wall = d.now.Wall.Add(time.Hour)
	d.do(claim.Expire{Resources: []string{"printer"}})
	d.wantStatus(claim.Active, "a")
	a := d.get("a")
	equal(t, "the time that remains", a.Remaining(d.now), 10*time.Second)
}

func TestDueLeaseThatNobodyWantsCanBeRenewed(t *testing.T) {
	d := setup(t)
	token := d.exclusive("a").Token
	d.after(time.Hour)
	got := d.do(claim.Renew{ID: "a", TTL: time.Minute})
	equal(t, "the status", got.Status, claim.Active)
	equal(t, "the token", got.Token, token)
	equal(t, "the deadline", got.Deadline, d.now.Lease.Add(time.Minute))
}

func TestDueLeaseWithAWaiterCannotBeRenewed(t *testing.T) {
	d := setup(t)
	d.exclusive("a")
	d.exclusive("b")
	d.after(10 * time.Second)
	wantTransition(t, d.refuse(claim.Renew{ID: "a", TTL: time.Minute}), claim.Expired, 0)
	d.wantStatus(claim.Active, "b")
}

func TestOnlyTheSharedHoldersThatAreDueExpire(t *testing.T) {
	d := setup(t)
	d.shared("r1")
	d.shared("r2")
	d.exclusive("w")
	d.after(5 * time.Second)
	d.do(claim.Renew{ID: "r2", TTL: 10 * time.Second})
	d.after(5 * time.Second)
	d.do(claim.Expire{Resources: []string{"printer"}})
	d.wantStatus(claim.Expired, "r1")
	d.wantStatus(claim.Active, "r2")
	d.wantStatus(claim.Waiting, "w")
}

func TestSweepEndsADueLeaseThatNobodyWants(t *testing.T) {
	d := setup(t)
	d.exclusive("a")
	d.after(10 * time.Second)
	equal(t, "the claim returned", record(d.do(claim.Expire{Resources: []string{"printer"}})), entry{})
	d.wantStatus(claim.Expired, "a")
	equal(t, "the holder", d.Holder, "")
}

func TestAcquireCollisionNamesTheHolder(t *testing.T) {
	d := setup(t)
	held := d.do(lock("a", "ann"))
	err := d.refuse(lock("b", "ben"))
	var collision *claim.CollisionError
	if !errors.As(err, &collision) || collision.Holder == nil {
		t.Fatalf("got error %v, want a collision with a holder", err)
	}
	equal(t, "the holder", record(*collision.Holder), record(held))
	equal(t, "the message", err.Error(), `the resource is held by "ann"`)
	equal(t, "the number of waiters", d.Waiting, 0)

	d.do(claim.Renew{ID: "a", TTL: time.Hour})
	equal(t, "the holder, later on", record(*collision.Holder), record(held))
}

func TestAcquireCollidesWithSharedHolders(t *testing.T) {
	d := setup(t)
	d.shared("r1")
	err := d.refuse(lock("a", "owner of r1"))
	var collision *claim.CollisionError
	if !errors.As(err, &collision) || collision.Holder != nil {
		t.Fatalf("got error %v, want a collision without a holder", err)
	}
	equal(t, "the message", err.Error(), "the resource is held by others, in shared mode")
}

func TestAcquireDoesNotOvertakeWaiters(t *testing.T) {
	d := setup(t)
	d.shared("r1")
	d.exclusive("w")
	d.after(10 * time.Second)
	equal(t, "the error", describe(d.refuse(lock("a", "ann"))),
		"collision with w, token "+uitoa(d.get("w").Token))
	d.wantStatus(claim.Expired, "r1")
}

func TestAcquireRenewsAndKeepsTheToken(t *testing.T) {
	d := setup(t)
	first := d.do(lock("a", "ann"))
	d.after(4 * time.Second)
	again := lock("another id", "ann")
	again.TTL, again.Value, again.Type = time.Minute, "new", claim.Presence
	got := d.do(again)
	equal(t, "the id", got.ID, "a")
	equal(t, "the token", got.Token, first.Token)
	equal(t, "the deadline", got.Deadline, d.now.Lease.Add(time.Minute))
	equal(t, "the value", got.Value, "new")
	equal(t, "the type", got.Type, claim.Presence)
	if got.Version <= first.Version {
		t.Error("the renewal did not move the version")
	}
}

func TestAcquireRenewsADueLeaseThatNobodyWants(t *testing.T) {
	d := setup(t)
	first := d.do(lock("a", "ann"))
	d.after(time.Hour)
	got := d.do(lock("b", "ann"))
	equal(t, "the token", got.Token, first.Token)
	equal(t, "the time that remains", got.Remaining(d.now), 10*time.Second)
}

func TestAcquireByTokenRenewsThatGrant(t *testing.T) {
	for _, when := range []struct {
		name string
		step func(d *queueTest)
	}{
		{"alone", func(*queueTest) {}},
		{"others wait", func(d *queueTest) { d.exclusive("w"); d.shared("r") }},
		{"due, but not wanted", func(d *queueTest) { d.after(time.Hour) }},
		{"renewed before", func(d *queueTest) { d.do(lock("again", "ann")) }},
	} {
		t.Run(when.name, func(t *testing.T) {
			d := setup(t)
			want := record(d.do(lock("a", "ann")))
			when.step(d)
			d.after(4 * time.Second)
			want.Type, want.TTL, want.Value = claim.Presence, time.Minute, "new"
			want.Version, want.Deadline = uint64(d.now.Wall), d.now.Lease.Add(time.Minute)
			row := d.Row
			equal(t, "the claim", record(d.do(renewal("ann", want.Token))), want)
			row.Version = want.Version
			equal(t, "the row", d.Row, row)
		})
	}
}

func TestAcquireByTokenAcquiresNothing(t *testing.T) {
	ann := func(d *queueTest) uint64 { return d.do(lock("a", "ann")).Token }
	for _, when := range []struct {
		name string
		step func(d *queueTest) (token uint64)
		want string
	}{
		{"never held", func(*queueTest) uint64 { return 1 }, "1 is higher than any token or version of the resource, which are 0 at most"},
		{"released", func(d *queueTest) uint64 { token := ann(d); d.release("a"); return token }, "no such claim"},
		{"swept", func(d *queueTest) uint64 {
			token := ann(d)
			d.after(time.Hour)
			d.do(claim.Expire{Resources: []string{"printer"}})
			return token
		}, "no such claim"},
		{"held under another token", func(d *queueTest) uint64 { d.shared("a"); d.release("a"); return ann(d) - 1 }, "no such claim"},
		{"due under another token", func(d *queueTest) uint64 {
			token := ann(d) - 1
			d.after(time.Hour)
			return token
		}, "no such claim"},
		{"held by another", func(d *queueTest) uint64 { return d.do(lock("b", "ben")).Token }, "collision with b"},
		{"due, of another", func(d *queueTest) uint64 {
			token := d.do(lock("b", "ben")).Token
			d.after(time.Hour)
			return token
		}, "collision with b"},
		{"taken over by another", func(d *queueTest) uint64 {
			token := ann(d)
			d.after(time.Hour)
			d.do(lock("b", "ben"))
			return token
		}, "collision with b"},
		{"shared", func(d *queueTest) uint64 {
			cmd := request("r")
			cmd.Owner, cmd.Units = "ann", claim.Shared
			return d.do(cmd).Token
		}, "collision with shared holders"},
	} {
		t.Run(when.name, func(t *testing.T) {
			d := setup(t)
			cmd := renewal("ann", when.step(d))
			row := d.Row
			want := when.want
			if h := d.ExclusiveHolder(); h != nil && h.Owner != "ann" {
				want += ", token " + uitoa(h.Token)
			}
			equal(t, "the error", describe(d.refuse(cmd)), want)
			equal(t, "the row", d.Row, row)
			if d.Find("renewal") != nil {
				t.Error("a claim was made")
			}
		})
	}
}

// The waiter has taken over by the time that the late renewal arrives.
func TestAcquireByTokenOfADueLeaseWithAWaiter(t *testing.T) {
	d := setup(t)
	token := d.do(lock("a", "ann")).Token
	d.exclusive("w")
	d.after(10 * time.Second)
	equal(t, "the error", describe(d.refuse(renewal("ann", token))),
		"collision with w, token "+uitoa(d.get("w").Token))
	d.wantStatus(claim.Expired, "a")
}

func TestRenewalOfAnEarlierGrantLeavesTheSuccessorAlone(t *testing.T) {
	d := setup(t)
	late := renewal("ann", d.do(lock("a", "ann")).Token)
	d.release("a")
	next := d.do(lock("b", "ann"))
	for range 2 {
		d.after(time.Second)
		wantErr(t, d.refuse(late), claim.ErrNotFound)
		equal(t, "the successor", record(d.get("b")), record(next))
	}
	d.release("b")
	wantErr(t, d.refuse(late), claim.ErrNotFound)
	equal(t, "the holder", d.Holder, "")
}

func TestRelease(t *testing.T) {
	d := setup(t)
	wantErr(t, d.refuse(claim.Release{Resource: "printer", Owner: "ann"}), claim.ErrNotFound)
	held := d.do(lock("a", "ann"))
	equal(t, "the error for another owner",
		describe(d.refuse(claim.Release{Resource: "printer", Owner: "ben"})),
		"collision with a, token "+uitoa(held.Token))
	d.exclusive("b")
	got := d.do(claim.Release{Resource: "printer", Owner: "ann", Token: held.Token})
	equal(t, "the status", got.Status, claim.Released)
	d.wantStatus(claim.Active, "b")
}

func TestReleaseOfAnEarlierGrantLeavesTheSuccessorAlone(t *testing.T) {
	d := setup(t)
	release := claim.Release{Resource: "printer", Owner: "ann", Token: d.do(lock("a", "ann")).Token}
	d.do(release)
	d.do(lock("b", "ann"))
	wantErr(t, d.refuse(release), claim.ErrNotFound)
	d.wantStatus(claim.Active, "b")
}

func TestReleaseLeavesSharedHoldersAlone(t *testing.T) {
	d := setup(t)
	d.shared("r1")
	equal(t, "the error", describe(d.refuse(claim.Release{Resource: "printer", Owner: "owner of r1"})),
		"collision with shared holders")
	d.wantStatus(claim.Active, "r1")
}

func TestCreateRepeatedGivesTheSameClaim(t *testing.T) {
	for _, then := range []struct {
		name string
		step func(d *queueTest)
	}{
		{"active", func(*queueTest) {}},
		{"renewed", func(d *queueTest) { d.do(claim.Renew{ID: "a", TTL: time.Hour}) }},
		{"released", func(d *queueTest) { d.release("a") }},
		{"due", func(d *queueTest) { d.after(time.Hour) }},
	} {
		t.Run(then.name, func(t *testing.T) {
			d := setup(t)
			d.exclusive("a")
			then.step(d)
			before, version := d.get("a"), d.Version
			equal(t, "the claim", record(d.exclusive("a")), record(before))
			equal(t, "the version", d.Version, version)
		})
	}
}

func TestCreateWithTheIDOfAnotherRequest(t *testing.T) {
	for _, other := range []struct {
		name   string
		change func(cmd *claim.Create)
	}{
		{"resource", func(cmd *claim.Create) { cmd.Resource = "scanner" }},
		{"owner", func(cmd *claim.Create) { cmd.Owner = "ben" }},
		{"mode", func(cmd *claim.Create) { cmd.Units = claim.Shared }},
		{"user data", func(cmd *claim.Create) { cmd.UserData = nil }},
	} {
		t.Run(other.name, func(t *testing.T) {
			d := setup(t)
			before := d.exclusive("a")
			cmd := request("a")
			other.change(&cmd)
			wantErr(t, d.refuse(cmd), claim.ErrIDTaken)
			equal(t, "the claim", record(d.get("a")), record(before))
		})
	}
}

func TestVersionFollowsTheClock(t *testing.T) {
	d := setup(t)
	d.exclusive("a") // joins at start, is granted one later
	equal(t, "the version at which it was enqueued", d.get("a").Enqueued, uint64(start))
	equal(t, "the token", d.get("a").Token, uint64(start)+1)
	d.after(time.Second)
	d.release("a")
	equal(t, "the version", d.Version, uint64(start)+1_000_000)
}

func TestTokensRiseWhenTheClockStepsBack(t *testing.T) {
	d := setup(t)
	last := d.exclusive("a").Token
	for _, id := range []string{"b", "c", "d"} {
		d.after(-time.Hour)
		d.do(claim.Expire{Resources: []string{"printer"}})
		d.release(d.Holder)
		token := d.exclusive(id).Token
		if token <= last {
			t.Errorf("token %d of %s came after %d", token, id, last)
		}
		last = token
	}
}

func TestTokensRiseBeforeTheEpoch(t *testing.T) {
	d := setup(t)
	d.now.Wall = -5
	equal(t, "the token", d.exclusive("a").Token, 2)
}

func TestFloor(t *testing.T) {
	floor := uint64(start) + 1_000_000_000
	d := setupRow(t, claim.Row{}, floor)
	equal(t, "Changed", d.Changed(), false)
	if token := d.exclusive("a").Token; token <= floor {
		t.Errorf("token %d is below the floor %d", token, floor)
	}
	equal(t, "Changed", d.Changed(), true)
	equal(t, "the stored version", d.Stored().Version, 0)
}

func TestFloorBelowTheRow(t *testing.T) {
	version := uint64(start) + 1_000_000_000
	d := setupRow(t, claim.Row{Version: version}, 7)
	equal(t, "the version at which it was enqueued", d.exclusive("a").Enqueued, version+1)
}

func TestHistoryBeginsWithWaiting(t *testing.T) {
	d := setup(t)
	d.exclusive("a")
	d.exclusive("b")
	d.exclusive("c")
	second := d.now.Wall.Add(time.Second)
	d.after(time.Second)
	d.withdraw("c")
	d.release("a")
	for _, want := range []struct {
		id      string
		history []claim.StatusChange
	}{
		{"a", []claim.StatusChange{{claim.Waiting, start}, {claim.Active, start}, {claim.Released, second}}},
		{"b", []claim.StatusChange{{claim.Waiting, start}, {claim.Active, second}}},
		{"c", []claim.StatusChange{{claim.Waiting, start}, {claim.Withdrawn, second}}},
	} {
		c := d.get(want.id)
		if got := c.History(); !slices.Equal(got, want.history) {
			t.Errorf("history of %s: %v, want %v", want.id, got, want.history)
		}
	}
}

func TestReasonOfTheFirstEndStays(t *testing.T) {
	d := setup(t)
	d.exclusive("a")
	d.do(claim.SetStatus{ID: "a", Status: claim.Revoked, Reason: "maintenance"})
	d.after(time.Second)
	before := d.get("a")
	got := d.do(claim.SetStatus{ID: "a", Status: claim.Revoked, Reason: "another"})
	equal(t, "the reason", got.Reason, "maintenance")
	equal(t, "the claim", record(got), record(before))
}

func TestGiveUp(t *testing.T) {
	d := setup(t)
	for _, id := range []string{"a", "b", "c"} {
		d.exclusive(id)
	}
	waited := d.do(claim.End{ID: "b", Reason: "too late"})
	equal(t, "the status of who waited", waited.Status, claim.Withdrawn)
	equal(t, "the reason", waited.Reason, "too late")
	held := d.do(claim.End{ID: "a", Reason: "done"})
	equal(t, "the status of who held", held.Status, claim.Released)
	equal(t, "the reason", held.Reason, "done")
	d.wantStatus(claim.Active, "c")
	wantErr(t, d.refuse(claim.End{ID: "nobody"}), claim.ErrNotFound)

	version := d.Version
	d.after(time.Second)
	equal(t, "the claim, given up again", record(d.do(claim.End{ID: "a", Reason: "another"})), record(held))
	equal(t, "the version", d.Version, version)
}

// A waiter that gives up behind a holder whose lease has run out has been granted by then.
func TestGiveUpBehindADueHolder(t *testing.T) {
	d := setup(t)
	d.exclusive("a")
	d.exclusive("b")
	d.after(10 * time.Second)
	equal(t, "the status", d.do(claim.End{ID: "b"}).Status, claim.Released)
	d.wantStatus(claim.Expired, "a")
}

func TestFinalStaysFinal(t *testing.T) {
	d := setup(t)
	d.exclusive("a")
	d.release("a")
	before := d.get("a")
	d.after(time.Hour)
	d.do(claim.Expire{Resources: []string{"printer"}})
	d.exclusive("b")
	d.release("b")
	wantTransition(t, d.refuse(claim.SetStatus{ID: "a", Status: claim.Aborted}), claim.Released, claim.Aborted)
	wantTransition(t, d.refuse(claim.Renew{ID: "a"}), claim.Released, 0)
	equal(t, "the claim", record(d.get("a")), record(before))
}

func TestDurationsFreeze(t *testing.T) {
	d := setup(t)
	d.exclusive("a")
	d.exclusive("b")
	d.exclusive("c")
	check := func(id string, waiting, active time.Duration, ever bool) {
		t.Helper()
		c := d.get(id)
		equal(t, id+": waiting", c.WaitingDuration(d.now), waiting)
		got, was := c.ActiveDuration(d.now)
		equal(t, id+": active", got, active)
		equal(t, id+": was active", was, ever)
	}
	d.after(2 * time.Second)
	check("a", 0, 2*time.Second, true)
	check("b", 2*time.Second, 0, false)
	d.release("a")
	d.withdraw("c")
	d.after(3 * time.Second)
	check("a", 0, 2*time.Second, true)
	check("b", 2*time.Second, 3*time.Second, true)
	check("c", 2*time.Second, 0, false)
	d.release("b")
	d.after(time.Hour)
	check("b", 2*time.Second, 3*time.Second, true)
}

func TestDurationsAreNotNegativeWhenTheClockStepsBack(t *testing.T) {
	d := setup(t)
	d.exclusive("a")
	d.exclusive("b")
	d.exclusive("c")
	check := func() {
		t.Helper()
		for _, id := range []string{"a", "b", "c"} {
			c := d.get(id)
			equal(t, id+": waiting", c.WaitingDuration(d.now), 0)
			active, _ := c.ActiveDuration(d.now)
			equal(t, id+": active", active, 0)
		}
	}
	d.after(-time.Second)
	check()
	d.release("a")
	d.withdraw("c")
	check()
	d.after(-time.Second)
	d.release("b")
	check()
}

func TestRemainingIsNotNegative(t *testing.T) {
	d := setup(t)
	d.exclusive("a")
	d.after(4 * time.Second)
	a := d.get("a")
	equal(t, "the time that remains", a.Remaining(d.now), 6*time.Second)
	d.after(time.Hour)
	equal(t, "the time that remains", a.Remaining(d.now), 0)
}

func TestTime(t *testing.T) {
	equal(t, "Std", start.Std(), time.Date(2023, 11, 14, 22, 13, 20, 0, time.UTC))
	equal(t, "Sub", start.Add(time.Second).Sub(start), time.Second)
	equal(t, "Add back", start.Add(-time.Second), start-1_000_000)
	equal(t, "Add at the end", claim.Time(math.MaxInt64-1).Add(time.Second), math.MaxInt64)
}

func TestTarget(t *testing.T) {
	for _, want := range []struct {
		cmd          claim.Command
		resource, id string
	}{
		{request("a"), "printer", "a"},
		{lock("a", "ann"), "printer", ""},
		{renewal("ann", 1), "printer", ""},
		{claim.Release{Resource: "printer", Owner: "ann"}, "printer", ""},
		{claim.Expire{Resources: []string{"printer"}}, "printer", ""},
		{claim.Renew{ID: "a"}, "", "a"},
		{claim.Activate{ID: "a"}, "", "a"},
		{claim.SetStatus{ID: "a"}, "", "a"},
		{claim.End{ID: "a"}, "", "a"},
	} {
		targets := want.cmd.Targets()
		equal(t, "the number of targets", len(targets), 1)
		equal(t, "the resource", targets[0].Resource, want.resource)
		equal(t, "the id", targets[0].ID, want.id)
	}
}

// try is a request that does not wait.
func try(id string, mode claim.Units) claim.Create {
	cmd := request(id)
	cmd.Units, cmd.NoWait = mode, true
	return cmd
}

func TestTryHoldsAtOnceOrIsRefused(t *testing.T) {
	d := setup(t)
	a := d.do(try("a", claim.Exclusive))
	equal(t, "the status", a.Status, claim.Active)
	before := d.Row
	for _, mode := range []claim.Units{claim.Exclusive, claim.Shared} {
		err := d.refuse(try("b", mode))
		equal(t, "the error", describe(err), "collision with a, token "+uitoa(a.Token))
	}
	equal(t, "the row after refused tries", d.Row, before)
	if d.Find("b") != nil {
		t.Error("a refused try has left a claim")
	}
	d.release("a")
	equal(t, "the status of the next try, with the id of the refused one", d.do(try("b", claim.Exclusive)).Status, claim.Active)
}

func TestTryTakesOverADueLease(t *testing.T) {
	d := setup(t)
	d.exclusive("a")
	d.after(10 * time.Second)
	equal(t, "the status", d.do(try("b", claim.Exclusive)).Status, claim.Active)
	d.wantStatus(claim.Expired, "a")
}

func TestTryDoesNotOvertakeWaiters(t *testing.T) {
	d := setup(t)
	d.shared("r")
	d.exclusive("w")
	equal(t, "the error", describe(d.refuse(try("t", claim.Shared))), "collision with shared holders")
	d.withdraw("w")
	equal(t, "the status when nobody waits", d.do(try("t", claim.Shared)).Status, claim.Active)
}

func TestSharedTryIsNotRefusedBecauseOfAnotherTry(t *testing.T) {
	d := setup(t)
	d.do(try("r1", claim.Shared))
	equal(t, "the error", describe(d.refuse(try("w", claim.Exclusive))), "collision with shared holders")
	equal(t, "the status of another reader", d.do(try("r2", claim.Shared)).Status, claim.Active)
	equal(t, "the number of shared holders", d.Shared, 2)
}

func TestTryRepeated(t *testing.T) {
	d := setup(t)
	first := d.do(try("a", claim.Exclusive))
	d.after(time.Second)
	again := d.do(try("a", claim.Exclusive))
	equal(t, "the version of the repetition", again.Version, first.Version)
	d.release("a")
	equal(t, "the status after the end", d.do(try("a", claim.Exclusive)).Status, claim.Released)
	// A claim that was never active is not one that a try made.
	d.exclusive("holder")
	d.exclusive("waiter")
	wantErr(t, d.refuse(try("waiter", claim.Exclusive)), claim.ErrIDTaken)
	d.wantStatus(claim.Waiting, "waiter")
}

// A long run of shared claims is granted a part at a time, in order; each command about the resource continues it.
func TestGrantsAreBounded(t *testing.T) {
	const readers = 2*claim.MaxGrants + 500
	d := setup(t)
	d.exclusive("writer")
	for i := range readers {
		d.shared(strconv.Itoa(i))
	}
	d.exclusive("last")
	transact := func(cmd claim.Command) {
		d.use(reread(d))
		d.do(cmd)
	}
	transact(claim.End{ID: "writer"})
	equal(t, "the number of holders", d.Shared, claim.MaxGrants)
	equal(t, "Unsettled", d.Unsettled(), true)
	transact(claim.Expire{Resources: []string{"printer"}})
	equal(t, "the number of holders", d.Shared, 2*claim.MaxGrants)
	equal(t, "Unsettled", d.Unsettled(), true)
	transact(claim.Expire{Resources: []string{"printer"}})
	equal(t, "the number of holders", d.Shared, readers)
	equal(t, "Unsettled", d.Unsettled(), false)
	d.wantStatus(claim.Waiting, "last")
	for i := 1; i < readers; i++ {
		if d.get(strconv.Itoa(i)).Token <= d.get(strconv.Itoa(i-1)).Token {
			t.Fatalf("claim %d was not granted after claim %d", i, i-1)
		}
	}
}

// reread returns the whole queue as another transaction reads it.
func reread(d *queueTest) *claim.Queues {
	s := &shelf{row: d.Row, chunk: func() int { return 16 }}
	for _, change := range d.queues.Changes() {
		s.claims = append(s.claims, record(*change.After))
	}
	for _, e := range d.rest {
		if s.index(e.ID) < 0 {
			s.claims = append(s.claims, e)
		}
	}
	slices.SortFunc(s.claims, func(a, b entry) int { return cmp.Compare(a.Enqueued, b.Enqueued) })
	d.rest = s.claims
	var ids []string
	for _, e := range s.claims {
		ids = append(ids, e.ID)
	}
	return s.load(d.now, ids...)
}

func TestQueueIsBounded(t *testing.T) {
	d := setupRow(t, claim.Row{Version: 1, Holder: "a", Waiting: claim.MaxWaiting - 1}, 0)
	d.exclusive("last")
	wantErr(t, d.refuse(request("more")), claim.ErrQueueFull)
	equal(t, "the number that wait", d.Waiting, claim.MaxWaiting)
	d.do(request("last")) // it is there
	d.do(claim.End{ID: "last"})
	d.exclusive("more")
}

// TestAhead: a token, or a version, that is above all of the resource is refused with an error of its own, changes nothing, and is reported if
// the caller could hold all resources.
func TestAhead(t *testing.T) {
	some := access.NewRules([]*access.Rule{{Everybody: true, May: access.All, ResourcePrefix: new("print")}})
	all := access.NewRules([]*access.Rule{{Everybody: true, May: access.All, ResourcePrefix: new("")}})
	for name, cmd := range map[string]func(known uint64) claim.Command{
		"lock": func(known uint64) claim.Command { return renewal("ann", known) },
		"release": func(known uint64) claim.Command {
			return claim.Release{Resource: "printer", Owner: "ann", Token: known}
		},
		"if version": func(known uint64) claim.Command {
			return claim.IfVersion{ID: "a", Version: known, Then: claim.End{ID: "a"}}
		},
	} {
		for who, caller := range map[string]access.Caller{"anybody": {}, "one": {Identity: access.Identity{Name: "one"}, Rules: some}, "every": {Identity: access.Identity{Name: "every"}, Rules: all}} {
			d := setup(t)
			held := d.do(lock("a", "ann"))
			qs := d.queues
			qs.Now = d.now
			before := len(qs.Transitions())
			_, err := qs.DoFor(caller, cmd(held.Version+1))
			var ahead *claim.AheadError
			if !errors.As(err, &ahead) || ahead.Known != held.Version+1 || ahead.Version != held.Version {
				t.Errorf("%s by %s: %v", name, who, err)
			}
			if reported := len(qs.Ahead()) > 0; reported != (who != "one") || len(qs.Transitions()) > before {
				t.Errorf("%s by %s: reported: %t, changed: %v", name, who, reported, qs.Transitions())
			}
		}
	}
}

// TestIfVersion: a command for a version of a claim is carried out only while the claim has it.
func TestIfVersion(t *testing.T) {
	d := setup(t)
	a := d.exclusive("a")
	wantErr(t, d.refuse(claim.IfVersion{ID: "b", Version: a.Version, Then: claim.End{ID: "b"}}), claim.ErrNotFound)
	renewed := d.do(claim.IfVersion{ID: "a", Version: a.Version, Then: claim.Renew{ID: "a", TTL: time.Hour}})
	var changed *claim.VersionError
	if err := d.refuse(claim.IfVersion{ID: "a", Version: a.Version, Then: claim.End{ID: "a"}}); !errors.As(err, &changed) || changed.Version != renewed.Version {
		t.Errorf("the old version: %v, want that of %+v", err, renewed)
	}
	if got := d.do(claim.IfVersion{ID: "a", Version: renewed.Version, Then: claim.End{ID: "a"}}); got.Status != claim.Released {
		t.Errorf("it is %+v", got)
	}
}
