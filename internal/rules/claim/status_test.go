package claim_test

import (
	"strings"
	"testing"
	"time"

	"github.com/locket-service/locket/internal/rules/claim"
)

// garbage is an invalid status.
const garbage claim.Status = 99

// updates are the columns of the matrix: everything that a client can ask of a claim.
var updates = []struct {
	name string
	cmd  claim.Command
	to   claim.Status // that a TransitionError names
}{
	{"released", claim.SetStatus{ID: "it", Status: claim.Released}, claim.Released},
	{"aborted", claim.SetStatus{ID: "it", Status: claim.Aborted}, claim.Aborted},
	{"withdrawn", claim.SetStatus{ID: "it", Status: claim.Withdrawn}, claim.Withdrawn},
	{"revoked", claim.SetStatus{ID: "it", Status: claim.Revoked}, claim.Revoked},
	{"expired", claim.SetStatus{ID: "it", Status: claim.Expired}, claim.Expired},
	{"active", claim.SetStatus{ID: "it", Status: claim.Active}, claim.Active},
	{"waiting", claim.SetStatus{ID: "it", Status: claim.Waiting}, claim.Waiting},
	{"garbage", claim.SetStatus{ID: "it", Status: garbage}, garbage},
	{"renew", claim.Renew{ID: "it", TTL: time.Minute}, 0},
	{"activate", claim.Activate{ID: "it"}, claim.Active},
	{"activate with a ttl", claim.Activate{ID: "it", TTL: minute()}, claim.Active},
	{"give up", claim.End{ID: "it"}, 0},
}

func minute() *time.Duration { m := time.Minute; return &m }

// matrix has the effect of each update on a claim in each status (the REST requirements, PATCH):
//
//	ends       the claim takes on the final status that was asked for
//	releases   the claim is released
//	withdraws  the claim is withdrawn
//	renews     the claim stays active and gets a new deadline
//	same       no error, and nothing changes
//	waits      ErrContention, and nothing changes
//	no         TransitionError, and nothing changes
var matrix = []struct {
	from  claim.Status
	how   string
	reach func(d *queueTest)
	//    released aborted withdrawn revoked | expired active waiting garbage | renew activate activate+ttl | give up
	want string
}{
	{claim.Waiting, "behind another", reachWaiting, "no ends ends ends | no no no no | no waits waits | withdraws"},
	{claim.Active, "granted at once", reachActive, "ends ends ends ends | no no no no | renews same renews | releases"},
	{claim.Active, "granted in turn", reachTurn, "ends ends ends ends | no no no no | renews same renews | releases"},
	{claim.Active, "due, but not wanted", reachDue, "ends ends ends ends | no no no no | renews same renews | releases"},

	{claim.Released, "when active", ended(reachActive, claim.Released), "same no no no | no no no no | no no no | same"},
	{claim.Aborted, "when active", ended(reachActive, claim.Aborted), "no same no no | no no no no | no no no | same"},
	{claim.Withdrawn, "when active", ended(reachActive, claim.Withdrawn), "no no same no | no no no no | no no no | same"},
	{claim.Revoked, "when active", ended(reachActive, claim.Revoked), "no no no same | no no no no | no no no | same"},
	{claim.Expired, "by the sweep", reachSwept, "no no no no | same no no no | no no no | same"},
	{claim.Expired, "by the next claim", reachOvertaken, "no no no no | same no no no | no no no | same"},

	{claim.Aborted, "when waiting", ended(reachWaiting, claim.Aborted), "no same no no | no no no no | no no no | same"},
	{claim.Withdrawn, "when waiting", ended(reachWaiting, claim.Withdrawn), "no no same no | no no no no | no no no | same"},
	{claim.Revoked, "when waiting", ended(reachWaiting, claim.Revoked), "no no no same | no no no no | no no no | same"},
}

func reachActive(d *queueTest)  { d.exclusive("it") }
func reachWaiting(d *queueTest) { d.exclusive("first"); d.exclusive("it") }
func reachTurn(d *queueTest)    { reachWaiting(d); d.release("first") }
func reachDue(d *queueTest)     { reachActive(d); d.after(time.Hour) }
func reachSwept(d *queueTest) {
	reachDue(d)
	_, _ = d.Do(claim.Expire{Resources: []string{"printer"}}, d.now)
}

func reachOvertaken(d *queueTest) { reachDue(d); d.exclusive("next") }

func ended(reach func(*queueTest), to claim.Status) func(*queueTest) {
	return func(d *queueTest) { reach(d); d.after(time.Second); d.end("it", to) }
}

