package robustness_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/tests/harness"
)

const (
	waitTTL = 10 * time.Second // long enough for servers and clients on a busy machine to renew
	// waitersOf names the environment variable with an address. With it this program is the other process.
	waitersOf = "LOCKET_TEST_WAITERS_OF"
)

// waitFor makes a claim with waitTTL, and waits until it is active. It asks again after a refusal for the moment: a database that does not run for
// two seconds refuses all that look at their claims.
func waitFor(t *testing.T, client models.LocketClient, id string) (wait func() (*models.Claim, error), err error) {
	t.Helper()
	_, err = harness.Answered(t, func() (*models.Claim, error) {
		return client.CreateClaim(t.Context(), &models.CreateClaimRequest{
			Id: id, Resource: "line", Owner: id, Ttl: proto.Float64(3600), WaitTtl: proto.Float64(waitTTL.Seconds()),
		})
	})
	return func() (*models.Claim, error) { return await(t, client, id) }, err
}

// TestWaitersOfAnotherProcess runs in the process with half of the waiters. They have every other place in the queue,
// so it makes each one on request.
func TestWaitersOfAnotherProcess(t *testing.T) {
	address := os.Getenv(waitersOf)
	if address == "" {
		return // this is not that process
	}
	client := harness.ClientAt(t, address)
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		wait, err := waitFor(t, client, lines.Text())
		if err != nil {
			t.Fatal(err)
		}
		go func() { _, _ = wait() }()
		fmt.Println("waits")
	}
	select {} // until it is killed
}

// TestWaitersThatAreKilled: half of the waiters are in a process that is killed, each of them between two live ones. The queue passes all dead
// ones within one wait TTL, also if one of them was granted.
func TestWaitersThatAreKilled(t *testing.T) {
	t.Parallel()
	killWaiters(t, 40)
}

func killWaiters(t *testing.T, waiters int) {
	t.Helper()
	harness.OnEachEngine(t, func(t *testing.T, database string) {
		server := fixtures.NewLocket(t, database)
		harness.Must(t, server.Start())
		client := harness.ClientAt(t, server.Address())
		harness.Create(t, client, "line", "first", time.Hour)

		other := exec.Command(os.Args[0], "-test.run=^TestWaitersOfAnotherProcess$")
		other.Env = append(os.Environ(), waitersOf+"="+server.Address())
		in, err := other.StdinPipe()
		harness.Must(t, err)
		out, err := other.StdoutPipe()
		harness.Must(t, err)
		harness.Must(t, other.Start())
		t.Cleanup(func() { _ = other.Process.Kill(); _ = other.Wait() })
		answers := bufio.NewScanner(out)

		var turns sync.WaitGroup
		var granted atomic.Int64
		for i := range waiters / 2 {
			fmt.Fprintf(in, "dead-%d\n", i)
			if !answers.Scan() {
				t.Fatal("the other process has ended")
			}
			wait, err := waitFor(t, client, fmt.Sprint("live-", i))
			harness.Must(t, err)
			turns.Go(func() {
				c, err := wait()
				if err != nil || c.GetStatus() != models.Status_STATUS_ACTIVE {
					t.Errorf("live-%d: %s, %v", i, c.GetStatus(), err)
				}
				granted.Add(1)
				_, err = harness.Answered(t, func() (*models.Claim, error) {
					return client.EndClaim(t.Context(), &models.EndClaimRequest{Id: fmt.Sprint("live-", i)})
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
		time.Sleep(waitTTL + 2*time.Second) // real time: live waiters keep waiting
		if n := granted.Load(); n != 0 {
			t.Fatalf("%d were granted while the first one holds", n)
		}
		queue, err := client.GetQueue(t.Context(), &models.GetQueueRequest{Resource: "line"})
		harness.Must(t, err)
		if int(queue.GetWaiting()) != waiters {
			t.Fatalf("%d wait, want %d", queue.GetWaiting(), waiters)
		}

		harness.Must(t, other.Process.Kill())
		killed := time.Now()
		harness.Release(t, client, "first") // the next waiter is dead
		turns.Wait()
		harness.AtMost(t, "the line", time.Since(killed), waitTTL+5*time.Second) // the time of the live holders
		ended := map[models.Status]int{}
		for _, c := range harness.ListAll(t, client) {
			if len(c.GetId()) > 4 && c.GetId()[:4] == "dead" {
				ended[c.GetStatus()]++
			}
		}
		t.Logf("the %d dead ended as %v", waiters/2, ended)
		if ended[models.Status_STATUS_ABORTED]+ended[models.Status_STATUS_EXPIRED] != waiters/2 {
			t.Errorf("the dead ended as %v", ended)
		}
	})
}
