package robustness_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/tests/harness"
)

// A server that is killed repeatedly loses nothing that it acknowledged. TestChaosKill kills it more often.
func TestKill(t *testing.T) {
	harness.OnEachEngine(t, func(t *testing.T, database string) {
		server := fixtures.StartLocket(t, database)
		load := startLoad(t, 8, 20, 20*time.Millisecond, server)
		killOften(t, load, server, 2, 500*time.Millisecond)
		load.finish(t, server.Client(t))
	})
}

// killOften kills the server at random moments and starts it again, in most cases at once.
func killOften(t *testing.T, load *load, server *fixtures.Locket, rounds int, longest time.Duration) {
	t.Helper()
	began := time.Now()
	client := server.Client(t)
	for range rounds {
		harness.Think(longest)
		server.Kill()
		if rand.IntN(4) == 0 {
			harness.Think(500 * time.Millisecond)
		}
		if err := server.Start(); err != nil {
			t.Fatal(err)
		}
		load.sample(t, client, load.keys)
	}
	harness.LogTime(t, fmt.Sprintf("%d kills", rounds), began)
}

// A database that is killed while two servers use it loses nothing either. The servers connect to it again.
// TestChaosKillDatabase does it with more load, more often.
func TestKillDatabase(t *testing.T) {
	t.Parallel()
	killDatabase(t, 8, 1, func(a *fixtures.Locket) {})
}

// killDatabase has a number of clients, kills the database at random moments, calls a function, and starts the database again.
func killDatabase(t *testing.T, clients, rounds int, meanwhile func(a *fixtures.Locket)) {
	t.Helper()
	mariadb := fixtures.NewMariaDB(t)
	database := "mysql:" + mariadb.CreateDatabase(t)
	a, b := fixtures.StartLocket(t, database), fixtures.StartLocket(t, database)
	load := startLoad(t, clients, 40, 20*time.Millisecond, a, b)
	client := b.Client(t)
	for range rounds {
		harness.Think(2 * time.Second)
		harness.Must(t, mariadb.Kill())
		meanwhile(a)
		harness.Think(2 * time.Second)
		harness.Must(t, mariadb.Start())
		harness.Must(t, a.AwaitServing(harness.HangTimeout))
		awaitDatabase(t, client)
		load.sample(t, client, load.keys)
	}
	load.finish(t, client)
	load.checkFIFO(t)
}
