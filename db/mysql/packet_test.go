package mysql

import (
	"slices"
	"strings"
	"testing"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/db/dbtest"
	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/internal/rules/claim"
)

// The largest transactions fit into the smallest packets that a store accepts. TestSoakSmallPackets has more of them.
func TestSmallPackets(t *testing.T) { smallPackets(t, "LargestClaims") }

func smallPackets(t *testing.T, cases ...string) {
	server := fixtures.NewMariaDB(t, fixtures.WithServerArgs("--max-allowed-packet=1M"))
	runCases(t, cases, func(t *testing.T) func(testing.TB) dbtest.Engine {
		dsn := server.CreateDatabase(t)
		return func(t testing.TB) dbtest.Engine { return dbtest.Engine{Store: open(t, dsn)} }
	})
}

// runCases runs some cases of the suite, each with an engine of its own.
func runCases(t *testing.T, names []string, engine func(*testing.T) func(testing.TB) dbtest.Engine) {
	for _, name := range names {
		all := dbtest.Cases()
		i := slices.IndexFunc(all, func(c dbtest.Case) bool { return c.Name == name })
		if i < 0 {
			t.Fatalf("the suite has no case %s", name)
		}
		t.Run(name, func(t *testing.T) { dbtest.RunCase(t, all[i], engine(t)) })
	}
}

// A database that takes smaller ones is refused.
func TestTooSmallPackets(t *testing.T) {
	t.Parallel()
	server := fixtures.NewMariaDB(t, fixtures.WithServerArgs("--max-allowed-packet=512K"))
	_, err := awaitOpen(patient(t, server.DSN("locket")))
	if err == nil || !strings.Contains(err.Error(), "max_allowed_packet of the database is 524288; set it to 1048576 or more") {
		t.Errorf("got %v", err)
	}
}

// The longest statement with one row fits beside all that a packet may have already.
func TestLargestStatement(t *testing.T) {
	var statements script
	w := newWriter(&statements, nil)
	c := largestClaim()
	w.row(insertClaims, onKnownValue, values(&c)...)
	w.collect()
	if n := statements[0].bytes(); n+packetBytes > minPacket {
		t.Errorf("it has %d bytes", n)
	}
	for record := range db.Records(1, largestTransitions(500)) {
		s := script{}
		s.add(saveFeedSQL, "", 1, int64(1), record)
		if n := s[0].bytes(); n+packetBytes > minPacket {
			t.Errorf("a row of the feed has %d bytes", n)
		}
	}
}

// largestClaim is a claim of the maximum size.
func largestClaim() claim.Claim {
	of := func(n int) string { return strings.Repeat("'", n) }
	return claim.Claim{
		ID: of(128), Resource: of(1024), Owner: of(1024), Session: of(128), Reason: of(1024), Identity: of(1024), EndedBy: of(1024),
		Status: claim.Active, UserData: []byte(of(64 << 10)), Value: of(64 << 10), Enqueued: 1 << 63,
	}
}

// largestTransitions are grants of claims whose records are the longest.
func largestTransitions(n int) (transitions []claim.Transition) {
	for range n {
		after := largestClaim()
		after.Value = after.Value[:db.MaxFeedValue]
		before := after
		before.Status = claim.Waiting
		transitions = append(transitions, claim.Transition{Before: &before, After: &after})
	}
	return transitions
}
