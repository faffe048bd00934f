package history_test

import (
	"slices"
	"testing"
	"time"

	"github.com/locket-service/locket/internal/rules/claim"
	"github.com/locket-service/locket/tests/history"
)

type (
	ops = []history.Operation
	out = history.Output
)

const (
	ttl   = time.Second
	never = -1 // when a request is answered that is not
)

var (
	exclusive = claim.Exclusive
	shared    = claim.Shared
)

// story is the final content of the store, with the requests and answers.
type story struct {
	stored []claim.Claim
	ops    ops
}

// stored begins a story with claims that clients asked for, ended and were not answered.
func stored(claims ...claim.Claim) story {
	s := story{stored: claims}
	for _, c := range claims {
		create := history.CreateFor(claim.Create{ID: c.ID, Resource: "k", Owner: c.Owner, Units: c.Units, TTL: ttl, WaitTTL: c.WaitTTL})
		if c.Session != "" {
			create = history.Lock("k", c.Session, c.Units)
		}
		s.ops = append(s.ops, at(0, never, create, unanswered))
		if c.Status.Final() && c.Status != claim.Expired {
			s.ops = append(s.ops, at(0, never, history.SetStatus("k", c.ID, c.Status), unanswered))
		}
	}
	return s
}

// and adds requests that were answered.
func (s story) and(then ...history.Operation) story {
	s.ops = append(slices.Clone(s.ops), then...)
	return s
}

// only leaves out unanswered requests.
func (s story) only(then ...history.Operation) story {
	s.ops = then
	return s
}

func (s story) check() error { return history.Check(s.stored, s.ops) }

// a claim has the versions of its entry, grant and release.
func a(id string, mode claim.Units, versions ...uint64) claim.Claim {
	c := claim.Claim{ID: id, Resource: "k", Owner: id, Units: mode, TTL: ttl, Status: claim.Waiting, Enqueued: versions[0], Version: versions[len(versions)-1]}
	if len(versions) > 1 {
		c.Status, c.Token = claim.Active, versions[1]
	}
	if len(versions) > 2 {
		c.Status = claim.Released
	}
	return c
}

// left is a claim that left the queue ungranted.
func left(id string, mode claim.Units, enqueued, end uint64) claim.Claim {
	c := a(id, mode, enqueued)
	c.Status, c.Version = claim.Withdrawn, end
	return c
}

// as is a claim with another status.
func as(s claim.Status, c claim.Claim) claim.Claim {
	c.Status = s
	return c
}

// at is an operation between two moments in milliseconds.
func at(call, end int64, request history.Request, answer out) history.Operation {
	op := history.Operation{Call: call * 1e6, Return: end * 1e6, Request: request, Output: answer}
	if end == never {
		op.Return = history.Forever
	}
	return op
}

// The answers that the examples need.
var (
	waits      = out{Status: claim.Waiting}
	released   = out{Status: claim.Released}
	notFound   = out{Refused: history.NotFound}
	final      = out{Refused: history.Transition}
	unanswered = out{Unknown: true}
)

func holds(token uint64) out { return out{Status: claim.Active, Token: token} }

func heldBy(owner string, token uint64) out {
	return out{Refused: history.Collision, Holder: owner, Token: token}
}

func create(id string, mode claim.Units) history.Request { return history.Create("k", id, mode, ttl) }
func try(id string, mode claim.Units) history.Request    { return history.Try("k", id, mode, ttl) }
func lock(owner string) history.Request                  { return history.Acquire("k", owner, ttl) }
func read(id string) history.Request                     { return history.Read("k", id) }
func renew(id string) history.Request                    { return history.Renew("k", id, ttl) }
func end(id string) history.Request                      { return history.End("k", id) }

func unlock(owner string, token uint64) history.Request { return history.Release("k", owner, token) }

