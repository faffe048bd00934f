package run_test

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/tests/harness"
)

// A run whose connection stops delivering while it waits gets the lock nevertheless, with the same
// claim or a new one, and runs the command once.
func TestRunSilence(t *testing.T) {
	t.Parallel()
	server := runServer(t)
	client := server.Client(t)
	for name, ttl := range map[string]string{"short": "10s", "long": "1m"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			harness.Create(t, client, name, name, time.Hour)
			proxy := fixtures.NewProxy(t, server.Address())
			r := startRun(t, proxy.Addr(), name, "--ttl", ttl, "--", "sh", "-c", `echo "ran with $LOCKET_ID"`)
			r.queue(client, name, 1, 1)
			q, err := client.GetQueue(t.Context(), &models.GetQueueRequest{Resource: name})
			harness.Must(t, err)
			proxy.Silence()
			harness.Release(t, client, name)
			r.ends(0)
			r.prints("ran with ")
			if id := q.GetWaiters()[0].GetId(); name == "long" && !strings.Contains(r.out.String(), id) {
				t.Errorf("it missed its turn with %s: %s", id, &r.out)
			}
			unheld(t, client, name)
		})
	}
}

// A claim that expired before the run could learn that it was active is not the end: the run makes
// a new one, and the command knows its id.
func TestRunMissedTurn(t *testing.T) {
	t.Parallel()
	server := runServer(t)
	client := server.Client(t)
	harness.Create(t, client, "n", "first", time.Hour)
	proxy := fixtures.NewProxy(t, server.Address())
	r := startRun(t, proxy.Addr(), "n", "--ttl", "10s", "--", "sh", "-c", `echo "id=$LOCKET_ID."; exec sleep 1000`)
	r.queue(client, "n", 1, 1)
	q, err := client.GetQueue(t.Context(), &models.GetQueueRequest{Resource: "n"})
	harness.Must(t, err)
	missed := q.GetWaiters()[0].GetId()
	proxy.Cut()
	harness.Release(t, client, "first")
	r.eventually("the claim has expired", func() bool {
		claim, err := client.GetClaim(t.Context(), &models.GetClaimRequest{Id: missed})
		return err == nil && claim.GetStatus() == models.Status_STATUS_EXPIRED
	})
	proxy.Restore()
	r.prints("id=")
	q, err = client.GetQueue(t.Context(), &models.GetQueueRequest{Resource: "n"})
	harness.Must(t, err)
	if len(q.GetHolders()) != 1 || q.GetHolders()[0].GetId() == missed {
		t.Fatalf("held by %v, and %s was missed", q.GetHolders(), missed)
	}
	r.prints("id=" + q.GetHolders()[0].GetId() + ".")
	r.signal(syscall.SIGTERM)
	r.ends(143)
	unheld(t, client, "n")
}
