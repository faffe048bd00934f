package run_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/tests/harness"
)

// All locks are held while the command runs, which has them in its environment; none is held afterwards.
func TestRunSeveral(t *testing.T) {
	t.Parallel()
	server := runServer(t)
	client := server.Client(t)
	r := startRun(t, server.Address(), "c", "a", "b", "--", "sh", "-c", `echo "$LOCKET_NAME" "$LOCKET_TOKEN" "$LOCKET_ID" ready; sleep 1000`)
	r.prints("ready")
	var names, tokens, ids []string
	for _, name := range []string{"a", "b", "c"} {
		q, err := client.GetQueue(t.Context(), &models.GetQueueRequest{Resource: name})
		harness.Must(t, err)
		if len(q.GetHolders()) != 1 {
			t.Fatalf("%s: %v", name, q)
		}
		names, tokens, ids = append(names, name), append(tokens, fmt.Sprint(q.GetHolders()[0].GetToken())), append(ids, q.GetHolders()[0].GetId())
	}
	if want := strings.Join(append(append(names, tokens...), ids...), "\n"); strings.ReplaceAll(strings.TrimSuffix(r.out.String(), " ready\n"), " ", "\n") != want {
		t.Errorf("the command knows %q, want %q", &r.out, want)
	}
	r.signal(syscall.SIGTERM)
	r.ends(143)
	for _, name := range names {
		unheld(t, client, name)
	}
}

// If one of the locks cannot be acquired, none is held, and the command is not run.
func TestRunSeveralOrNone(t *testing.T) {
	t.Parallel()
	server := runServer(t)
	client := server.Client(t)
	harness.Create(t, client, "b", "somebody", time.Hour)
	for _, flag := range []string{"--no-wait", "--wait=6s"} {
		r := startRun(t, server.Address(), "a", "b", flag, "--", "echo", "ran")
		r.ends(124, `"b"`, "somebody")
		if r.out.String() != "" {
			t.Error("the command was run")
		}
		unheld(t, client, "a")
	}
	// The first is kept while the second is awaited, and released when that is interrupted.
	r := startRun(t, server.Address(), "a", "b", "--ttl", "30s", "--", "echo", "ran")
	r.queue(client, "b", 1, 1)
	r.renews(client, "a")
	r.signal(syscall.SIGTERM)
	r.ends(143)
	unheld(t, client, "a")
	harness.Release(t, client, "somebody")
	unheld(t, client, "b")
}

// Whichever of the locks is lost, the command is stopped, and the others are released.
func TestRunSeveralLost(t *testing.T) {
	t.Parallel()
	server := runServer(t)
	client := server.Client(t)
	for _, lost := range []string{"x", "y"} {
		r := startRun(t, server.Address(), "x", "y", "--", "sh", "-c", "echo ready; exec sleep 1000")
		r.prints("ready")
		q, err := client.GetQueue(t.Context(), &models.GetQueueRequest{Resource: lost})
		harness.Must(t, err)
		_, err = client.UpdateClaim(t.Context(), &models.UpdateClaimRequest{Id: q.GetHolders()[0].GetId(), Status: models.Status_STATUS_REVOKED})
		harness.Must(t, err)
		r.ends(123, `"`+lost+`"`, "revoked")
		unheld(t, client, "x")
		unheld(t, client, "y")
	}
}

// Commands that name the same locks in different orders do not wait for each other for ever,
// and never run at the same time.
func TestRunSeveralInOneOrder(t *testing.T) {
	t.Parallel()
	server := runServer(t)
	file := filepath.Join(t.TempDir(), "file")
	var runs []*runner
	for i := range 6 {
		names := []string{"a", "b"}
		if i%2 == 1 {
			names = []string{"b", "a"}
		}
		script := fmt.Sprintf("echo begin >>%[1]s; sleep 0.03; echo end >>%[1]s", file)
		runs = append(runs, startRun(t, server.Address(), append(names, "--", "sh", "-c", script)...))
	}
	for _, r := range runs {
		r.ends(0)
	}
	if text, err := os.ReadFile(file); string(text) != strings.Repeat("begin\nend\n", len(runs)) || err != nil {
		t.Errorf("%q, %v", text, err)
	}
}

// A run has the youngest claim of a deadlock with somebody that takes the locks in another order. It gives all of them
// up, and names the other.
func TestRunInDeadlock(t *testing.T) {
	t.Parallel()
	server := runServer(t)
	client := server.Client(t)
	claims := func(owner, resource string) {
		t.Helper()
		_, err := client.CreateClaim(t.Context(), &models.CreateClaimRequest{Id: owner + "-" + resource, Resource: resource, Owner: owner, Ttl: proto.Float64(3600)})
		harness.Must(t, err)
	}
	claims("other", "c")
	claims("third", "b")
	r := startRun(t, server.Address(), "a", "b", "c", "--owner", "me", "--", "echo", "ran")
	r.queue(client, "b", 1, 1)
	claims("other", "a")
	harness.Release(t, client, "third-b")
	r.ends(124, `"c" was not acquired`, `"me" waited for "c", "other" waited for "a"`)
	if r.out.String() != "" {
		t.Error("the command was run")
	}
	unheld(t, client, "b")
	if c, err := client.GetClaim(t.Context(), &models.GetClaimRequest{Id: "other-a"}); err != nil || c.GetStatus() != models.Status_STATUS_ACTIVE {
		t.Errorf("the other one has %v, %v", c, err)
	}
}
