package robustness_test

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/tests/harness"
)

// A session gets an event for each change once, with the present state, also if there is a watch at its server, and after it has moved. It
// locks a resource again that another session has taken meanwhile. TestSoakSessionEventsOnce has more rounds.
func TestSessionEventsOnce(t *testing.T) { sessionEvents(t, 30, 10) }

// sessionEvents has a number of rounds. The session moves in each round with a multiple of the second number.
func sessionEvents(t *testing.T, rounds, moves int) {
	for name, start := range map[string]func(t *testing.T) (a, b *fixtures.Locket){
		"one server": func(t *testing.T) (a, b *fixtures.Locket) {
			a = fixtures.StartLocket(t, "embedded:"+filepath.Join(t.TempDir(), "data"))
			return a, a
		},
		"two servers": pairOfServers,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, b := start(t)
			for _, server := range []*fixtures.Locket{a, b} {
				watch, err := server.Client(t).Watch(t.Context(), &models.WatchRequest{})
				harness.Must(t, err)
				_, err = watch.Recv()
				harness.Must(t, err)
			}
			s, other := openAt(t, a, "s"), openAt(t, a, "other")
			for round := range rounds {
				if round%moves == moves-1 { // it moves
					a, b = b, a
					s = openAt(t, a, "s", harness.Resume)
				}
				key := fmt.Sprint(round % 3)
				stood := func(got *models.SessionStatus, previous models.Holding) {
					t.Helper()
					if got.GetPrevious() != previous || len(s.Events) > 0 {
						t.Fatalf("round %d: got %v, want %s before; it heard %v", round, got, previous, s.Events)
					}
				}
				stood(s.Lock(key, harness.Held), harness.None)
				stood(s.Unlock(key), harness.Held)
				other.Lock(key, harness.Held)
				stood(s.Lock(key, harness.Waiting), harness.None)
				other.Unlock(key)
				s.Hears(key, harness.Waiting, harness.Held)
				stood(s.Unlock(key), harness.Held)
			}
			s.Quiet()
		})
	}
}
