package run_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
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

// holder writes a into a file for as long as it lives, and does not end of TERM. Where its lease ends, it has three twentieths
// of the TTL between TERM and KILL, and must print in that time on a busy machine too.
const holder = `trap "echo term" TERM; echo ready; while :; do echo a >>%s; sleep 0.1; done`

func holderOf(t *testing.T, server *fixtures.Locket, address, name, file string, flags ...string) *runner {
	t.Helper()
	r := newRunner(t, address, append(append([]string{name, "--ttl", "20s"}, flags...), "--", "sh", "-c", fmt.Sprintf(holder, file))...)
	r.start().prints("ready")
	r.queue(server.Client(t), name, 1, 0)
	return r
}

// lapses waits for the end because the lease could not be renewed. A message that no server could be asked to release it is allowed.
func (r *runner) lapses() {
	r.t.Helper()
	r.ends(123)
	if !strings.Contains(r.stderr.String(), "cannot be renewed") {
		r.t.Errorf("it does not say why it has ended: %q", &r.stderr)
	}
}

// successor takes the same lock as soon as it can, and writes b.
func successor(t *testing.T, server *fixtures.Locket, name, file string) {
	t.Helper()
	shell(t, server.Address(), name, "echo b >>"+file+"; sleep 0.2").ends(0)
	text, err := os.ReadFile(file)
	harness.Must(t, err)
	if lines := strings.ReplaceAll(string(text), "\n", ""); strings.Count(lines, "b") != 1 || !strings.HasSuffix(lines, "b") {
		t.Errorf("%s: they overlap: %s", name, lines[strings.Index(lines, "b"):])
	}
}

// Whatever ends the lease, the command has ended before another holder gets the lock.
func TestRunLost(t *testing.T) {
	t.Parallel()
	server := runServer(t)
	proxy := fixtures.NewProxy(t, server.Address())
	hanging := fixtures.NewProxy(t, server.Address())
	folder := t.TempDir()
	t.Run("cut", func(t *testing.T) {
		t.Parallel()
		file := filepath.Join(folder, "cut")
		r := holderOf(t, server, proxy.Addr(), "cut", file)
		proxy.Cut()
		successor(t, server, "cut", file)
		r.lapses()
		r.prints("term")
	})
	t.Run("hang", func(t *testing.T) {
		t.Parallel()
		file := filepath.Join(folder, "hang")
		r := holderOf(t, server, hanging.Addr(), "hang", file, "--grace", "1h")
		hanging.Hang()
		successor(t, server, "hang", file)
		r.lapses()
		r.prints("term")
	})
	// A stopped supervisor cannot renew; the guard knows when the lease ends.
	t.Run("stop", func(t *testing.T) {
		t.Parallel()
		file := filepath.Join(folder, "stop")
		r := holderOf(t, server, server.Address(), "stop", file)
		r.signal(syscall.SIGSTOP)
		successor(t, server, "stop", file)
		r.prints("term")
		r.eventually("nothing of the command is left", func() bool { return len(r.commandStates()) == 0 })
		r.signal(syscall.SIGCONT)
		r.ends(123, "")
	})
	// If the guard alone is stopped, it goes on when the supervisor learns of the loss.
	t.Run("stop guard", func(t *testing.T) {
		t.Parallel()
		file := filepath.Join(folder, "stop-guard")
		own := fixtures.NewProxy(t, server.Address())
		r := holderOf(t, server, own.Addr(), "stop guard", file)
		harness.Must(t, syscall.Kill(r.helperPid("guard"), syscall.SIGSTOP))
		own.Cut()
		successor(t, server, "stop guard", file)
		r.lapses()
	})
	// Without the guard the command runs for as long as the supervisor is stopped: nobody is
	// there to end it. Then it ends before it does anything else.
	t.Run("stop both", func(t *testing.T) {
		t.Parallel()
		file := filepath.Join(folder, "stop both")
		r := holderOf(t, server, server.Address(), "stop both", "'"+file+"'")
		harness.Must(t, syscall.Kill(r.helperPid("guard"), syscall.SIGSTOP))
		r.signal(syscall.SIGSTOP)
		shell(t, server.Address(), "stop both", "echo b").ends(0)
		harness.Must(t, syscall.Kill(r.helperPid("guard"), syscall.SIGCONT))
		r.eventually("nothing of the command is left", func() bool { return len(r.commandStates()) == 0 })
		r.signal(syscall.SIGCONT)
		r.ends(123, "")
	})
	t.Run("kill", func(t *testing.T) {
		t.Parallel()
		file := filepath.Join(folder, "kill")
		r := holderOf(t, server, server.Address(), "kill", file)
		r.signal(syscall.SIGKILL)
		successor(t, server, "kill", file)
		r.ends(-1)
		r.prints("term")
	})
}

