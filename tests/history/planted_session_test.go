package history_test

import (
	"testing"

	"github.com/locket-service/locket/internal/rules/claim"
	"github.com/locket-service/locket/tests/history"
)

var none = out{None: true}

func shares(session string) history.Request  { return history.Lock("k", session, shared) }
func locks(session string) history.Request   { return history.Lock("k", session, exclusive) }
func tries(session string) history.Request   { return history.TryLock("k", session, exclusive) }
func unlocks(session string) history.Request { return history.Unlock("k", session) }
func stands(session string) history.Request  { return history.Stands("k", session) }
func beats(session string) history.Request   { return history.Heartbeat(session, ttl) }

func closes(session string) history.Request { return history.Close("k", session) }

// of is a claim of a session.
func of(c claim.Claim) claim.Claim {
	c.Session = c.ID
	return c
}

// Each kind of violation of the promises of sessions is refused, and its correct counterpart accepted.
func TestPlantedSessions(t *testing.T) {
	begin := ops{
		at(1, 2, history.Opened("a", ttl), out{}), at(1, 2, history.Opened("b", ttl), out{}),
		at(3, 4, locks("a"), holds(10)), at(5, 6, locks("b"), waits), at(500, 520, beats("a"), out{}),
	}
	// a holds, and b waits.
	two := stored(of(a("a", exclusive, 9, 10)), of(a("b", exclusive, 11))).only(begin...)
	// a gives it up, or ends, and b gets it.
	then := stored(of(a("a", exclusive, 9, 10, 20)), of(a("b", exclusive, 11, 21))).only(begin...)
	// b leaves the queue, a gives it up, and c gets it.
	third := stored(of(a("a", exclusive, 9, 10, 20)), of(left("b", exclusive, 11, 15)), of(a("c", exclusive, 29, 30))).only(append(begin,
		at(530, 540, closes("b"), out{}), at(530, 540, history.Closed("b"), out{}), at(541, 550, unlocks("a"), released), at(560, 570, tries("c"), holds(30)))...)
	// a holds, shared, and so does b; c waits.
	sharing := stored(of(a("a", shared, 9, 10)), of(a("b", shared, 11, 12)), of(a("c", exclusive, 13))).only(
		at(3, 4, shares("a"), holds(10)), at(5, 6, shares("b"), holds(12)), at(7, 8, locks("c"), waits))
	// b's lock was answered when its wait was over.
	late := func(call, end int64) story {
		return stored(of(a("a", exclusive, 9, 10, 20)), of(a("b", exclusive, 11, 21))).only(begin[0], begin[1], begin[2], at(call, end, locks("b"), holds(21)), at(530, 540, unlocks("a"), released))
	}
	// a holds, and b no longer waits, for a reason.
	aborted := func(reason string) story {
		b := of(as(claim.Aborted, left("b", exclusive, 11, 21)))
		b.Reason = reason
		return stored(of(a("a", exclusive, 9, 10)), b).only(append(begin, at(500, 520, beats("b"), out{}), at(530, 540, stands("b"), none))...)
	}

	checkPlanted(t, []planted{
		{"a session ends before its client can know", aborted("the session ended"), aborted(claim.ReasonDeadlock + "b, c")},
		{"a session holds before another one has given up", late(5, 529), late(5, 530)},
		{"two sessions hold a lock", two.and(at(600, 610, stands("b"), holds(11))), two.and(at(600, 610, stands("b"), waits), at(620, 630, stands("a"), holds(10)))},
		{"a session and a client without one hold a lock", two.and(at(600, 610, lock("c"), holds(11))), two.and(at(600, 610, lock("c"), heldBy("a", 10)))},
		{"a session that has been closed is resumed", then.and(at(530, 540, closes("a"), out{}), at(530, 540, history.Closed("a"), out{}), at(541, 550, history.Opened("a", ttl), out{})), then.and(at(530, 540, closes("a"), out{}), at(530, 540, history.Closed("a"), out{}), at(541, 550, history.Opened("b", ttl), out{}))},
		{"a heartbeat is acknowledged to a session that has been closed", then.and(at(530, 540, closes("a"), out{}), at(530, 540, history.Closed("a"), out{}), at(541, 550, beats("a"), out{})), then.and(at(530, 540, closes("a"), out{}), at(530, 540, history.Closed("a"), out{}), at(539, 550, beats("a"), out{}))},
		{"a session that has been closed gets a lock", third.and(at(600, 610, tries("b"), heldBy("c", 30))), third.and(at(535, 610, tries("b"), heldBy("c", 30)))},
		{"a hold is lost without a cause", two.and(at(530, 540, stands("a"), none)), then.and(at(530, 540, closes("a"), out{}), at(530, 540, stands("a"), none))},
		{"a hold is lost by somebody else's end", then.and(at(530, 540, closes("b"), out{})), then.and(at(530, 540, closes("a"), out{}))},
		{"a hold is lost before that is asked for", then.and(at(550, never, unlocks("a"), unanswered), at(530, 540, stands("a"), none)), then.and(at(535, never, unlocks("a"), unanswered), at(530, 540, stands("a"), none))},
		{"a token changes when a session locks again", two.and(at(530, 540, locks("a"), holds(11))), two.and(at(530, 540, locks("a"), holds(10)))},
		{"a try is refused though the lock is free", third.and(at(551, 559, tries("d"), heldBy("a", 10))), third.and(at(545, 559, tries("d"), heldBy("a", 10)))},
		{"an unlock is lost", then.and(at(530, 540, unlocks("a"), released), at(550, 560, stands("a"), holds(10))), then.and(at(530, 540, unlocks("a"), released), at(550, 560, stands("a"), none))},
		{"an unlock is answered, and nothing is given up", two.and(at(530, 540, unlocks("a"), none)), then.and(at(530, 540, unlocks("a"), released), at(541, 550, unlocks("a"), none))},
		{"an unlock of everything is lost", two.and(at(530, 540, history.UnlockAll("k", "a"), out{})), then.and(at(530, 540, history.UnlockAll("k", "a"), out{}))},
		{"the end of a session leaves the next behind", then.and(at(530, 540, closes("a"), out{}), at(550, 560, stands("b"), waits)), then.and(at(530, 540, closes("a"), out{}), at(550, 560, stands("b"), holds(21)))},
		{"a session's commands are carried out in another order", then.and(at(530, 541, unlocks("a"), released), at(531, 540, stands("a"), holds(10))), then.and(at(530, 540, stands("a"), holds(10)), at(531, 541, unlocks("a"), released))},
		{"a session holds alone beside one that shares", stored(of(a("a", shared, 9, 10)), of(a("b", exclusive, 11, 12))).only(at(3, 4, shares("a"), holds(10)), at(5, 6, locks("b"), holds(12))), sharing},
		{"a session shares beside one that holds alone", stored(of(a("a", exclusive, 9, 10)), of(a("b", shared, 11, 12))).only(at(3, 4, locks("a"), holds(10)), at(5, 6, shares("b"), holds(12))), stored(of(a("a", exclusive, 9, 10)), of(a("b", shared, 11))).only(at(3, 4, locks("a"), holds(10)), at(5, 6, shares("b"), waits))},
		{"a session that asks for a lock alone shares it", stored(of(a("a", shared, 9, 10))).only(at(3, 4, locks("a"), holds(10))), stored(of(a("a", shared, 9, 10))).only(at(3, 4, shares("a"), holds(10)))},
		{"a session that shares holds what another waits for", sharing.and(at(9, 10, stands("c"), holds(14))), sharing.and(at(9, 10, stands("c"), waits))},
		{"a session shares past one that waits", sharing.and(at(9, 10, history.TryLock("k", "d", shared), holds(15))), sharing.and(at(9, 10, history.TryLock("k", "d", shared), heldBy("", 0)))},
		{"a claim of a session is somebody else's", stored(a("a", exclusive, 9, 10)).only(at(3, 4, locks("a"), holds(10))), stored(of(a("a", exclusive, 9, 10))).only(at(3, 4, locks("a"), holds(10)))},
	})
}

// TestVersionsOfTwoResources: a session may have claims of two resources that were granted with the same version, one of them after a
// wait.
func TestVersionsOfTwoResources(t *testing.T) {
	other := of(a("b", exclusive, 20, 21))
	other.ID, other.Resource = "other", "l"
	s := stored(of(a("a", exclusive, 9, 10, 20)), of(a("b", exclusive, 11, 21)), other).only(
		at(1, 2, history.Opened("a", ttl), out{}), at(1, 2, history.Opened("b", ttl), out{}), at(3, 4, locks("a"), holds(10)), at(5, 6, locks("b"), waits),
		at(530, 540, unlocks("a"), released), at(530, 545, history.TryLock("l", "b", exclusive), holds(21)), at(546, 550, stands("b"), holds(21)))
	if err := s.check(); err != nil {
		t.Error(err)
	}
}
