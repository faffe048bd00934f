package history_test

import (
	"slices"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/locket-service/locket/claim"
	"github.com/locket-service/locket/tests/history"
)

type (
	ops = []porcupine.Operation
	out = history.Output
)

const (
	exclusive = claim.Exclusive
	shared    = claim.Shared
	ttl       = time.Second
	checkTime = 20 * time.Second
	never     = -1 // when a request is answered that is not
)

// at is an operation between two moments in milliseconds.
func at(call, end int64, request history.Request, answer out) porcupine.Operation {
	if end == never {
		return history.Operation(call*1e6, history.Forever, request, answer)
	}
	return history.Operation(call*1e6, end*1e6, request, answer)
}

// The answers that the examples need.
var (
	waits    = out{Status: claim.Waiting}
	released = out{Status: claim.Released}
	notFound = out{Refused: history.NotFound}
	final    = out{Refused: history.Transition}
)

func holds(token uint64) out { return out{Status: claim.Active, Token: token} }

func heldBy(owner string, token uint64) out {
	return out{Refused: history.Collision, Holder: owner, Token: token}
}

func create(id string, mode claim.Mode) history.Request { return history.Create("k", id, mode, ttl) }

func try(id string, mode claim.Mode) history.Request { return history.Try("k", id, mode, ttl) }

func lock(owner string) history.Request { return history.Acquire("k", owner, owner, ttl) }

func unlock(owner string, token uint64) history.Request {
	return history.Release("k", owner, owner, token)
}
func read(id string) history.Request    { return history.Read("k", id) }
func renew(id string) history.Request   { return history.Renew("k", id, ttl) }
func end(id string) history.Request     { return history.End("k", id) }
func expires(id string) history.Request { return history.Expire("k", id) }

