package program_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/tests/harness"
)

// shellParent starts a shell that starts a keychain, runs a script, claims a resource, and runs
// another; there $out is the file of the keychain's answers. Both have the pipe open, as 3.
func shellParent(t *testing.T, url, resource, before, script string, args ...string) *exec.Cmd {
	t.Helper()
	out := filepath.Join(t.TempDir(), "out")
	fifo := filepath.Join(t.TempDir(), "in")
	harness.Must(t, syscall.Mkfifo(fifo, 0o600))
	cmd := exec.Command("bash", "-c", `in=$1 out=$2 resource=$3; shift 3
"$@" <"$in" >"$out" &
exec 3>"$in"
`+before+`
echo '{"command": "claim", "serial": 1, "resource_name": "'"$resource"'", "args": {"ttl": 15}}' >&3
until grep -q succeeded "$out"; do sleep 0.01; done
`+script, "bash", fifo, out, resource)
	cmd.Args = append(cmd.Args, keychainCommand(t, url, args...).Args...)
	cmd.Env = append(fixtures.CleanEnv(), "t="+t.TempDir())
	var stderr strings.Builder
	cmd.Stderr = &stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	harness.Must(t, cmd.Start())
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("%s", stderr.String())
		}
	})
	return cmd
}

// wantEnded waits until the only claim of a resource is ended: it may be withdrawn when the
// keychain did not know yet that it was active.
func wantEnded(t *testing.T, client models.LocketClient, resource string) {
	t.Helper()
	harness.Eventually(t, func() error {
		switch claims := claimsOf(t, client, resource); claims[0].GetStatus() {
		case models.Status_STATUS_RELEASED, models.Status_STATUS_ABORTED, models.Status_STATUS_WITHDRAWN:
			return nil
		default:
			return fmt.Errorf("%v", claims)
		}
	})
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}

// When the parent is killed, its claims end within a second: because the input ends, or, when
// a child of the parent keeps it open, because the keychain has another parent then.
func TestKeychainParentKilled(t *testing.T) {
	t.Parallel()
	server := fixtures.StartLocket(t, harness.Embedded(t))
	client := server.Client(t)
	shell := func(before string) func(t *testing.T, resource string) *exec.Cmd {
		return func(t *testing.T, resource string) *exec.Cmd {
			return shellParent(t, httpURL(server), resource, before, "sleep 600 3>&-; true")
		}
	}
	parents := map[string]func(t *testing.T, resource string) *exec.Cmd{
		"shell":      shell(""),
		"grandchild": shell("sleep 600 &"),
	}
	for language := range keychainExamples {
		parents[language] = func(t *testing.T, resource string) *exec.Cmd {
			return startKeychainExample(t, language, server, resource, "sleep 600").cmd
		}
	}
	for name, start := range parents {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := start(t, name)
			wantStatus(t, client, name, 1, models.Status_STATUS_ACTIVE)
			harness.Must(t, cmd.Process.Kill())
			wantEnded(t, client, name)
		})
	}
}

// When a claim is lost, the parent gets the requested signal, and is killed if that does not end it, unless
// --kill-after is 0.
func TestKeychainSignalsParent(t *testing.T) {
	t.Parallel()
	server := fixtures.StartLocket(t, harness.Embedded(t))
	client := server.Client(t)
	for name, test := range map[string]struct {
		trap, script, args string
		want               string // how the parent ends
	}{
		"not asked for": {`:`, `for i in $(seq 1200); do grep -q lost "$out" && exit 5; sleep 0.1; done`, "--notices", "exit status 5"},
		"TERM":          {`trap "exit 6" TERM`, `for i in $(seq 1200); do sleep 0.1; done`, "--signal-parent", "exit status 6"},
		"USR1":          {`trap "exit 7" USR1`, `for i in $(seq 1200); do sleep 0.1; done`, "--signal-parent=sigusr1", "exit status 7"},
		"KILL":          {`trap "touch $t/told" TERM`, `for i in $(seq 1200); do sleep 0.1; done`, "--signal-parent --kill-after=500ms", "signal: killed"},
		"never KILL": {
			`trap "told=yes" TERM`, `until [ "$told" ]; do sleep 0.1; done; sleep 1; echo '{"command":"shutdown","serial":2}' >&3; wait %1; exit 8`,
			"--signal-parent --kill-after=0", "exit status 8",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ready := filepath.Join(t.TempDir(), "ready")
			cmd := shellParent(t, httpURL(server), name, "", test.trap+"; >'"+ready+"'; "+test.script, strings.Fields(test.args)...)
			harness.Until(t, "trap", func() bool { return exists(ready) })
			revoke(t, client, wantStatus(t, client, name, 1, models.Status_STATUS_ACTIVE).GetId())
			select {
			case err := <-harness.Later(cmd.Wait):
				if err == nil || err.Error() != test.want {
					t.Errorf("%v, want %s", err, test.want)
				}
			case <-time.After(harness.HangTimeout):
				t.Error("the parent still runs")
			}
		})
	}
}
