package claim_test

import (
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/locket-service/locket/internal/rules/claim"
)

// start is when the examples begin.
const start claim.Time = 1_700_000_000_000_000

// queueTest is a queue with a clock, so that the examples read as a story.
type queueTest struct {
	*claim.Queue
	queues *claim.Queues // with this queue only
	rest   []entry       // see reread
	t      testing.TB
	now    claim.Instant
}

// setup returns an empty queue that is fully known.
func setup(t testing.TB) *queueTest {
	t.Helper()
	return setupRow(t, claim.Row{}, 0)
}

// setupRow returns a queue with a row that was stored before.
func setupRow(t testing.TB, row claim.Row, floor uint64) *queueTest {
	t.Helper()
	row.Resource = "printer"
	d := &queueTest{t: t, now: claim.Instant{Wall: start, Lease: start}}
	d.use(only(claim.NewQueue(row, floor, nil)))
	return d
}

// only returns a set of one queue, without a time.
func only(q *claim.Queue) *claim.Queues {
	queues := claim.NewQueues(claim.Instant{}, 1)
	queues.Put(q)
	return queues
}

// use puts the queue that a new transaction has read into the test.
func (d *queueTest) use(queues *claim.Queues) {
	d.Queue, d.queues = queues.Resource("printer"), queues
}

// carryOut carries out a command at a time; the claim is empty if there is none.
func carryOut(queues *claim.Queues, cmd claim.Command, now claim.Instant) (claim.Claim, error) {
	queues.Now = now
	c, err := queues.Do(cmd)
	if c == nil {
		return claim.Claim{}, err
	}
	return *c, err
}

// Do carries out a command at a time.
func (d *queueTest) Do(cmd claim.Command, now claim.Instant) (claim.Claim, error) {
	return carryOut(d.queues, cmd, now)
}

// after moves the clock, back if d is negative.
func (d *queueTest) after(by time.Duration) {
	d.now.Wall += claim.Time(by / time.Microsecond)
	d.now.Lease += claim.Time(by / time.Microsecond)
}

// do carries out a command that must succeed.
func (d *queueTest) do(cmd claim.Command) claim.Claim {
	d.t.Helper()
	c, err := d.Do(cmd, d.now)
	if err != nil {
		d.t.Fatalf("%T%+v: %v", cmd, cmd, err)
	}
	return c
}

// refuse carries out a command that must fail, and returns the error.
func (d *queueTest) refuse(cmd claim.Command) error {
	d.t.Helper()
	c, err := d.Do(cmd, d.now)
	if err == nil {
		d.t.Fatalf("%T%+v was not refused: %+v", cmd, cmd, c)
	}
	return err
}

// exclusive and shared create a claim with a TTL of ten seconds.
func (d *queueTest) exclusive(id string) claim.Claim { d.t.Helper(); return d.do(request(id)) }

func (d *queueTest) shared(id string) claim.Claim {
	d.t.Helper()
	cmd := request(id)
	cmd.Units = claim.Shared
	return d.do(cmd)
}

func (d *queueTest) release(id string) claim.Claim { d.t.Helper(); return d.end(id, claim.Released) }

func (d *queueTest) withdraw(id string) claim.Claim { d.t.Helper(); return d.end(id, claim.Withdrawn) }

func (d *queueTest) end(id string, to claim.Status) claim.Claim {
	d.t.Helper()
	return d.do(claim.SetStatus{ID: id, Status: to})
}

// get returns a claim as it stands.
func (d *queueTest) get(id string) claim.Claim {
	d.t.Helper()
	c := d.Find(id)
	if c == nil {
		d.t.Fatalf("there is no claim %q", id)
	}
	return *c
}

// wantStatus checks where claims stand.
func (d *queueTest) wantStatus(want claim.Status, ids ...string) {
	d.t.Helper()
	for _, id := range ids {
		if got := d.get(id).Status; got != want {
			d.t.Errorf("%s is %s, want %s", id, got, want)
		}
	}
}

func request(id string) claim.Create {
	return claim.Create{
		ID: id, Resource: "printer", Owner: "owner of " + id, TTL: 10 * time.Second,
		UserData: []byte(`{"for":"` + id + `"}`),
	}
}

func lock(id, owner string) claim.Acquire {
	return claim.Acquire{
		ID: id, Resource: "printer", Owner: owner, Type: claim.Lock, TTL: 10 * time.Second,
	}
}

// renewal returns the renewal of one grant, different from lock in all that it may change.
func renewal(owner string, token uint64) claim.Acquire {
	return claim.Acquire{
		ID: "renewal", Resource: "printer", Owner: owner, Type: claim.Presence, TTL: time.Minute,
		Value: "new", Token: token,
	}
}

func equal[T comparable](t testing.TB, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s is %v, want %v", what, got, want)
	}
}

func wantErr(t testing.TB, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("got error %v, want %v", err, want)
	}
}

// wantTransition checks for a TransitionError; to is 0 for a renewal.
func wantTransition(t testing.TB, err error, from, to claim.Status) {
	t.Helper()
	var refused *claim.TransitionError
	if !errors.As(err, &refused) {
		t.Fatalf("got error %v, want a TransitionError", err)
	}
	equal(t, "From", refused.From, from)
	equal(t, "To", refused.To, to)
}

// entry is a stored claim: a claim.Claim that can be compared.
type entry struct {
	ID, Resource, Owner, Session string
	Units                        claim.Units
	Type                         claim.Type
	TTL, WaitTTL                 time.Duration
	UserData, Value              string
	Status                       claim.Status
	Enqueued, Token, Version     uint64
	Deadline                     claim.Time
	Created, Activated, Finished claim.Time
	Reason                       string
}

// record returns the entry of a claim.
func record(c claim.Claim) entry {
	return entry{
		c.ID, c.Resource, c.Owner, c.Session, c.Units, c.Type, c.TTL, c.WaitTTL, string(c.UserData), c.Value,
		c.Status, c.Enqueued, c.Token, c.Version, c.Deadline,
		c.Created, c.Activated, c.Finished, c.Reason,
	}
}

// claim returns the claim that was recorded, as an engine reads it.
func (e entry) claim() *claim.Claim {
	return &claim.Claim{
		ID: e.ID, Resource: e.Resource, Owner: e.Owner, Session: e.Session, Units: e.Units, Type: e.Type,
		TTL: e.TTL, WaitTTL: e.WaitTTL, UserData: []byte(e.UserData), Value: e.Value,
		Status: e.Status, Enqueued: e.Enqueued, Token: e.Token, Version: e.Version,
		Deadline: e.Deadline, Created: e.Created, Activated: e.Activated,
		Finished: e.Finished, Reason: e.Reason,
	}
}

// describe puts an error into words that can be compared.
func describe(err error) string {
	var collision *claim.CollisionError
	switch {
	case err == nil:
		return ""
	case !errors.As(err, &collision):
		return err.Error()
	case collision.Holder == nil:
		return "collision with shared holders"
	}
	return fmt.Sprintf("collision with %s, token %d", collision.Holder.ID, collision.Holder.Token)
}

func uitoa(n uint64) string { return strconv.FormatUint(n, 10) }
