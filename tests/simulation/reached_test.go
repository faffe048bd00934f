package simulation_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
)

// The conditions that the simulations must reach together, so that they try what is dangerous.
//
// Two faults show in no simulation, whatever it reaches. If a server takes batches whose outcome it did not learn for known, watches do
// not miss them, because they read the batches of their own server too; and waiting calls and sessions ask again, so they only
// hear late (TestFeedOfUnknownOutcomes). If a server counts lease time on after another one has become the decider, it only asks
// for the end of leases too early, and the decider refuses (TestTimeOfADeposedDecider).
const (
	raisedDuringBatch   = "an epoch was raised while a batch was appended"
	fromTable           = "a batch was answered from the table of batches"
	readBehindDeposed   = "a read at a deposed decider that did not know it yet"
	batchAtDeposed      = "a batch at a deposed decider that did not know it yet"
	installed           = "a server installed another server's snapshot"
	compacted           = "a server found the next records gone from the log"
	unknownCommitted    = "an unknown outcome that was committed"
	unknownNotCommitted = "an unknown outcome that was not committed"
	unknownToServer     = "a batch whose outcome a server that does not decide did not learn"
	sessionMoved        = "a session that moved to another server"
	openedInVain        = "a session that was opened elsewhere, and that was given up"
	sessionLapsed       = "a session that ended by silence"
	lostWhileCut        = "a holder that lost its lease while its server was cut off"
	lateCommit          = "a record that was committed after its decider had given up"
	crashedAtWrite      = "a crash at a write to the log's disk"
	crashedBefore       = "a crash before the commit of a record"
	crashedAfter        = "a crash after the commit of a record"
	diskFull            = "a full disk"
	watchContinued      = "a watch that continued from its cursor at another server"
	deciderResigned     = "a decider that resigned"
	handedOn            = "a claim that waited and was granted"
	handedOnREST        = "a claim that waited over REST and was granted"
	repeatedREST        = "a claim over REST whose repeated request found the claim of the first one"
	keychainLost        = "a keychain that lost its claim and reported that"
	keychainMoved       = "a keychain that kept its claim when it went to another server"
	keychainDied        = "a keychain that died while it held a claim"
	noQuorum            = "a call that was refused as there was no quorum"
	clockStepped        = "a clock that stepped by more than a lease"
)

var conditions = []string{
	raisedDuringBatch, fromTable, unknownToServer, readBehindDeposed, batchAtDeposed, installed, compacted, unknownCommitted, unknownNotCommitted, sessionMoved, openedInVain, sessionLapsed, lostWhileCut,
	lateCommit, crashedAtWrite, crashedBefore, crashedAfter, diskFull, watchContinued, deciderResigned, handedOn, noQuorum, clockStepped,
	handedOnREST, repeatedREST, keychainLost, keychainMoved, keychainDied,
}

// reached counts how often conditions were reached, and anything else that happened.
type reached struct {
	mu    sync.Mutex
	times map[string]int
}

func (r *reached) note(what string) { r.add(what, 1) }

func (r *reached) add(what string, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.times[what] += n
}

// never returns the conditions that were not reached.
func (r *reached) never() []string {
	return slices.DeleteFunc(slices.Clone(conditions), func(c string) bool { return r.times[c] > 0 })
}

// String lists all counts.
func (r *reached) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var text strings.Builder
	for _, what := range slices.Sorted(maps.Keys(r.times)) {
		fmt.Fprintf(&text, "%8d  %s\n", r.times[what], what)
	}
	return text.String()
}