func TestStatusMatrix(t *testing.T) {
	for _, row := range matrix {
		want := strings.Fields(strings.ReplaceAll(row.want, "|", ""))
		if len(want) != len(updates) {
			t.Fatalf("%s %s: %d cells for %d updates", row.from, row.how, len(want), len(updates))
		}
		for i, update := range updates {
			name := row.from.String() + " " + row.how + "/" + update.name
			t.Run(name, func(t *testing.T) {
				d := setup(t)
				row.reach(d)
				d.wantStatus(row.from, "it")
				d.after(time.Second)
				checkCell(d, update.cmd, update.to, want[i])
			})
		}
	}
}

func checkCell(d *queueTest, cmd claim.Command, to claim.Status, want string) {
	before, version := record(d.get("it")), d.Version
	got, err := d.Do(cmd, d.now)
	after := record(d.get("it"))
	if err == nil {
		equal(d.t, "the claim returned", record(got), after)
	}
	ends := map[string]claim.Status{"ends": to, "releases": claim.Released, "withdraws": claim.Withdrawn}
	switch want {
	case "ends", "releases", "withdraws":
		wantErr(d.t, err, nil)
		equal(d.t, "the status", after.Status, ends[want])
		equal(d.t, "the end", after.Finished, d.now.Wall)
		return
	case "renews":
		wantErr(d.t, err, nil)
		equal(d.t, "the status", after.Status, claim.Active)
		equal(d.t, "the TTL", after.TTL, time.Minute)
		equal(d.t, "the deadline", after.Deadline, d.now.Lease.Add(time.Minute))
		equal(d.t, "the token", after.Token, before.Token)
		return
	case "same":
		wantErr(d.t, err, nil)
	case "waits":
		wantErr(d.t, err, claim.ErrContention)
	case "no":
		wantTransition(d.t, err, before.Status, to)
	default:
		d.t.Fatalf("the matrix says %q", want)
	}
	equal(d.t, "the claim", after, before)
	equal(d.t, "the version", d.Version, version)
}

func TestUnknownClaim(t *testing.T) {
	for _, update := range updates {
		t.Run(update.name, func(t *testing.T) {
			d := setup(t)
			d.exclusive("another")
			wantErr(t, d.refuse(update.cmd), claim.ErrNotFound)
		})
	}
}

// The numbers are stored in databases and sent over the wire.
func TestStatusNumbersAndNames(t *testing.T) {
	for _, want := range []struct {
		status      claim.Status
		number      uint8
		name        string
		live, final bool
	}{
		{claim.Waiting, 1, "waiting", true, false},
		{claim.Active, 2, "active", true, false},
		{claim.Released, 3, "released", false, true},
		{claim.Expired, 4, "expired", false, true},
		{claim.Aborted, 5, "aborted", false, true},
		{claim.Withdrawn, 6, "withdrawn", false, true},
		{claim.Revoked, 7, "revoked", false, true},
		{0, 0, "status 0", false, false},
		{8, 8, "status 8", false, false},
		{garbage, 99, "status 99", false, false},
	} {
		t.Run(want.name, func(t *testing.T) {
			equal(t, "the number", uint8(want.status), want.number)
			equal(t, "the name", want.status.String(), want.name)
			equal(t, "live", want.status.Live(), want.live)
			equal(t, "final", want.status.Final(), want.final)
			equal(t, "valid", want.status.Valid(), want.live || want.final)
		})
	}
}

func TestNamesOfUnits(t *testing.T) {
	equal(t, "the name", claim.Exclusive.String(), "exclusive")
	equal(t, "the name", claim.Shared.String(), "shared")
	equal(t, "the name", claim.Units{Take: 2, Of: 5}.String(), "2 of 5 units")
}

// TestConflicts: two claims conflict if their units are not there for both.
func TestConflicts(t *testing.T) {
	few := claim.Units{Take: 2, Of: 5}
	for _, test := range []struct {
		a, b      claim.Units
		conflicts bool
	}{
		{claim.Exclusive, claim.Exclusive, true},
		{claim.Exclusive, claim.Shared, true},
		{claim.Shared, claim.Shared, false},
		{few, claim.Exclusive, true},
		{few, claim.Shared, true}, // they differ about how many units there are
		{few, few, false},
		{few, claim.Units{Take: 4, Of: 5}, true},
		{few, claim.Units{Take: 3, Of: 5}, false},
		{claim.Units{Take: 1<<32 - 1, Of: 1<<32 - 1}, claim.Units{Take: 1, Of: 1<<32 - 1}, true},
	} {
		a, b := &claim.Claim{Units: test.a}, &claim.Claim{Units: test.b}
		if a.Conflicts(b) != test.conflicts || b.Conflicts(a) != test.conflicts {
			t.Errorf("%v and %v: %t, %t", test.a, test.b, a.Conflicts(b), b.Conflicts(a))
		}
	}
}