// Each kind of violation in the store is refused, and its correct counterpart accepted.
func TestPlantedChanges(t *testing.T) {
	expired := func(c claim.Claim) claim.Claim { return as(claim.Expired, c) }
	checkPlanted(t, []planted{
		{
			"two exclusive holders",
			stored(a("a", exclusive, 9, 10, 20), a("b", exclusive, 11, 12, 30)),
			stored(a("a", exclusive, 9, 10, 20), a("b", exclusive, 11, 21, 30)),
		},
		{
			"an exclusive holder beside a shared one",
			stored(a("a", shared, 9, 10), a("b", exclusive, 11, 12)),
			stored(a("a", shared, 9, 10), a("b", shared, 11, 12)),
		},
		{
			"a shared holder beside an exclusive one",
			stored(a("a", exclusive, 9, 10), a("b", shared, 11, 12)),
			stored(a("a", exclusive, 9, 10), a("b", shared, 11)),
		},
		{
			"an exclusive claim overtakes another",
			stored(a("a", exclusive, 9, 10, 20), a("b", exclusive, 11), a("c", exclusive, 12, 21)),
			stored(a("a", exclusive, 9, 10, 20), a("b", exclusive, 11, 21), a("c", exclusive, 12)),
		},
		{
			"a shared claim overtakes a waiting exclusive one",
			stored(a("a", shared, 9, 10), a("b", exclusive, 11), a("c", shared, 12, 13)),
			stored(a("a", shared, 9, 10), a("b", exclusive, 13), a("c", shared, 11, 12)),
		},
		{
			"a shared claim overtakes one that is granted later",
			stored(a("a", exclusive, 9, 10, 20), a("b", exclusive, 11, 31, 40), a("c", shared, 12, 21, 30)),
			stored(a("a", exclusive, 9, 10, 20), a("b", exclusive, 11, 21, 30), a("c", shared, 12, 31, 40)),
		},
		{
			"a grant has a version of its own",
			stored(a("a", exclusive, 9, 10, 20), a("b", exclusive, 11, 25, 30)),
			stored(a("a", exclusive, 9, 10, 20), a("b", exclusive, 11, 21, 30)),
		},
		{
			"a token is that of an earlier grant",
			stored(a("a", exclusive, 9, 10, 20), a("b", exclusive, 21, 10, 30)),
			stored(a("a", exclusive, 9, 10, 20), a("b", exclusive, 21, 22, 30)),
		},
		{
			"shared holders have one token",
			stored(a("a", shared, 9, 11), a("b", shared, 10, 11)),
			stored(a("a", shared, 9, 10), a("b", shared, 11, 12)),
		},
		{
			"free with a waiter",
			stored(a("a", exclusive, 9, 10, 20), a("b", exclusive, 11), a("c", exclusive, 30, 31)),
			stored(a("a", exclusive, 9, 10, 20), a("b", exclusive, 11, 21), a("c", exclusive, 30)),
		},
		{
			"a waiter is left behind",
			stored(a("a", exclusive, 9, 10, 20), a("b", exclusive, 11)),
			stored(a("a", exclusive, 9, 10, 20), a("b", exclusive, 11, 21)),
		},
		{
			"waits though free",
			stored(a("a", exclusive, 9)),
			stored(a("a", exclusive, 9, 10)),
		},
		{
			"a withdrawal is lost",
			stored(a("a", exclusive, 9, 10, 20), left("b", exclusive, 11, 15), a("c", exclusive, 12)),
			stored(a("a", exclusive, 9, 10, 20), left("b", exclusive, 11, 15), a("c", exclusive, 12, 21)),
		},
		{
			"a claim that nobody made",
			stored(a("a", exclusive, 9, 10)).only(),
			stored(a("a", exclusive, 9, 10)).only(at(1, 2, create("a", exclusive), holds(10))),
		},
		{
			"a claim in another mode",
			stored(a("a", exclusive, 9, 10)).only(at(1, 2, create("a", shared), holds(10))),
			stored(a("a", shared, 9, 10)).only(at(1, 2, create("a", shared), holds(10))),
		},
		{
			"an end that nobody asked for",
			stored(as(claim.Revoked, a("a", exclusive, 9, 10, 20))).only(at(1, 2, create("a", exclusive), holds(10))),
			stored(expired(a("a", exclusive, 9, 10, 20))).only(at(1, 2, create("a", exclusive), holds(10))),
		},
		{
			"a request without an answer explains what it cannot have done",
			stored(left("a", exclusive, 9, 20)).only(at(1, 2, create("a", exclusive), holds(10)), at(3, never, end("a"), unanswered)),
			stored(a("a", exclusive, 9, 10, 20)).only(at(1, 2, create("a", exclusive), holds(10)), at(3, never, end("a"), unanswered)),
		},
		{
			"a request without an answer is carried out twice",
			stored(a("1", exclusive, 9, 10, 20), a("2", exclusive, 29, 30)).only(
				at(1, never, lock("1"), unanswered), at(1, never, end("1"), unanswered)),
			stored(a("1", exclusive, 9, 10, 20)).only(
				at(1, never, lock("1"), unanswered), at(1, never, lock("1"), unanswered), at(1, never, end("1"), unanswered)),
		},
	})
}

