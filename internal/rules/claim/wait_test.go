package claim_test

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/locket-service/locket/internal/rules/claim"
)

const waitTTL = time.Minute

// patient returns a request of a claim that may wait for a minute, and for a TTL of an hour.
func patient(id string) claim.Create {
	cmd := request(id)
	cmd.TTL, cmd.WaitTTL = time.Hour, waitTTL
	return cmd
}

func TestWaitThatNobodyAsksAboutIsAborted(t *testing.T) {
	d := setup(t)
	d.do(claim.Create{ID: "holder", Resource: "printer", TTL: time.Hour})
	d.do(patient("a"))
	d.exclusive("b")
	equal(t, "the deadline", d.get("a").Deadline, d.now.Lease.Add(waitTTL))
	equal(t, "the deadline of one without a wait TTL", d.get("b").Deadline, 0)
	d.after(waitTTL - time.Microsecond)
	d.do(claim.Expire{Waiters: []string{"a", "b"}})
	d.wantStatus(claim.Waiting, "a", "b")
	d.after(time.Microsecond)
	d.do(claim.Expire{Resources: []string{"printer"}}) // which names no waiter
	d.wantStatus(claim.Waiting, "a", "b")
	d.do(claim.Expire{Waiters: []string{"a", "b", "none"}})
	d.wantStatus(claim.Aborted, "a")
	d.wantStatus(claim.Waiting, "b")
	equal(t, "the reason", d.get("a").Reason, claim.ReasonAbandoned)
	equal(t, "the number that wait", d.Waiting, 1)
}

// An outage counts against nobody.
func TestOutageAbortsNobody(t *testing.T) {
	d := setup(t)
	d.exclusive("holder")
	d.do(patient("a"))
	d.now.Wall = d.now.Wall.Add(time.Hour)
	d.do(claim.Expire{Waiters: []string{"a"}})
	d.wantStatus(claim.Waiting, "a")
}

func TestAbandonedIsNeverGranted(t *testing.T) {
	d := setup(t)
	d.do(claim.Create{ID: "holder", Resource: "printer", TTL: time.Hour})
	for i := range claim.MaxGrants - 1 {
		d.do(patient(fmt.Sprint(i)))
	}
	d.exclusive("live")
	d.after(waitTTL)
	d.release("holder")
	equal(t, "the holder", d.Holder, "live")
	d.wantStatus(claim.Aborted, "0", "998")
	equal(t, "the number that wait", d.Waiting, 0)
}

// When more are abandoned than one transaction ends, the next of them is granted, so that the resource is never free
// while somebody waits. It is due at once, and the next transaction continues.
func TestAbandonedInSteps(t *testing.T) {
	d := setup(t)
	d.do(claim.Create{ID: "holder", Resource: "printer", TTL: time.Hour})
	for i := range 2 * claim.MaxGrants {
		d.do(patient(fmt.Sprint(i)))
	}
	d.exclusive("live")
	d.after(waitTTL)
	d.use(reread(d))
	d.release("holder")
	equal(t, "the holder", d.Holder, "1000")
	due := d.get("1000")
	equal(t, "whether it is due", due.Due(d.now), true)
	equal(t, "Unsettled", d.Unsettled(), true)
	d.use(reread(d))
	d.do(claim.Expire{Resources: []string{"printer"}})
	equal(t, "the holder", d.Holder, "live")
	d.wantStatus(claim.Expired, "1000")
	d.wantStatus(claim.Aborted, "0", "999", "1001", "1999")
	equal(t, "Unsettled", d.Unsettled(), false)
}

// One that waits for shared holders keeps those behind it out no longer.
func TestAbandonedBetweenSharedClaims(t *testing.T) {
	d := setup(t)
	d.do(claim.Create{ID: "r1", Resource: "printer", TTL: time.Hour, Units: claim.Shared})
	d.do(patient("w"))
	d.after(waitTTL)
	d.shared("r2")
	d.wantStatus(claim.Aborted, "w")
	d.wantStatus(claim.Active, "r1", "r2")
}

