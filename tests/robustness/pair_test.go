package robustness_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/tests/harness"
)

// Two servers that use the same keys of one database under load keep all rules. TestSoakPair has more clients, for longer.
func TestPair(t *testing.T) {
	t.Parallel()
	pairUnderLoad(t, 16, time.Second)
}

func pairUnderLoad(t *testing.T, clients int, length time.Duration) {
	t.Helper()
	database := "mysql:" + harness.MySQL(t)
	a, b := fixtures.StartLocket(t, database, "--database-timeout", "1m"), fixtures.StartLocket(t, database, "--database-timeout", "1m")
	load := startLoad(t, clients, 12, 5*time.Millisecond, a, b)
	time.Sleep(length) // real time: of load
	load.finish(t, a.Client(t))
	load.checkFIFO(t)
	load.undisturbed(t)
}

// When a third server is killed, the two others are affected only by its locks, which expire. TestSoakThirdServerKilled has more load, and
// more kills.
func TestThirdServerKilled(t *testing.T) {
	t.Parallel()
	killThird(t, 4, 1)
}

// killThird has a number of clients of the two servers, and as many of the third, which is killed in each round.
func killThird(t *testing.T, clients, rounds int) {
	t.Helper()
	database := "mysql:" + harness.MySQL(t)
	a, b := fixtures.StartLocket(t, database, "--database-timeout", "1m"), fixtures.StartLocket(t, database, "--database-timeout", "1m")
	c := fixtures.StartLocket(t, database)
	load := startLoad(t, clients, 6, 5*time.Millisecond, a, b)
	doomed := startLoad(t, clients, 6, 5*time.Millisecond, c)
	for round := range rounds {
		dead, next := fmt.Sprintf("dead-%d", round), fmt.Sprintf("next-%d", round)
		time.Sleep(300 * time.Millisecond) // real time: of load
		held := create(t, c.Client(t), "held", dead, time.Minute)
		if c := create(t, a.Client(t), "held", next, time.Minute); c.GetStatus() != waiting {
			t.Fatalf("got %v, want it to wait", c)
		}
		client := c.Client(t)
		_, err := harness.Answered(t, func() (*models.Claim, error) { return harness.Renew(t, client, dead, time.Second) })
		harness.Must(t, err)
		c.Kill()
		killed := time.Now()
		granted, err := await(t, b.Client(t), next)
		if err != nil || granted.GetStatus() != active || granted.GetToken() <= held.GetToken() {
			t.Errorf("after the kill: %v, %v", granted, err)
		}
		harness.AtMost(t, "the end of the lease of a dead server's client", time.Since(killed), 3*time.Second)
		client = b.Client(t)
		_, err = harness.Answered(t, func() (*models.Claim, error) {
			return client.EndClaim(t.Context(), &models.EndClaimRequest{Id: next})
		})
		harness.Must(t, err)
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
	}
	load.stop()
	doomed.stop()
	report(t, load.faults)
	report(t, doomed.faults)
	report(t, load.doubleHolders())
	load.undisturbed(t)
}

// A waiter at one server hears of a release at the other one within 50 ms. The bound for the slowest is greater, since this machine may be
// busy.
func TestHandOff(t *testing.T) {
	const (
		rounds = 20
		median = 50 * time.Millisecond
		worst  = time.Second
	)
	database := "mysql:" + harness.MySQL(t)
	a, b := fixtures.StartLocket(t, database).Client(t), fixtures.StartLocket(t, database).Client(t)
	harness.Create(t, a, "k", "0", time.Minute)
	var took []time.Duration
	for i := range rounds {
		took = append(took, handOff(t, a, b, fmt.Sprint(i), fmt.Sprint(i+1)))
		a, b = b, a
	}
	slices.Sort(took)
	harness.AtMost(t, "release on one server to grant on the other, in the median,", took[rounds/2], median)
	harness.AtMost(t, "the longest", took[rounds-1], worst)
}

// handOff measures the time from the release at one server to the answer of the waiting call at the other.
func handOff(t *testing.T, from, to models.LocketClient, holder, next string) time.Duration {
	t.Helper()
	if c := harness.Create(t, to, "k", next, time.Minute); c.GetStatus() != waiting {
		t.Fatalf("got %v, want it to wait", c)
	}
	granted := make(chan time.Time, 1)
	go func() {
		c, err := to.AwaitClaim(t.Context(), &models.AwaitClaimRequest{Id: next})
		if err != nil || c.GetStatus() != active {
			t.Errorf("await %s: %v, %v", next, c, err)
		}
		granted <- time.Now()
	}()
	time.Sleep(60 * time.Millisecond) // real time: it waits, or comes when the claim is granted
	start := time.Now()
	harness.Release(t, from, holder)
	return (<-granted).Sub(start)
}