// Each kind of violation in the answers to clients is refused, and its correct counterpart accepted.
func TestPlantedAnswers(t *testing.T) {
	// a holds; b waits, exclusively, and is granted when a ends; c follows.
	line := stored(a("a", exclusive, 9, 10, 20), a("b", exclusive, 11, 21, 30), a("c", exclusive, 12, 31)).and(
		at(1, 2, create("a", exclusive), holds(10)), at(3, 4, create("b", exclusive), waits), at(5, 6, create("c", exclusive), waits))
	alone := stored(a("a", exclusive, 9, 10, 20)).and(at(1, 2, create("a", exclusive), holds(10)))
	// a holds, releases, and then b.
	locked := stored(a("a", exclusive, 9, 10, 20), a("b", exclusive, 29, 30)).only(
		at(1, 2, lock("a"), holds(10)), at(3, 4, unlock("a", 10), released), at(10, 11, lock("b"), holds(30)))
	sharing := stored(a("a", shared, 9, 10), a("c", shared, 19, 20)).and(at(1, 2, create("a", shared), holds(10)), at(5, 6, create("c", shared), holds(20)))
	again := stored(a("a", exclusive, 9, 10, 20), as(claim.Active, a("a2", exclusive, 29, 30)))
	again.stored[1].Owner = "a"
	again = again.only(at(1, 2, lock("a"), holds(10)), at(3, 4, unlock("a", 10), released), at(5, 6, lock("a"), holds(30)))
	held := stored(a("a", exclusive, 9, 10)).and(at(1, 2, create("a", exclusive), holds(10)))
	checkPlanted(t, []planted{
		{"a grant is reported before it is", line.and(at(7, 8, read("b"), holds(21)), at(9, 10, read("b"), waits)), line.and(at(7, 8, read("b"), waits), at(9, 10, read("b"), holds(21)))},
		{"a grant is reported late", line.and(at(7, 8, end("a"), released), at(9, 10, read("b"), waits)), line.and(at(7, 10, end("a"), released), at(9, 10, read("b"), waits))},
		{"another's grant is reported late", line.and(at(7, 8, read("c"), holds(31)), at(9, 10, read("b"), holds(21))), line.and(at(7, 10, read("c"), holds(31)), at(9, 10, read("b"), holds(21)))},
		{"a token is reported that nobody has", line.and(at(7, 8, read("a"), holds(11))), line.and(at(7, 8, read("a"), holds(10)))},
		{"a token is not reported", line.and(at(7, 8, read("a"), out{Status: claim.Active})), line.and(at(7, 8, read("a"), holds(10)))},
		{"a try that is not to wait waits", line.and(at(3, 4, try("b", exclusive), waits)), line.and(at(3, 4, try("d", exclusive), heldBy("a", 10)), at(5, 6, read("d"), notFound))},
		{"a refused try keeps a shared one out", sharing.and(at(3, 4, try("b", exclusive), heldBy("a", 10))), sharing.and(at(3, 4, try("b", exclusive), heldBy("", 0)))},
		{"refused though free", locked.and(at(5, 6, lock("c"), heldBy("a", 10))), locked.and(at(3, 6, lock("c"), heldBy("a", 10)))},
		{"refused in another's name", locked.and(at(12, 13, lock("c"), heldBy("a", 30))), locked.and(at(12, 13, lock("c"), heldBy("b", 30)))},
		{"a release is lost", locked.and(at(5, 6, read("a"), holds(10))), locked.and(at(3, 6, read("a"), holds(10)))},
		{"a release that did nothing", locked.and(at(5, 6, unlock("a", 10), released)), locked.and(at(5, 6, unlock("a", 10), notFound))},
		{"an earlier grant's release frees its successor", again.and(at(7, 8, unlock("a", 10), released)), again.and(at(7, 8, unlock("a", 10), notFound))},
		{"a token changes when a lock is renewed", again.and(at(7, 8, lock("a"), holds(31))), again.and(at(7, 8, lock("a"), holds(30)))},
		{"a token changes when a claim is renewed", held.and(at(3, 4, renew("a"), holds(11))), held.and(at(3, 4, renew("a"), out{Status: claim.Active, Token: 10, Version: 11}))},
		{
			"a version falls",
			held.and(at(3, 4, renew("a"), out{Status: claim.Active, Token: 10, Version: 12}), at(5, 6, renew("a"), out{Status: claim.Active, Token: 10, Version: 11})),
			held.and(at(3, 4, renew("a"), out{Status: claim.Active, Token: 10, Version: 12}), at(5, 6, renew("a"), out{Status: claim.Active, Token: 10, Version: 13})),
		},
		{
			"a version that nobody made",
			line.and(at(7, 8, read("b"), out{Status: claim.Waiting, Version: 14})),
			line.and(at(7, 8, read("b"), out{Status: claim.Waiting, Version: 11})),
		},
		{"a grant is lost", alone.and(at(3, 4, read("a"), waits)), alone.and(at(3, 4, read("a"), holds(10)))},
		{"a granted claim is lost", alone.and(at(3, 4, read("a"), notFound)), alone.and(at(3, 4, read("b"), notFound))},
		{"a final status changes", alone.and(at(3, 4, end("a"), released), at(5, 6, read("a"), out{Status: claim.Expired})), alone.and(at(3, 4, end("a"), released), at(5, 6, read("a"), released))},
		{"a final claim is moved to another status", alone.and(at(3, 4, end("a"), released), at(5, 6, history.SetStatus("k", "a", claim.Aborted), out{Status: claim.Aborted})), alone.and(at(3, 4, end("a"), released), at(5, 6, history.SetStatus("k", "a", claim.Aborted), final))},
		{"a final claim gets another version", alone.and(at(3, 4, end("a"), out{Status: claim.Released, Token: 10, Version: 21})), alone.and(at(3, 4, end("a"), out{Status: claim.Released, Token: 10, Version: 20}))},
		{"a waiter is said to wait on", line.and(at(3, 4, end("a"), released), at(7, 8, history.Activate("k", "b", nil), out{Refused: history.Contention})), line.and(at(3, 4, end("a"), released), at(7, 8, history.Activate("k", "b", nil), holds(21)))},
		{"an id is given twice", alone.and(at(3, 4, create("a", shared), holds(10))), alone.and(at(3, 4, create("a", shared), out{Refused: history.IDTaken}))},
		{"a request takes effect before it is made", alone.and(at(5, 6, end("a"), released), at(3, 4, read("a"), released)).without(), alone.and(at(3, 6, end("a"), released), at(3, 4, read("a"), released)).without()},
		{"a request that was answered was not carried out", held.and(at(5, 6, end("a"), released)), alone.and(at(5, 6, end("a"), released))},
	})
}

