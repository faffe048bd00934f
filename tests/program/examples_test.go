package program_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/tests/harness"
)

// The examples that hold a resource over HTTP while a command runs. All of them behave in
// the same way.
var claimExamples = map[string][]string{
	"python":     {python, "../../examples/python/claim.py"},
	"javascript": {"node", "../../examples/javascript/claim.mjs"},
}

// endure is a command that prints when it begins, and when it gets TERM. It does not end by itself while a test runs.
const endure = `trap "echo told to stop; exit" TERM; echo working; sleep 1800 & wait`

// example is one that runs.
type example struct {
	cmd    *exec.Cmd
	output string // the file
	ended  <-chan error
}

// startExample runs an example that holds the resource for a shell command.
func startExample(t *testing.T, language string, server *fixtures.Locket, resource string, ttl float64, command string) *example {
	t.Helper()
	program := claimExamples[language]
	if _, err := exec.LookPath(program[0]); err != nil {
		t.Fatalf("%v; install it with: apt-get install -y --no-install-recommends python3 nodejs", err)
	}
	cmd := exec.Command(program[0], program[1], "http://"+server.HTTPAddress(), resource, fmt.Sprint(ttl), "sh", "-c", command)
	cmd.Env = append(fixtures.CleanEnv(), "no_proxy=127.0.0.1", "PYTHONDONTWRITEBYTECODE=1")
	return begin(t, cmd)
}

// begin starts an example.
func begin(t *testing.T, cmd *exec.Cmd) *example {
	t.Helper()
	e := &example{cmd: cmd, output: filepath.Join(t.TempDir(), "output")}
	output, err := os.Create(e.output)
	harness.Must(t, err)
	defer output.Close()
	cmd.Stdout, cmd.Stderr = output, output
	harness.Must(t, cmd.Start())
	e.ended = harness.Later(cmd.Wait)
	t.Cleanup(func() { _ = cmd.Process.Kill() }) // which ends its command too
	return e
}

// text returns the output of the example and its command.
func (e *example) text() string {
	text, _ := os.ReadFile(e.output)
	return string(text)
}

// says waits until the example or its command has printed something.
func (e *example) says(t *testing.T, text string) {
	t.Helper()
	harness.Eventually(t, func() error {
		if printed := e.text(); !strings.Contains(printed, text) {
			return fmt.Errorf("%q without %q", printed, text)
		}
		return nil
	})
}

// exit waits for the example to end.
func (e *example) exit(t *testing.T) (code int) {
	t.Helper()
	select {
	case <-e.ended:
		return e.cmd.ProcessState.ExitCode()
	case <-time.After(harness.HangTimeout):
		t.Fatalf("it still runs, and has printed %q", e.text())
		return 0
	}
}

// token is the token that the example has printed.
func (e *example) token(t *testing.T) uint64 {
	t.Helper()
	line, _, _ := strings.Cut(e.text(), "\n")
	token, err := strconv.ParseUint(strings.TrimPrefix(line, "token "), 10, 64)
	if err != nil {
		t.Fatalf("it printed %q, want a token", e.text())
	}
	return token
}

// onEachExample runs a test with each of the examples at once. The resource is its own.
func onEachExample(t *testing.T, server *fixtures.Locket, test func(t *testing.T, start func(ttl float64, command string) *example, resource string)) {
	t.Helper()
	for language := range claimExamples {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			test(t, func(ttl float64, command string) *example {
				return startExample(t, language, server, language, ttl, command)
			}, language)
		})
	}
}

// claimsOf returns all claims of a resource, oldest first.
func claimsOf(t *testing.T, client models.LocketClient, resource string) []*models.Claim {
	t.Helper()
	list, err := harness.Answered(t, func() (*models.ListClaimsResponse, error) {
		return client.ListClaims(t.Context(), &models.ListClaimsRequest{Resource: proto.String(resource)})
	})
	harness.Must(t, err)
	return list.GetClaims()
}

// wantStatus waits until the newest of n claims of a resource has a status.
func wantStatus(t *testing.T, client models.LocketClient, resource string, n int, want models.Status) *models.Claim {
	t.Helper()
	var last *models.Claim
	harness.Eventually(t, func() error {
		claims := claimsOf(t, client, resource)
		if len(claims) != n || claims[n-1].GetStatus() != want {
			return fmt.Errorf("claims %v, want %d, the last %s", claims, n, want)
		}
		last = claims[n-1]
		return nil
	})
	return last
}

// wantRenewed waits until the holder of a resource, the first of its claims, renews it.
func wantRenewed(t *testing.T, client models.LocketClient, resource string) {
	t.Helper()
	before := claimsOf(t, client, resource)[0]
	harness.Eventually(t, func() error {
		now := claimsOf(t, client, resource)[0]
		if now.GetStatus() != models.Status_STATUS_ACTIVE {
			t.Fatalf("the claim is %v", now)
		}
		if now.GetVersion() == before.GetVersion() {
			return fmt.Errorf("it is not renewed: %v", now)
		}
		return nil
	})
}