func TestAskingKeepsAClaimWaiting(t *testing.T) {
	for name, ask := range map[string]func(d *queueTest){
		"keep":       func(d *queueTest) { d.do(claim.KeepWaiting{IDs: []string{"none", "holder", "a", "forever"}}) },
		"active":     func(d *queueTest) { wantErr(d.t, d.refuse(claim.Activate{ID: "a"}), claim.ErrContention) },
		"renew":      func(d *queueTest) { wantTransition(d.t, d.refuse(claim.Renew{ID: "a"}), claim.Waiting, 0) },
		"once again": func(d *queueTest) { equal(d.t, "the id", d.do(patient("a")).ID, "a") },
	} {
		t.Run(name, func(t *testing.T) {
			d := setup(t)
			d.do(claim.Create{ID: "holder", Resource: "printer", TTL: time.Hour})
			d.do(patient("a"))
			d.exclusive("forever")
			deadline, version := d.get("a").Deadline, d.Version
			if name != "keep" { // which only comes when it is time
				d.after(waitTTL/8 - time.Microsecond)
				ask(d)
				equal(t, "the deadline within an eighth of the time", d.get("a").Deadline, deadline)
				equal(t, "the version within an eighth of the time", d.Version, version)
				d.after(time.Microsecond)
			}
			ask(d)
			equal(t, "the deadline", d.get("a").Deadline, d.now.Lease.Add(waitTTL))
			if c := d.get("a"); c.Version <= version || c.Version > d.Version || c.Status != claim.Waiting {
				t.Errorf("kept waiting as %+v after version %d", c, version)
			}
			equal(t, "the deadline of another", d.get("forever").Deadline, 0)
			equal(t, "that of the holder", d.get("holder").Deadline, start.Add(time.Hour))
			d.after(waitTTL - time.Microsecond)
			d.release("holder")
			equal(t, "the holder", d.Holder, "a")
		})
	}
}

// A grant says nothing of whether anybody wants it: it moves no deadline on. The first renewal does.
func TestGrantOfAClaimThatMayBeAbandoned(t *testing.T) {
	d := setup(t)
	d.exclusive("holder")
	d.do(patient("a"))
	short := patient("b")
	short.TTL = time.Second
	d.do(short)
	d.after(5 * time.Second)
	d.release("holder")
	equal(t, "the deadline", d.get("a").Deadline, start.Add(waitTTL))
	granted := d.do(claim.Activate{ID: "a"})
	equal(t, "the time that remains", granted.Remaining(d.now), waitTTL-5*time.Second)
	equal(t, "the deadline after a renewal", d.do(claim.Renew{ID: "a", TTL: time.Hour}).Deadline, d.now.Lease.Add(time.Hour))
	d.release("a")
	equal(t, "the deadline of a short lease", d.get("b").Deadline, d.now.Lease.Add(time.Second))
}

// A claim that is granted at once has not waited.
func TestWaitTTLOfAGrantAtOnce(t *testing.T) {
	d := setup(t)
	equal(t, "the deadline", d.do(patient("a")).Deadline, start.Add(time.Hour))
	try := patient("b")
	try.Resource, try.NoWait = "printer", true
	d.release("a")
	d.after(time.Second)
	equal(t, "the deadline of a try", d.do(try).Deadline, d.now.Lease.Add(time.Hour))
}

// Many that are abandoned together delay the others for one wait TTL, however the grants fall.
func TestAbandonedDelayTheOthersTogether(t *testing.T) {
	d := setup(t)
	d.exclusive("holder")
	const dead = 100
	for i := range dead {
		d.do(patient(strconv.Itoa(i)))
	}
	d.exclusive("live")
	d.after(time.Second)
	d.release("holder")
	d.after(waitTTL - time.Second - time.Microsecond)
	d.do(claim.Expire{Resources: []string{"printer"}})
	equal(t, "the holder", d.Holder, "0")
	d.after(time.Microsecond)
	d.do(claim.Expire{Resources: []string{"printer"}})
	equal(t, "the holder", d.Holder, "live")
}

// A retry finds the claim, whether the server of the first attempt knew wait TTLs or not.
func TestRetryWithAnotherWaitTTL(t *testing.T) {
	d := setup(t)
	d.do(request("a"))
	cmd := request("a")
	cmd.WaitTTL = waitTTL
	equal(t, "the wait TTL", d.do(cmd).WaitTTL, 0)
}
