//go:build chaos

package robustness_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/tests/harness"
)

// This is TestKill for a longer time.
func TestChaosKill(t *testing.T) {
	harness.OnEachEngine(t, func(t *testing.T, database string) {
		server := fixtures.StartLocket(t, database)
		load := startLoad(t, 16, 40, 20*time.Millisecond, server)
		killOften(t, load, server, 150, time.Second)
		load.finish(t, server.Client(t))
	})
}

// This is TestServerLostInTransaction on a node of a cluster.
func TestChaosServerLostGalera(t *testing.T) {
	loseServer(t, fixtures.NewGalera(t, 2)[0].DSN("locket"), false)
}

// A server is lost in its transaction while the connections of another server go silent.
func TestChaosServerLostAndSilence(t *testing.T) {
	for range 3 {
		loseServer(t, fixtures.MySQL(t), true)
	}
}

// This is TestKillDatabase for a longer time; sometimes a server is killed too.
func TestChaosKillDatabase(t *testing.T) {
	killDatabase(t, 16, 30, func(a *fixtures.Locket) {
		if rand.IntN(2) == 0 {
			a.Kill()
			harness.Must(t, a.Launch()) // it waits for the database
		}
	})
}

// This is TestSilentConnections, repeated.
func TestChaosSilentConnections(t *testing.T) {
	silenceConnections(t, fixtures.MySQL(t), 5)
}