// without leaves out the ends that were not answered.
func (s story) without() story {
	s.ops = slices.DeleteFunc(slices.Clone(s.ops), func(op history.Operation) bool {
		return op.Unknown && op.Request == history.SetStatus("k", op.ID, claim.Released)
	})
	return s
}

// No lease, no wait and no session ends before its time, and each correct counterpart is accepted.
func TestPlantedDeadlines(t *testing.T) {
	expired := as(claim.Expired, a("a", exclusive, 9, 10, 20))
	b := a("b", exclusive, 11, 21)
	// The lease of a is renewed at 500 ms, and falls due at 1500 ms.
	renewed := stored(expired, b).only(
		at(1, 2, create("a", exclusive), holds(10)), at(3, 4, create("b", exclusive), waits), at(500, 510, renew("a"), holds(10)))
	lateB := a("b", exclusive, 29, 30)
	lateB.Enqueued, lateB.Token, lateB.Version = 29, 30, 30
	taken := stored(as(claim.Expired, a("a", exclusive, 9, 10, 28)), lateB).only(at(1, 2, lock("a"), holds(10)))
	bound := as(claim.Expired, a("s", exclusive, 9, 10, 20))
	bound.Session = "s"
	beat := stored(bound, b).only(
		at(1, 2, history.Opened("s", ttl), out{}), at(3, 4, history.Lock("k", "s", exclusive), holds(10)), at(5, 6, create("b", exclusive), waits),
		at(500, 520, history.Heartbeat("s", ttl), out{}))
	started := stored(bound, b).only(
		at(500, 520, history.Opened("s", ttl), out{}), at(530, 540, history.Lock("k", "s", exclusive), holds(10)), at(550, 560, create("b", exclusive), waits))
	// a is released at 700 ms, and b has its lease from then on.
	passed := stored(a("a", exclusive, 9, 10, 20), as(claim.Expired, a("b", exclusive, 11, 21, 30)), a("c", exclusive, 40, 41)).only(
		at(1, 2, create("a", exclusive), holds(10)), at(3, 4, create("b", exclusive), waits), at(700, 710, end("a"), released))
	both := stored(as(claim.Expired, a("a", shared, 9, 10, 20)), a("b", shared, 11, 12)).only(
		at(1, 2, create("a", shared), holds(10)), at(3, 4, create("b", shared), holds(12)))
	// The store renews a between 3 ms and 510 ms.
	kept := stored(expired, b).only(
		at(1, 2, create("a", exclusive), holds(10)), at(3, 4, create("b", exclusive), waits), at(500, 510, read("a"), out{Status: claim.Active, Token: 10, Version: 15}))
	checkPlanted(t, []planted{
		{"a lease that the store renewed ends early", kept.and(at(900, 1002, read("b"), holds(21))), kept.and(at(900, 1003, read("b"), holds(21)))},
		{"a lease ends before its deadline", renewed.and(at(1400, 1499, read("b"), holds(21))), renewed.and(at(1400, 1500, read("b"), holds(21)))},
		{"a lock's lease ends early", taken.and(at(900, 1000, lock("b"), holds(30))), taken.and(at(900, 1001, lock("b"), holds(30)))},
		{"a renewal that was not answered makes a lease longer", renewed.and(at(600, never, renew("a"), unanswered), at(1400, 1499, read("b"), holds(21))), renewed.and(at(400, never, renew("a"), unanswered), at(1390, 1400, read("b"), holds(21)))},
		{"a lease is too young, granted when another ended", passed.and(at(1690, 1699, lock("c"), holds(41))), passed.and(at(1690, 1700, lock("c"), holds(41)))},
		{"a shared lease ends early", both.and(at(990, 1000, read("a"), out{Status: claim.Expired})), both.and(at(990, 1001, read("a"), out{Status: claim.Expired}))},
		{"an expired claim is renewed after somebody else was granted", renewed.and(at(1600, 1700, read("b"), holds(21)), at(1800, 1810, renew("a"), holds(10))), renewed.and(at(1600, 1700, read("b"), holds(21)), at(1800, 1810, renew("a"), final))},
		{"an expired lock is renewed after somebody else got it", taken.and(at(1600, 1700, lock("b"), holds(30)), at(1800, 1810, history.Reacquire("k", "a", 10, ttl), holds(10))), taken.and(at(1600, 1700, lock("b"), holds(30)), at(1800, 1810, history.Reacquire("k", "a", 10, ttl), heldBy("b", 30)))},
		{"a session ends while its client may trust it", beat.and(at(6, 1499, read("b"), holds(21))), beat.and(at(6, 1500, read("b"), holds(21)))},
		{"a session ends while its client may trust that it was opened", started.and(at(570, 1499, read("b"), holds(21))), started.and(at(570, 1500, read("b"), holds(21)))},
		{"a heartbeat is acknowledged after the end of its session", beat.and(at(1600, 1610, read("b"), holds(21)), at(1620, 1630, beats("s"), out{})), beat.and(at(1600, 1610, read("b"), holds(21)), at(100, 1630, beats("s"), out{}))},
	})
}

