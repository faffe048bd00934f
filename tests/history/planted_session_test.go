package history_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/locket-service/locket/claim"
	"github.com/locket-service/locket/tests/history"
)

var (
	none       = out{None: true}
	noSession  = out{Refused: history.SessionEnded}
	unanswered = out{Unknown: true}
	requestIDs int
)

func newID() string {
	requestIDs++
	return fmt.Sprint("request ", requestIDs)
}

func locks(session string) history.Request {
	return history.Lock("k", newID(), session, exclusive)
}
func shares(session string) history.Request { return history.Lock("k", newID(), session, shared) }
func tries(session string) history.Request {
	return history.TryLock("k", newID(), session, exclusive)
}
func unlocks(session string) history.Request { return history.Unlock("k", session) }
func stands(session string) history.Request  { return history.Stands("k", session) }
func beats(session string) history.Request   { return history.Heartbeat(session, ttl) }

// Each kind of violation of what sessions promise is refused, and its correct counterpart accepted.
func TestPlantedSessions(t *testing.T) {
	// a holds, and b waits. The client of a may trust it until 1500 ms.
	two := func(then ...porcupine.Operation) ops {
		return append(ops{
			at(1, 2, history.Opened("a"), out{}), at(1, 2, history.Opened("b"), out{}),
			at(3, 4, locks("a"), holds(10)), at(5, 6, locks("b"), waits),
			at(500, 520, beats("a"), out{}),
		}, then...)
	}
	checkPlanted(t, []planted{
		{
			"two sessions hold a lock",
			two(at(600, 610, stands("b"), holds(11)), at(620, 630, stands("a"), holds(10))),
			two(at(600, 610, stands("b"), waits), at(620, 630, stands("a"), holds(10))),
		},
		{
			"a session and a client without one hold a lock",
			two(at(600, 610, lock("c"), holds(11))),
			two(at(600, 610, lock("c"), heldBy("a", 10))),
		},
		{
			"a lock is granted while its client may trust its session",
			two(at(521, 2000, history.Lapse("a"), out{}), at(6, 1499, stands("b"), holds(11))),
			two(at(521, 2000, history.Lapse("a"), out{}), at(6, 1501, stands("b"), holds(11))),
		},
		{
			"a session lapses while its client may trust it",
			two(at(521, 1499, history.Lapse("a"), out{})),
			two(at(521, 1501, history.Lapse("a"), out{})),
		},
		{
			"a heartbeat is acknowledged to a session that has been closed",
			two(at(530, 540, history.Close("a"), out{}), at(541, 550, beats("a"), out{})),
			two(at(530, 540, history.Close("a"), out{}), at(539, 550, beats("a"), out{})),
		},
		{
			"a session that has been closed is resumed",
			two(at(530, 540, history.Close("a"), out{}), at(541, 550, history.Opened("a"), out{})),
			two(at(530, 540, history.Close("b"), out{}), at(541, 550, history.Opened("a"), out{})),
		},
		{
			"a session that has been closed gets a lock",
			two(at(530, 540, history.Close("b"), out{}), at(541, 550, unlocks("a"), released), at(560, 570, locks("b"), holds(12))),
			two(at(530, 540, history.Close("b"), out{}), at(541, 550, unlocks("a"), released), at(560, 570, locks("b"), noSession)),
		},
		{
			"a token falls",
			two(at(530, 540, unlocks("a"), released), at(530, 560, stands("b"), holds(9))),
			two(at(530, 540, unlocks("a"), released), at(530, 560, stands("b"), holds(11))),
		},
		{
			"a token changes when a session is resumed",
			two(at(530, 540, history.Opened("a"), out{}), at(530, 540, stands("a"), holds(11))),
			two(at(530, 540, history.Opened("a"), out{}), at(530, 540, stands("a"), holds(10))),
		},
		{
			"a token changes when a session locks again",
			two(at(530, 540, locks("a"), holds(11))),
			two(at(530, 540, locks("a"), holds(10))),
		},
		{
			"a hold is lost without a cause",
			two(at(530, 540, stands("a"), none)),
			two(at(530, 540, history.Close("a"), out{}), at(530, 540, stands("a"), none)),
		},
		{
			"a hold is lost by somebody else's end",
			two(at(530, 540, history.Close("b"), out{}), at(530, 540, stands("a"), none)),
			two(at(530, 540, history.Close("b"), out{}), at(530, 540, stands("b"), none)),
		},
		{
			"a hold is lost to a request of which nobody knows whether it was carried out, before it is made",
			two(at(550, never, unlocks("a"), unanswered), at(530, 540, stands("a"), none)),
			two(at(535, never, unlocks("a"), unanswered), at(530, 540, stands("a"), none)),
		},
		{
			"a place in the queue is lost by asking again",
			two(at(7, 8, locks("c"), waits), at(9, 10, locks("b"), waits), at(530, 540, unlocks("a"), released), at(550, 560, stands("c"), holds(12))),
			two(at(7, 8, locks("c"), waits), at(9, 10, locks("b"), waits), at(530, 540, unlocks("a"), released), at(550, 560, stands("b"), holds(12)), at(550, 560, stands("c"), waits)),
		},
		{
			"a place in the queue is lost by trying",
			two(at(7, 8, locks("c"), waits), at(9, 10, tries("b"), waits), at(530, 540, unlocks("a"), released), at(550, 560, stands("c"), holds(12))),
			two(at(7, 8, locks("c"), waits), at(9, 10, tries("b"), waits), at(530, 540, unlocks("a"), released), at(550, 560, stands("b"), holds(12))),
		},
		{
			"a try that is refused waits",
			two(at(7, 8, tries("c"), heldBy("a", 10)), at(9, 10, stands("c"), waits)),
			two(at(7, 8, tries("c"), heldBy("a", 10)), at(9, 10, stands("c"), none)),
		},
		{
			"a try is refused though the lock is free",
			two(at(530, 540, history.Close("b"), out{}), at(541, 550, unlocks("a"), released), at(560, 570, tries("c"), heldBy("a", 10))),
			two(at(530, 540, history.Close("b"), out{}), at(541, 550, unlocks("a"), released), at(560, 570, tries("c"), holds(13))),
		},
		{
			"an unlock is lost",
			two(at(530, 540, unlocks("a"), released), at(550, 560, stands("a"), holds(10))),
			two(at(530, 540, unlocks("a"), released), at(550, 560, stands("a"), none)),
		},
		{
			"an unlock of everything is lost",
			two(at(530, 540, history.UnlockAll("a"), out{}), at(550, 560, stands("b"), waits)),
			two(at(530, 540, history.UnlockAll("a"), out{}), at(550, 560, stands("b"), holds(12)), at(570, 580, locks("a"), waits)),
		},
		{
			"the end of a session leaves the next behind",
			two(at(530, 540, history.Close("a"), out{}), at(550, 560, stands("b"), waits)),
			two(at(530, 540, history.Close("a"), out{}), at(550, 560, stands("b"), holds(12))),
		},
		{
			"a session that waits overtakes one that came before",
			ops{at(1, 2, shares("a"), holds(10)), at(3, 4, locks("b"), waits), at(5, 6, shares("c"), holds(12))},
			ops{at(1, 2, shares("a"), holds(10)), at(3, 4, shares("b"), holds(11)), at(5, 6, locks("c"), waits)},
		},
		{
			"news of what never was",
			two(at(3, 540, stands("b"), holds(9)), at(3, 540, stands("a"), holds(10))),
			two(at(5, 540, stands("b"), waits), at(3, 540, stands("a"), holds(10))),
		},
	})
}

