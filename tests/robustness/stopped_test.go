package robustness_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/tests/harness"
)

// TestLoneServerStopped: the only server is stopped for longer than all TTLs, and continued. No client could renew meanwhile, so no session and
// no lease has ended.
func TestLoneServerStopped(t *testing.T) {
	t.Parallel()
	harness.OnEachEngine(t, func(t *testing.T, database string) {
		const ttl = 10 * time.Second // clients on a busy machine must renew within half of it
		server := fixtures.StartLocket(t, database)
		client := server.Client(t)
		s, next := openAt(t, server, "s", harness.SessionTTL(ttl.Seconds())), openAt(t, server, "next", harness.SessionTTL(60))
		held := s.Lock("k", harness.Held)
		next.Lock("k", harness.Waiting)
		broken := openAt(t, server, "broken", harness.SessionTTL(ttl.Seconds()))
		kept := broken.Lock("b", harness.Held)
		for round := range 2 {
			key := fmt.Sprint("stopped-", round)
			lockToken, claimToken := hold(t, client, key, ttl)
			harness.Must(t, server.Pause())
			broken.BreakOff()
			time.Sleep(ttl + time.Second) // real time: no client can renew meanwhile
			harness.Must(t, server.Resume())
			stillHeld(t, client, key, lockToken, claimToken, ttl)
			if again := s.Lock("k", harness.Held); again.GetToken() != held.GetToken() {
				t.Errorf("%v, then %v", held, again)
			}
			broken = harness.DialSession(t, client)
			broken.Open("broken", harness.SessionTTL(ttl.Seconds()), harness.Resume)
			broken.KeepAlive()
			if again := broken.Lock("b", harness.Held); again.GetToken() != kept.GetToken() {
				t.Errorf("%v, then %v", kept, again)
			}
		}
	})
}