// Each kind of violation is refused, and its correct counterpart accepted.
func TestPlanted(t *testing.T) {
	// a holds; b waits, exclusively; c waits.
	line := func(third claim.Mode, then ...porcupine.Operation) ops {
		return append(ops{
			at(1, 2, create("a", exclusive), holds(10)),
			at(3, 4, create("b", exclusive), waits),
			at(5, 6, create("c", third), waits),
		}, then...)
	}
	alone := func(then ...porcupine.Operation) ops {
		return append(ops{at(1, 2, create("a", exclusive), holds(10))}, then...)
	}
	locked := func(then ...porcupine.Operation) ops {
		return append(ops{at(1, 2, lock("a"), holds(10))}, then...)
	}
	// The lease of a is renewed at 500 ms, and falls due at 1500 ms.
	due := func(then ...porcupine.Operation) ops {
		return alone(append(ops{
			at(3, 4, create("b", exclusive), waits),
			at(500, 510, renew("a"), holds(10)),
		}, then...)...)
	}
	checkPlanted(t, []planted{
		{
			"two exclusive holders",
			alone(at(3, 4, create("b", exclusive), holds(11)), at(5, 6, end("a"), released)),
			alone(at(3, 6, create("b", exclusive), holds(11)), at(5, 6, end("a"), released)),
		},
		{
			"two locks",
			locked(at(3, 4, lock("b"), holds(11)), at(5, 6, unlock("a", 10), released)),
			locked(at(3, 4, lock("b"), heldBy("a", 10)), at(5, 6, unlock("a", 10), released), at(7, 8, lock("b"), holds(11))),
		},
		{
			"an exclusive holder beside a shared one",
			ops{at(1, 2, create("a", shared), holds(10)), at(3, 4, create("b", exclusive), holds(11))},
			ops{at(1, 2, create("a", shared), holds(10)), at(3, 4, create("b", shared), holds(11))},
		},
		{
			"a lock beside a shared holder",
			ops{at(1, 2, create("a", shared), holds(10)), at(3, 4, lock("b"), holds(11))},
			ops{at(1, 2, create("a", shared), holds(10)), at(3, 4, lock("b"), heldBy("", 0))},
		},
		{
			"a shared holder beside an exclusive one",
			alone(at(3, 4, create("b", shared), holds(11))),
			alone(at(3, 4, create("b", shared), waits)),
		},
		{
			"an exclusive claim overtakes another",
			line(exclusive, at(7, 8, end("a"), released), at(9, 10, read("c"), holds(12))),
			line(exclusive, at(7, 8, end("a"), released), at(9, 10, read("b"), holds(12)), at(9, 10, read("c"), waits)),
		},
		{
			"a shared claim overtakes a waiting exclusive one",
			ops{
				at(1, 2, create("a", shared), holds(10)),
				at(3, 4, create("b", exclusive), waits),
				at(5, 6, create("c", shared), holds(12)),
			},
			ops{
				at(1, 2, create("a", shared), holds(10)),
				at(3, 6, create("b", exclusive), waits),
				at(4, 7, create("c", shared), holds(12)),
			},
		},
		{
			"a try that is not to wait waits",
			alone(at(3, 4, try("b", exclusive), waits)),
			alone(at(3, 4, try("b", exclusive), heldBy("a", 10)), at(5, 6, read("b"), notFound)),
		},
		{
			"a refused try keeps a shared one out",
			ops{
				at(1, 2, create("a", shared), holds(10)),
				at(3, 4, try("b", exclusive), heldBy("", 0)),
				at(5, 6, try("c", shared), heldBy("", 0)),
			},
			ops{
				at(1, 2, create("a", shared), holds(10)),
				at(3, 4, try("b", exclusive), heldBy("", 0)),
				at(5, 6, try("c", shared), holds(12)),
			},
		},
		{
			"a try overtakes a claim that waits",
			ops{
				at(1, 2, create("a", shared), holds(10)),
				at(3, 4, create("b", exclusive), waits),
				at(5, 6, try("c", shared), holds(12)),
			},
			ops{
				at(1, 2, create("a", shared), holds(10)),
				at(3, 4, create("b", exclusive), waits),
				at(5, 6, try("c", shared), heldBy("", 0)),
			},
		},
		{
			"a shared claim overtakes one that is granted later",
			line(shared, at(7, 8, end("a"), released), at(9, 10, read("c"), holds(12))),
			line(shared, at(7, 8, end("a"), released), at(9, 10, end("b"), released), at(11, 12, read("c"), holds(12))),
		},
		{
			"a token falls",
			locked(at(3, 4, unlock("a", 10), released), at(5, 6, lock("b"), holds(9))),
			locked(at(3, 4, unlock("a", 10), released), at(5, 6, lock("b"), holds(11))),
		},
		{
			"a token falls along the line",
			line(exclusive, at(7, 8, end("a"), released), at(9, 10, end("b"), out{Status: claim.Released, Token: 13}), at(11, 12, read("c"), holds(12))),
			line(exclusive, at(7, 8, end("a"), released), at(9, 10, end("b"), out{Status: claim.Released, Token: 13}), at(11, 12, read("c"), holds(14))),
		},
		{
			"a token is that of an earlier grant",
			locked(at(3, 4, unlock("a", 10), released), at(5, 6, lock("b"), holds(10))),
			locked(at(3, 4, unlock("a", 10), released), at(5, 6, lock("b"), holds(12))),
		},
		{
			"shared holders have one token",
			ops{at(1, 2, create("a", shared), holds(10)), at(3, 4, create("b", shared), holds(10))},
			ops{at(1, 2, create("a", shared), holds(10)), at(3, 4, create("b", shared), holds(11))},
		},
		{
			"a token changes when a claim is renewed",
			alone(at(3, 4, renew("a"), holds(11))),
			alone(at(3, 4, renew("a"), out{Status: claim.Active, Token: 10, Version: 11})),
		},
		{
			"a token changes when a lock is renewed",
			locked(at(3, 4, lock("a"), holds(11))),
			locked(at(3, 4, lock("a"), holds(10))),
		},
		{
			"a version falls",
			alone(at(3, 4, renew("a"), out{Status: claim.Active, Token: 10, Version: 12}), at(5, 6, renew("a"), out{Status: claim.Active, Token: 10, Version: 11})),
			alone(at(3, 4, renew("a"), out{Status: claim.Active, Token: 10, Version: 12}), at(5, 6, renew("a"), out{Status: claim.Active, Token: 10, Version: 13})),
		},
		{
			"a lease ends before its deadline",
			due(at(500, 2000, expires("a"), out{}), at(1400, 1499, read("b"), holds(20))),
			due(at(500, 2000, expires("a"), out{}), at(1400, 1500, read("b"), holds(20))),
		},
		{
			"a lease ends early for a lock",
			locked(at(1, 2000, expires("a"), out{}), at(900, 1000, lock("b"), holds(20))),
			locked(at(1, 2000, expires("a"), out{}), at(900, 1001, lock("b"), holds(20))),
		},
		{
			"a shared lease ends with that of another",
			ops{
				at(1, 2, create("a", shared), holds(10)), at(3, 4, create("b", shared), holds(11)),
				at(900, 910, renew("b"), holds(11)), at(1, 1600, expires("a"), out{}),
				at(1590, 1600, renew("b"), final),
			},
			ops{
				at(1, 2, create("a", shared), holds(10)), at(3, 4, create("b", shared), holds(11)),
				at(900, 910, renew("b"), holds(11)), at(1, 1600, expires("a"), out{}),
				at(1590, 1600, renew("b"), holds(11)),
			},
		},
		{
			"a lease is too young, granted when another ended",
			alone(
				at(3, 4, create("b", exclusive), waits), at(700, 710, end("a"), released),
				at(5, never, expires("b"), out{}), at(1690, 1699, lock("c"), holds(30)),
			),
			alone(
				at(3, 4, create("b", exclusive), waits), at(700, 710, end("a"), released),
				at(5, never, expires("b"), out{}), at(1690, 1700, lock("c"), holds(30)),
			),
		},
		{
			"an expired claim is renewed after somebody else was granted",
			due(at(1500, 1700, expires("a"), out{}), at(1600, 1700, read("b"), holds(20)), at(1800, 1810, renew("a"), holds(10))),
			due(at(1500, 1700, expires("a"), out{}), at(1600, 1700, read("b"), holds(20)), at(1800, 1810, renew("a"), final)),
		},
		{
			"an expired lock is renewed after somebody else got it",
			locked(at(1, 1700, expires("a"), out{}), at(1600, 1700, lock("b"), holds(20)), at(1800, 1810, history.Reacquire("k", "a", "a", 10, ttl), holds(10))),
			locked(at(1, 1700, expires("a"), out{}), at(1600, 1700, lock("b"), holds(20)), at(1800, 1810, history.Reacquire("k", "a", "a", 10, ttl), heldBy("b", 20))),
		},
		{
			"a lease is taken over though nothing expired",
			due(at(1600, 1700, read("b"), holds(20))),
			due(at(1600, 1700, read("b"), waits)),
		},
		{
			"a grant is lost",
			alone(at(3, 4, read("a"), waits)),
			alone(at(3, 4, read("a"), holds(10))),
		},
		{
			"a granted claim is lost",
			alone(at(3, 4, read("a"), notFound)),
			alone(at(3, 4, read("b"), notFound)),
		},
		{
			"a waiting claim is lost",
			line(exclusive, at(7, 8, end("a"), released), at(9, 10, end("c"), out{Status: claim.Withdrawn}), at(11, 12, lock("d"), holds(13))),
			line(exclusive, at(7, 8, end("a"), released), at(9, 10, end("c"), out{Status: claim.Withdrawn}), at(11, 12, lock("d"), heldBy("b", 12))),
		},
		{
			"a release is lost",
			locked(at(3, 4, unlock("a", 10), released), at(5, 6, lock("b"), heldBy("a", 10))),
			locked(at(3, 6, unlock("a", 10), released), at(5, 6, lock("b"), heldBy("a", 10))),
		},
		{
			"a withdrawal is lost",
			line(exclusive, at(7, 8, end("b"), out{Status: claim.Withdrawn}), at(9, 10, end("a"), released), at(11, 12, read("c"), waits)),
			line(exclusive, at(7, 8, end("b"), out{Status: claim.Withdrawn}), at(9, 10, end("a"), released), at(11, 12, read("c"), holds(12))),
		},
		{
			"a final status changes",
			alone(at(3, 4, end("a"), released), at(5, 6, read("a"), out{Status: claim.Expired})),
			alone(at(3, 4, end("a"), released), at(5, 6, read("a"), released)),
		},
		{
			"a final claim gets another version",
			alone(at(3, 4, end("a"), out{Status: claim.Released, Token: 10, Version: 12}), at(5, 6, end("a"), out{Status: claim.Released, Token: 10, Version: 13})),
			alone(at(3, 4, end("a"), out{Status: claim.Released, Token: 10, Version: 12}), at(5, 6, end("a"), out{Status: claim.Released, Token: 10, Version: 12})),
		},
		{
			"a final claim is moved to another status",
			alone(at(3, 4, end("a"), released), at(5, 6, history.SetStatus("k", "a", claim.Aborted), out{Status: claim.Aborted})),
			alone(at(3, 4, end("a"), released), at(5, 6, history.SetStatus("k", "a", claim.Aborted), final)),
		},
		{
			"free with a waiter",
			alone(at(3, 4, create("b", exclusive), waits), at(5, 6, end("a"), released), at(7, 8, lock("c"), holds(12))),
			alone(at(3, 4, create("b", exclusive), waits), at(5, 6, end("a"), released), at(7, 8, lock("c"), heldBy("b", 12))),
		},
		{
			"a waiter is left behind",
			alone(at(3, 4, create("b", exclusive), waits), at(5, 6, end("a"), released), at(7, 8, history.Activate("k", "b"), out{Refused: history.Contention})),
			alone(at(3, 4, create("b", exclusive), waits), at(5, 6, end("a"), released), at(7, 8, history.Activate("k", "b"), holds(12))),
		},
		{
			"refused though free",
			locked(at(3, 4, unlock("a", 10), released), at(5, 6, lock("b"), heldBy("c", 0))),
			locked(at(3, 4, unlock("a", 10), released), at(5, 6, lock("b"), holds(11))),
		},
		{
			"waits though free",
			ops{at(1, 2, create("a", exclusive), waits)},
			ops{at(1, 2, create("a", exclusive), holds(10))},
		},
		{
			"refused in another's name",
			locked(at(3, 4, lock("b"), heldBy("c", 10))),
			locked(at(3, 4, lock("b"), heldBy("a", 10))),
		},
		{
			"an earlier grant's release frees its successor",
			locked(at(3, 4, unlock("a", 10), released), at(5, 6, history.Acquire("k", "a2", "a", ttl), holds(12)), at(7, 8, unlock("a", 10), released)),
			locked(at(3, 4, unlock("a", 10), released), at(5, 6, history.Acquire("k", "a2", "a", ttl), holds(12)), at(7, 8, unlock("a", 10), notFound)),
		},
		{
			"an id is given twice",
			alone(at(3, 4, create("a", shared), holds(10))),
			alone(at(3, 4, create("a", shared), out{Refused: history.IDTaken})),
		},
		{
			"a request without an answer explains what it cannot have done",
			alone(at(3, never, end("a"), out{Unknown: true}), at(5, 6, end("b"), notFound), at(7, 8, read("a"), out{Status: claim.Withdrawn})),
			alone(at(3, never, end("a"), out{Unknown: true}), at(5, 6, end("b"), notFound), at(7, 8, read("a"), released)),
		},
		{
			"a request takes effect before it is made",
			alone(at(5, never, end("a"), out{Unknown: true}), at(3, 4, read("a"), released)),
			alone(at(5, never, end("a"), out{Unknown: true}), at(6, 7, read("a"), holds(10))),
		},
	})
}

// planted is a history with a violation, and its correct counterpart.
type planted struct {
	name         string
	wrong, right ops
}

func checkPlanted(t *testing.T, tests []planted) {
	t.Helper()
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if err := history.Check(test.right, checkTime); err != nil {
				t.Errorf("the correct history is refused: %v", err)
			}
			if history.Check(test.wrong, checkTime) == nil {
				t.Error("the violation is overlooked")
			}
			other := append(slices.Clone(test.right), history.Operation(1, 2, history.Create("other", "x", exclusive, ttl), waits))
			if history.Check(other, checkTime) == nil {
				t.Error("the violation on another resource is overlooked")
			}
		})
	}
}
