package claim_test

import (
	"slices"

	"pgregory.net/rapid"

	"github.com/locket-service/locket/internal/rules/claim"
)

// checkState checks the invariants of a queue. claims has all claims, in order of arrival.
func checkState(t rapid.TB, row claim.Row, claims []entry) {
	t.Helper()
	if want := recount(row.Version, claims); row != want {
		t.Fatalf("the row says %+v, a recount %+v", row, want)
	}
	checkHolders(t, claims)
	checkOrder(t, claims)
	checkNoneLeftBehind(t, claims)
	checkVersions(t, row, claims)
	for _, e := range claims {
		checkHistory(t, e)
	}
}

// Rule 1.
func checkHolders(t rapid.TB, claims []entry) {
	t.Helper()
	var before []entry
	for _, e := range claims {
		if e.Status != claim.Active {
			continue
		}
		if len(before) > 0 && !fits(before, e.Units) {
			t.Fatalf("%+v and %+v hold together", before, e)
		}
		before = append(before, e)
	}
}

// Rule 2. When a claim was granted, each that came before it had been granted or had
// gone.
func checkOrder(t rapid.TB, claims []entry) {
	t.Helper()
	var gone uint64 // when the last of the earlier claims stopped waiting
	for i, e := range claims {
		if i > 0 && e.Enqueued <= claims[i-1].Enqueued {
			t.Fatalf("%+v is out of order", e)
		}
		if e.Token != 0 && e.Token < gone {
			t.Fatalf("%+v overtook another: %+v", e, claims)
		}
		gone = max(gone, leftLine(e))
	}
}

// leftLine returns the version when a claim stopped waiting.
func leftLine(e entry) uint64 {
	switch {
	case e.Token != 0:
		return e.Token
	case e.Status == claim.Waiting:
		return 1<<64 - 1
	}
	return e.Version
}

// Rule 3. The first that waits has a reason to wait.
func checkNoneLeftBehind(t rapid.TB, claims []entry) {
	t.Helper()
	first := slices.IndexFunc(claims, func(e entry) bool { return e.Status == claim.Waiting })
	if first < 0 || !fits(claims, claims[first].Units) {
		return
	}
	t.Fatalf("%+v waits for nobody", claims[first])
}

// Rule 4. Every change has a version of its own.
func checkVersions(t rapid.TB, row claim.Row, claims []entry) {
	t.Helper()
	seen := map[uint64]string{}
	for _, e := range claims {
		if seen[e.Version] != "" || e.Version > row.Version {
			t.Fatalf("version %d of %s, of %q too; the row is at %d", e.Version, e.ID, seen[e.Version], row.Version)
		}
		seen[e.Version] = e.ID
		if e.Enqueued > e.Version || e.Token > e.Version || (e.Token != 0 && e.Token <= e.Enqueued) {
			t.Fatalf("enqueue version, token and version are out of order: %+v", e)
		}
	}
}

// Rule 6. The history is complete.
func checkHistory(t rapid.TB, e entry) {
	t.Helper()
	want := []claim.StatusChange{{Status: claim.Waiting, At: e.Created}}
	if e.Token != 0 {
		want = append(want, claim.StatusChange{Status: claim.Active, At: e.Activated})
	}
	if isFinal(e.Status) {
		want = append(want, claim.StatusChange{Status: e.Status, At: e.Finished})
	}
	held := e.Status == claim.Active || e.Status == claim.Released || e.Status == claim.Expired
	switch got := e.claim().History(); {
	case !slices.Equal(got, want):
		t.Fatalf("the history of %+v is %v", e, got)
	case e.Created == 0, held && e.Token == 0, (e.Token == 0) != (e.Activated == 0):
		t.Fatalf("a status without its moment: %+v", e)
	case isFinal(e.Status) != (e.Finished != 0):
		t.Fatalf("an end without its moment: %+v", e)
	}
}

// checkStep checks the invariants between two moments: before has the earlier claims and version, after the later
// claims.
func checkStep(t rapid.TB, version uint64, before, after []entry, cmds ...claim.Command) {
	t.Helper()
	if len(after) < len(before) {
		t.Fatalf("%d claims were lost", len(before)-len(after))
	}
	for i, now := range after {
		var was entry
		if i < len(before) {
			was = before[i]
			checkKept(t, was, now)
		}
		checkMoved(t, version, was, now, cmds)
		checkRenewed(t, was, now, cmds)
		checkHeld(t, was, now, cmds)
	}
}

