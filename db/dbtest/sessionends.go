package dbtest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/rules/claim"
)

var sessionEndCases = []Case{
	{Name: "SessionEnds", Run: sessionEnds},
	{Name: "SessionEndsInItsBatch", Run: sessionEndsInItsBatch},
	{Name: "ManySessionsEnd", Run: manySessionsEnd},
}

// longData is the maximum length of a claim's data.
const longData = 64 << 10

// longer gives a claim as much data as it may have.
func longer(cmd claim.Create) claim.Create {
	cmd.UserData, cmd.Value = []byte(strings.Repeat("'", longData)), strings.Repeat("\\", longData)
	return cmd
}

// inSteps carries out a command in as many transactions as it takes, and calls between after each but the last.
func inSteps(t testing.TB, s db.Store, cmd claim.Command, between func()) {
	t.Helper()
	for {
		answers := try(t, s, 0, cmd)
		if answers[0].err == nil {
			return
		}
		if !errors.Is(answers[0].err, claim.ErrUnfinished) {
			t.Fatalf("%T: %v", cmd, answers[0].err)
		}
		between()
		cmd = claim.Rest(cmd)
	}
}

// sessionEnds ends a session that holds and waits for many resources. Waiting claims end first, and not too many in one
// transaction. The held ones have long values.
func sessionEnds(t testing.TB, e Engine) {
	const n = 800
	Do(t, e.Store, attach("s", "s1"), attach("next", "s1"))
	var first, theirs []claim.Command
	for i := range n {
		resource := fmt.Sprint("r", i)
		mine, other := claim.Command(bound(fmt.Sprint("mine", i), resource, "s")), claim.Command(bound(fmt.Sprint("other", i), resource, "next"))
		if i%3 == 0 { // this one waits
			mine, other = other, mine
		} else if i%100 == 1 {
			mine = longer(mine.(claim.Create))
		}
		first, theirs = append(first, mine), append(theirs, other)
	}
	Do(t, e.Store, first...)
	Do(t, e.Store, theirs...)
	Do(t, e.Store, exclusive("mine too", "own"))
	live, steps := n, 0
	inSteps(t, e.Store, ending("s"), func() {
		claims, err := e.Store.Live(t.Context(), db.LiveOf{Session: "s"}, db.Page{})
		must(t, err)
		waits := slices.ContainsFunc(claims, func(c claim.Claim) bool { return c.Status == claim.Waiting })
		if ended := live - len(claims); ended == 0 || ended > claim.MaxEnds || waits && len(claims) < n-n/3 {
			t.Fatalf("one transaction has ended %d, %d are left", ended, len(claims))
		}
		live = len(claims)
		steps++
		s := session(t, e.Store, "s")
		if want := (claim.Ending{Active: claim.Expired, Waiting: claim.Aborted, Reason: "over"}); s.Ending != want || s.Server != "" || s.Deadline == 0 {
			t.Fatalf("after step %d: %+v", steps, s)
		}
	})
	if steps < n/claim.MaxEnds {
		t.Errorf("it took %d steps", steps)
	}
	noSession(t, e.Store, "s")
	sessionClaimsAre(t, e.Store, "s")
	for i := range n {
		mine, other := get(t, e.Store, fmt.Sprint("mine", i)), get(t, e.Store, fmt.Sprint("other", i))
		want := claim.Expired
		if i%3 == 0 {
			want = claim.Aborted
		}
		if mine.Status != want || mine.Reason != "over" || other.Status != claim.Active || other.Deadline != claim.Forever {
			t.Fatalf("%d: %+v, then %+v", i, mine, other)
		}
	}
	status(t, e.Store, "mine too", claim.Active)
	claims, err := e.Store.Live(t.Context(), db.LiveOf{Session: "next"}, db.Page{})
	must(t, err)
	equal(t, "claims of the other session", len(claims), n)
	long := get(t, e.Store, "mine1")
	equal(t, "length of the value and of the user data", []int{len(long.Value), len(long.UserData)}, []int{longData, longData})
	inSteps(t, e.Store, ending("next"), func() {})
	count(t, e.Store, db.Census{Active: 1, Finished: 2 * n})
}

// sessionEndsInItsBatch ends a session in the same batch as its commands.
func sessionEndsInItsBatch(t testing.TB, e Engine) {
	Do(t, e.Store, attach("s", "s1"), bound("a", "r", "s"), exclusive("next", "r"))
	Do(t, e.Store, bound("b", "q", "s"), ending("s"), attach("new", "s1"), bound("c", "p", "new"), ending("new"))
	for _, id := range []string{"a", "b", "c"} {
		status(t, e.Store, id, claim.Expired)
	}
	status(t, e.Store, "next", claim.Active)
	noSession(t, e.Store, "s")
	noSession(t, e.Store, "new")
	answers := try(t, e.Store, 0, attach("x", "s1"), ending("x"), bound("d", "p", "x"), attach("x", "s1"))
	if !errors.Is(answers[2].err, claim.ErrSessionEnded) || !errors.Is(answers[3].err, claim.ErrSessionEnded) {
		t.Errorf("what came after the end: %v", answers)
	}
	noSession(t, e.Store, "x")
}

// manySessionsEnd ends several sessions together, by many transactions of bounded size.
func manySessionsEnd(t testing.TB, e Engine) {
	const sessions, each = 6, claim.MaxEnds / 4
	left := make(map[int]claim.Command)
	for s := range sessions {
		id := fmt.Sprint("s", s)
		cmds := []claim.Command{attach(id, "s1")}
		for i := range each {
			cmds = append(cmds, bound(fmt.Sprint(id, "-", i), fmt.Sprint("r", i), id))
		}
		Do(t, e.Store, cmds...)
		left[s] = ending(id)
	}
	left[1] = claim.EndSession{ID: "s1", Keep: true, Waiting: claim.Withdrawn}
	before := sessions * each
	for len(left) > 0 {
		var cmds []claim.Command
		var of []int
		for s, cmd := range left {
			cmds, of = append(cmds, cmd), append(of, s)
		}
		for i, answer := range try(t, e.Store, 0, cmds...) {
			if answer.err == nil {
				delete(left, of[i])
			} else {
				left[of[i]] = claim.Rest(cmds[i])
			}
		}
		live := 0
		for s := range sessions {
			claims, err := e.Store.Live(t.Context(), db.LiveOf{Session: fmt.Sprint("s", s)}, db.Page{})
			must(t, err)
			live += len(claims)
		}
		if before-live > claim.MaxEnds || before == live && len(left) > 0 {
			t.Fatalf("one transaction has ended %d claims", before-live)
		}
		before = live
	}
	sessionClaimsAre(t, e.Store, "s0")
	session(t, e.Store, "s1")
	kept, err := e.Store.Live(t.Context(), db.LiveOf{Session: "s1"}, db.Page{})
	must(t, err)
	for _, c := range kept {
		equal(t, "status of a kept claim", c.Status, claim.Active)
	}
	noSession(t, e.Store, "s2")
}