// Each kind of violation of the promises of wait TTLs is refused, and its correct counterpart accepted.
func TestPlantedWaitTTLs(t *testing.T) {
	patient := func(c claim.Claim) claim.Claim {
		c.WaitTTL = ttl
		return c
	}
	held := a("a", exclusive, 9, 10)
	made := at(100, 110, history.CreateWithWaitTTL("k", "b", exclusive, time.Hour, ttl), waits)
	long := at(1, 2, history.Create("k", "a", exclusive, time.Hour), holds(10))
	gone := out{Status: claim.Aborted}
	line := stored(held, patient(as(claim.Aborted, left("b", exclusive, 11, 20)))).only(long, made)
	// b was abandoned; this was noticed when its turn came.
	turn := stored(a("a", exclusive, 9, 10, 20), patient(as(claim.Aborted, left("b", exclusive, 11, 21))), a("c", exclusive, 12, 22)).only(
		long, made, at(120, 130, create("c", exclusive), waits), at(1050, 1200, end("a"), released))
	// b was granted, and nobody asked for it.
	granted := stored(a("a", exclusive, 9, 10, 20), patient(as(claim.Expired, a("b", exclusive, 11, 21, 30))), a("c", exclusive, 12, 31)).only(
		long, made, at(120, 130, create("c", exclusive), waits), at(200, 210, end("a"), released))
	// b waits for a and c, which share; a is released and b aborted in one transaction.
	together := stored(a("a", shared, 7, 8, 20), a("c", shared, 9, 10), patient(as(claim.Aborted, left("b", exclusive, 11, 21)))).only(
		at(1, 2, history.Create("k", "a", shared, time.Hour), holds(8)), at(3, 4, history.Create("k", "c", shared, time.Hour), holds(10)), made, at(200, 210, end("a"), released))
	// b waits behind c, which shares; a is released, which grants c, and b aborted in one transaction.
	behind := stored(a("a", exclusive, 7, 8, 20), a("c", shared, 9, 21), patient(as(claim.Aborted, left("b", exclusive, 11, 22)))).only(
		at(1, 2, history.Create("k", "a", exclusive, time.Hour), holds(8)), at(3, 4, history.Create("k", "c", shared, time.Hour), waits), made, at(200, 210, end("a"), released))
	// c, which shares as a does, was abandoned, and then b before it, and a released, in one transaction.
	apart := stored(a("a", shared, 9, 10, 22), patient(as(claim.Aborted, left("b", exclusive, 11, 21))), patient(as(claim.Aborted, left("c", shared, 12, 20)))).only(
		at(1, 2, history.Create("k", "a", shared, time.Hour), holds(10)), made, at(120, 130, history.CreateWithWaitTTL("k", "c", shared, time.Hour, ttl), waits), at(1080, 1200, end("a"), released))
	checkPlanted(t, []planted{
		{"a wait ends early, and then one before it", apart.and(at(1090, 1119, read("c"), gone)), apart.and(at(1090, 1121, read("c"), gone))},
		{"a wait ends early behind a grant", behind.and(at(220, 230, read("b"), gone)), behind.and(at(200, 210, history.SetStatus("k", "b", claim.Aborted), gone), at(220, 230, read("b"), gone))},
		{"a wait ends early beside a release", together.and(at(220, 230, read("b"), gone)), together.and(at(200, 210, history.SetStatus("k", "b", claim.Aborted), gone), at(220, 230, read("b"), gone))},
		{"a wait ends before the wait TTL", line.and(at(1090, 1099, read("b"), gone)), line.and(at(1090, 1101, read("b"), gone))},
		{"a wait ends though somebody asked", line.and(at(900, 910, history.Keep("k", "b"), out{}), at(1880, 1899, read("b"), gone)), line.and(at(900, 910, history.Keep("k", "b"), out{}), at(1880, 1901, read("b"), gone))},
		{"a wait ends early before a refused renewal", line.and(at(1090, 1099, read("b"), gone), at(1200, 1210, history.Renew("k", "b", ttl), final)), line.and(at(1200, 1210, history.Renew("k", "b", ttl), final), at(1220, 1230, read("b"), gone))},
		{"a wait without a wait TTL ends", stored(held, as(claim.Aborted, left("b", exclusive, 11, 20))).only(long, at(3, 4, create("b", exclusive), waits)), line},
		{"a wait ends early when its turn comes", turn.and(at(1070, 1099, read("b"), gone)), turn.and(at(1070, 1101, read("b"), gone))},
		{"a grant moves the end of a wait on", granted.and(at(1050, 1099, read("c"), holds(31))), granted.and(at(1050, 1101, read("c"), holds(31)))},
	})
}

// planted is a story with a violation, and its correct counterpart.
type planted struct {
	name         string
	wrong, right story
}

func checkPlanted(t *testing.T, tests []planted) {
	t.Helper()
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if err := test.right.check(); err != nil {
				t.Errorf("the correct history is refused: %v", err)
			}
			err := test.wrong.check()
			if err == nil {
				t.Error("the violation is overlooked")
			}
			t.Log(err)
			other := test.right.and(at(1, 2, history.Create("other", "x", exclusive, ttl), waits))
			if other.check() == nil {
				t.Error("the violation on another resource is overlooked")
			}
		})
	}
}