// checkKept checks that constant fields have not changed.
func checkKept(t rapid.TB, was, now entry) {
	t.Helper()
	same := was
	same.Type, same.TTL, same.Value = now.Type, now.TTL, now.Value
	same.Status, same.Token, same.Version = now.Status, now.Token, now.Version
	same.Deadline, same.Activated, same.Finished = now.Deadline, now.Activated, now.Finished
	same.Reason = now.Reason
	switch {
	case isFinal(was.Status) && was != now:
		t.Fatalf("final, and changed: %+v, now %+v", was, now)
	case was.Token != 0 && was.Token != now.Token:
		t.Fatalf("a second token: %+v, now %+v", was, now)
	case was.Status == claim.Active && now.Status == claim.Waiting:
		t.Fatalf("back in the line: %+v, now %+v", was, now)
	case same != now:
		t.Fatalf("another claim: %+v, now %+v", was, now)
	}
}

// checkMoved checks that a claim's version changed exactly if the claim changed (a renewal may repeat the same
// values), and that versions and tokens are new.
func checkMoved(t rapid.TB, version uint64, was, now entry, cmds []claim.Command) {
	t.Helper()
	same := was
	same.Version = now.Version
	switch moved, changed := was.Version != now.Version, same != now; {
	case changed && !moved, moved && !changed && !slices.ContainsFunc(cmds, renews(now)):
		t.Fatalf("changed %t, version moved %t: %+v, now %+v", changed, moved, was, now)
	case moved && now.Version <= version, now.Token != was.Token && now.Token <= version:
		t.Fatalf("not above version %d: %+v", version, now)
	}
}

// Rule 8. A lease changes only by a command that is about this very grant, or that names
// no grant; and one that names a grant makes no claim.
func checkRenewed(t rapid.TB, was, now entry, cmds []claim.Command) {
	t.Helper()
	same := was
	same.Type, same.TTL, same.Value, same.Deadline = now.Type, now.TTL, now.Value, now.Deadline
	if was.Token != 0 && same != was && !slices.ContainsFunc(cmds, renews(now)) {
		t.Fatalf("renewed by none of %+v: %+v, now %+v", cmds, was, now)
	}
	for _, cmd := range cmds {
		if cmd, ok := cmd.(claim.Acquire); ok && cmd.Token != 0 && cmd.ID == now.ID {
			t.Fatalf("%+v made %+v", cmd, now)
		}
	}
}

// renews returns whether a command may renew a claim.
func renews(e entry) func(claim.Command) bool {
	return func(cmd claim.Command) bool {
		switch cmd := cmd.(type) {
		case claim.Renew:
			return cmd.ID == e.ID
		case claim.Acquire:
			return cmd.Owner == e.Owner && (cmd.Token == 0 || cmd.Token == e.Token)
		case claim.Activate:
			return cmd.ID == e.ID && (cmd.TTL != nil || e.Status == claim.Waiting)
		case claim.KeepWaiting:
			return slices.Contains(cmd.IDs, e.ID)
		}
		return false
	}
}

// checkSame compares all claims with the model's. Holders that expire together do so in no particular order, so it
// ignores which of them has which version.
func checkSame(t rapid.TB, got, want []entry) {
	t.Helper()
	if !slices.Equal(anyExpiryOrder(got), anyExpiryOrder(want)) ||
		!slices.Equal(expiryVersions(got), expiryVersions(want)) {
		t.Fatalf("the claims are\n%+v\nthose of the model\n%+v", got, want)
	}
}

func anyExpiryOrder(claims []entry) []entry {
	same := slices.Clone(claims)
	for i := range same {
		same[i] = anyExpiry(same[i])
	}
	return same
}

func anyExpiry(e entry) entry {
	if e.Status == claim.Expired {
		e.Version = 0
	}
	return e
}

func expiryVersions(claims []entry) []uint64 {
	var versions []uint64
	for _, e := range claims {
		if e.Status == claim.Expired {
			versions = append(versions, e.Version)
		}
	}
	slices.Sort(versions)
	return versions
}

// checkAnswer compares the answer to a command with the model's.
func checkAnswer(t rapid.TB, cmd claim.Command, got claim.Claim, err error, want entry, wantErr error) {
	t.Helper()
	if describe(err) != describe(wantErr) {
		t.Fatalf("%T%+v: error %q, the model says %q", cmd, cmd, describe(err), describe(wantErr))
	}
	if anyExpiry(record(got)) != anyExpiry(want) {
		t.Fatalf("%T%+v: %+v, the model says %+v", cmd, cmd, record(got), want)
	}
}