// When the claim is revoked, the command is stopped, with a message that has the reason.
func TestRunRevoked(t *testing.T) {
	t.Parallel()
	server := runServer(t)
	client := server.Client(t)
	revoke := func(r *runner, name string, claims func(*models.Queue) []*models.Claim) {
		q, err := client.GetQueue(t.Context(), &models.GetQueueRequest{Resource: name})
		harness.Must(t, err)
		_, err = client.UpdateClaim(t.Context(), &models.UpdateClaimRequest{
			Id: claims(q)[0].GetId(), Status: models.Status_STATUS_REVOKED, Reason: "a fire drill",
		})
		harness.Must(t, err)
	}
	t.Run("polite", func(t *testing.T) {
		t.Parallel()
		r := shell(t, server.Address(), "polite", `trap "echo tidy; exit 0" TERM; echo ready; while :; do sleep 0.05; done`, "--ttl", "30s")
		r.prints("ready")
		revoke(r, "polite", (*models.Queue).GetHolders)
		r.ends(123, `"polite"`, "revoked (a fire drill)")
		r.prints("tidy")
	})
	t.Run("deaf", func(t *testing.T) {
		t.Parallel()
		r := shell(t, server.Address(), "deaf", `trap "echo heard" TERM; echo ready; while :; do sleep 0.05; done`, "--ttl", "30s", "--grace", "4s")
		r.prints("ready")
		revoke(r, "deaf", (*models.Queue).GetHolders)
		r.ends(123, "revoked")
		r.prints("heard")
	})
	t.Run("waiting", func(t *testing.T) {
		t.Parallel()
		harness.Create(t, client, "waiting", "holder", time.Hour)
		r := shell(t, server.Address(), "waiting", "echo never")
		r.queue(client, "waiting", 1, 1)
		revoke(r, "waiting", (*models.Queue).GetWaiters)
		r.ends(124, "revoked (a fire drill)")
		if r.out.String() != "" {
			t.Error("the command was run")
		}
	})
}

// An outage shorter than the lease loses nothing; a longer one loses the lock.
func TestRunOutage(t *testing.T) {
	t.Parallel()
	server := runServer(t)
	kept := shell(t, server.Address(), "kept", "echo ready; exec sleep 1000", "--ttl", "2m")
	lost := shell(t, server.Address(), "lost", "echo ready; exec sleep 1000", "--ttl", "10s", "--grace", "1h")
	kept.prints("ready")
	lost.prints("ready")
	server.Kill()
	lost.lapses()
	harness.Must(t, server.Start())
	shell(t, server.Address(), "lost", "true").ends(0)
	kept.signal(syscall.SIGTERM)
	kept.ends(143)
	unheld(t, server.Client(t), "kept")
}

// A guard whose lease is over when it is to start the command, because it waited for its turn, the supervisor was stopped or the machine asleep,
// starts it when the lease has been renewed, and otherwise not at all. A signal to stop that comes before stops it then.
func TestGuardBehindLease(t *testing.T) {
	t.Parallel()
	const over, later = 1, 1 << 62 // nanoseconds since the boot
	for name, test := range map[string]struct {
		next        []map[string]any
		runs, stops bool
	}{
		"renewed": {[]map[string]any{{"Term": later, "Kill": later}}, true, false},
		"lost":    {[]map[string]any{{"Stop": true}}, false, false},
		"stopped": {[]map[string]any{{"Signal": syscall.SIGTSTP}, {"Term": later, "Kill": later}}, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			orders, give, err := os.Pipe()
			harness.Must(t, err)
			read, reports, err := os.Pipe()
			harness.Must(t, err)
			released, release, err := os.Pipe()
			harness.Must(t, err)
			defer release.Close()
			file := filepath.Join(t.TempDir(), "ran")
			// The shell itself waits: one that is stopped while it starts a program may hang in vfork, and is not seen to stop.
			script := "read line; echo a >" + file
			guard := exec.Command(fixtures.LocketProgram(t), "run", "--guard=3,4,5,")
			goOn, err := guard.StdinPipe()
			harness.Must(t, err)
			if !test.stops {
				harness.Must(t, goOn.Close())
			}
			guard.Env = append(fixtures.CleanEnv(), "LOCKET_CONTEXT_FILE="+os.DevNull)
			guard.ExtraFiles = []*os.File{orders, reports, released}
			harness.Must(t, guard.Start())
			harness.Must(t, errors.Join(orders.Close(), reports.Close(), released.Close()))
			_, err = release.Write([]byte{0}) // at the end it does not wait for that
			harness.Must(t, err)
			out := json.NewEncoder(give)
			harness.Must(t, out.Encode(map[string]any{
				"Command": map[string]any{"Path": []byte("/bin/sh"), "Words": [][]byte{[]byte("sh"), []byte("-c"), []byte(script)}},
				"Grace":   time.Minute, "Term": over, "Kill": over,
			}))
			for _, o := range test.next {
				harness.Must(t, out.Encode(o))
			}
			told := ""
			for in := json.NewDecoder(read); ; {
				var report json.RawMessage
				if err = in.Decode(&report); err != nil {
					break
				}
				told += string(report)
				if strings.Contains(string(report), "Stopped") {
					harness.Must(t, errors.Join(goOn.Close(), out.Encode(map[string]any{"Signal": syscall.SIGCONT})))
				}
			}
			if errors.Is(err, io.EOF) {
				err = nil
			}
			harness.Must(t, errors.Join(err, give.Close(), guard.Wait()))
			_, err = os.Stat(file)
			ran, tells := err == nil, func(what string) bool { return strings.Contains(told, what) }
			if ran != test.runs || tells("Pid") != test.runs || tells("Stopped") != test.stops || tells("Lapsed") {
				t.Errorf("it has run: %t; the guard reports %s", ran, told)
			}
		})
	}
}