func TestExamplesHold(t *testing.T) {
	t.Parallel()
	server := fixtures.StartLocket(t, harness.Embedded(t))
	client := server.Client(t)
	onEachExample(t, server, func(t *testing.T, start func(float64, string) *example, resource string) {
		const ttl = 15 // seconds: a renewal comes in time on a busy machine too
		end := filepath.Join(t.TempDir(), "end")
		e := start(ttl, "echo with $FENCING_TOKEN; until [ -e "+end+" ]; do sleep 0.1; done; exit 3")
		e.says(t, "with")
		if want := fmt.Sprintf("with %d\n", e.token(t)); !strings.HasSuffix(e.text(), want) {
			t.Errorf("it printed %q, want %q at the end", e.text(), want)
		}
		harness.Create(t, client, resource, resource+"-next", time.Hour)
		for range 2 {
			wantRenewed(t, client, resource)
		}
		harness.Must(t, os.WriteFile(end, nil, 0o600))
		if code := e.exit(t); code != 3 {
			t.Errorf("exit code %d, want that of the command, 3; it printed %q", code, e.text())
		}
		claims := claimsOf(t, client, resource)
		first, next := claims[0], claims[1]
		if first.GetStatus() != models.Status_STATUS_RELEASED {
			t.Errorf("the claim was not released: %v", first)
		}
		if first.GetToken() != e.token(t) || next.GetStatus() != models.Status_STATUS_ACTIVE {
			t.Errorf("claims %v", claims)
		}
	})
}

// The examples wait for their turn across a restart of the server, with one claim each.
func TestExamplesWait(t *testing.T) {
	t.Parallel()
	server := fixtures.StartLocket(t, harness.Embedded(t))
	client := server.Client(t)
	waiting := make(map[string]*example)
	for language := range claimExamples {
		harness.Create(t, client, language, language+"-before", time.Hour)
		waiting[language] = startExample(t, language, server, language, 60, "true")
		wantStatus(t, client, language, 2, models.Status_STATUS_WAITING)
	}
	harness.Must(t, server.Restart())
	for language, e := range waiting {
		harness.Release(t, client, language+"-before")
		if code := e.exit(t); code != 0 {
			t.Errorf("%s: exit code %d, %q", language, code, e.text())
		}
		claims := claimsOf(t, client, language)
		if len(claims) != 2 || claims[1].GetStatus() != models.Status_STATUS_RELEASED || e.token(t) <= claims[0].GetToken() {
			t.Errorf("%s printed %q, claims %v", language, e.text(), claims)
		}
	}
}

// Of several examples in all languages, one has the lock at a time.
func TestExamplesExclude(t *testing.T) {
	t.Parallel()
	server := fixtures.StartLocket(t, harness.Embedded(t))
	folder := filepath.Join(t.TempDir(), "busy")
	var all []*example
	for language := range claimExamples {
		for range 3 {
			command := "mkdir " + folder + " && sleep 0.2 && rmdir " + folder
			all = append(all, startExample(t, language, server, "shared", 60, command))
		}
	}
	tokens := make(map[uint64]bool)
	for _, e := range all {
		if code := e.exit(t); code != 0 {
			t.Errorf("exit code %d, %q", code, e.text())
		}
		tokens[e.token(t)] = true
	}
	if len(tokens) != len(all) {
		t.Errorf("%d tokens of %d grants", len(tokens), len(all))
	}
}

func TestExamplesLose(t *testing.T) {
	t.Parallel()
	server := fixtures.StartLocket(t, harness.Embedded(t))
	client := server.Client(t)
	onEachExample(t, server, func(t *testing.T, start func(float64, string) *example, resource string) {
		e := start(20, endure) // the command has 3 of them to end
		e.says(t, "working")
		held := wantStatus(t, client, resource, 1, models.Status_STATUS_ACTIVE)
		_, err := client.UpdateClaim(t.Context(), &models.UpdateClaimRequest{Id: held.GetId(), Status: models.Status_STATUS_REVOKED})
		harness.Must(t, err)
		wantLost(t, e)
	})
}

// wantLost waits for the end of an example whose claim is lost. It stops its command first.
func wantLost(t *testing.T, e *example) {
	t.Helper()
	if code := e.exit(t); code != 1 || !strings.Contains(e.text(), "told to stop\nlost the claim") {
		t.Errorf("exit code %d, %q", code, e.text())
	}
}

// When the server does not answer, the examples know by their own clock when their lease ends.
func TestExamplesWithoutAnswer(t *testing.T) {
	t.Parallel()
	server := fixtures.StartLocket(t, harness.Embedded(t))
	var all []*example
	for language := range claimExamples {
		all = append(all, startExample(t, language, server, language, 20, endure)) // the command has 3 of them to end
	}
	for _, e := range all {
		e.says(t, "working")
	}
	harness.Must(t, server.Pause())
	for _, e := range all { // before the server answers again
		e.says(t, "told to stop")
	}
	harness.Must(t, server.Resume())
	for _, e := range all {
		wantLost(t, e)
	}
}

func TestExamplesStop(t *testing.T) {
	t.Parallel()
	server := fixtures.StartLocket(t, harness.Embedded(t))
	client := server.Client(t)
	onEachExample(t, server, func(t *testing.T, start func(float64, string) *example, resource string) {
		holder := start(60, endure)
		holder.says(t, "working")
		waiter := start(60, endure)
		wantStatus(t, client, resource, 2, models.Status_STATUS_WAITING)

		harness.Must(t, waiter.cmd.Process.Signal(syscall.SIGTERM))
		if code := waiter.exit(t); code != 1 || waiter.text() != "stopped\n" {
			t.Errorf("waiting: exit code %d, %q", code, waiter.text())
		}
		wantStatus(t, client, resource, 2, models.Status_STATUS_WITHDRAWN)

		harness.Must(t, holder.cmd.Process.Signal(syscall.SIGINT))
		if code := holder.exit(t); code != 1 || !strings.HasSuffix(holder.text(), "told to stop\nstopped\n") {
			t.Errorf("working: exit code %d, %q", code, holder.text())
		}
		if status := claimsOf(t, client, resource)[0].GetStatus(); status != models.Status_STATUS_RELEASED {
			t.Errorf("the claim is %s, want RELEASED", status)
		}
	})
}