// Each kind of violation of what wait TTLs promise is refused, and its correct counterpart accepted.
func TestPlantedWaitTTLs(t *testing.T) {
	patient := func(id string) history.Request {
		return history.CreateWithWaitTTL("k", id, exclusive, time.Hour, ttl)
	}
	line := func(then ...porcupine.Operation) ops {
		return append(ops{
			at(1, 2, create("a", exclusive), holds(10)), at(1, 900, history.Renew("k", "a", time.Hour), holds(10)),
			at(100, 110, patient("b"), waits), at(120, 130, create("c", exclusive), waits),
		}, then...)
	}
	gone := out{Status: claim.Aborted}
	checkPlanted(t, []planted{
		{
			"a wait ends before the wait TTL",
			line(at(100, 1500, expires("b"), out{}), at(1090, 1099, read("b"), gone)),
			line(at(100, 1500, expires("b"), out{}), at(1090, 1101, read("b"), gone)),
		},
		{
			"a wait ends though somebody asked",
			line(at(900, 910, history.Keep("k", "b"), out{}), at(100, 2500, expires("b"), out{}), at(1880, 1899, read("b"), gone)),
			line(at(900, 910, history.Keep("k", "b"), out{}), at(100, 2500, expires("b"), out{}), at(1880, 1901, read("b"), gone)),
		},
		{
			"a wait without a wait TTL ends",
			line(at(100, 5000, expires("c"), out{}), at(4000, 5000, read("c"), gone)),
			line(at(100, 5000, expires("b"), out{}), at(4000, 5000, read("c"), waits)),
		},
		{
			"a grant moves the end of a wait on",
			line(at(200, 210, end("a"), released), at(200, 3000, expires("b"), out{Status: claim.Expired}), at(1050, 1099, read("c"), holds(20))),
			line(at(200, 210, end("a"), released), at(200, 3000, expires("b"), out{Status: claim.Expired}), at(1050, 1101, read("c"), holds(20))),
		},
	})
}
