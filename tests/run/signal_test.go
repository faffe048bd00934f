package run_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/tests/harness"
)

// signalNames has the signals that are passed on, as a shell names them.
var signalNames = map[syscall.Signal]string{
	syscall.SIGINT: "INT", syscall.SIGTERM: "TERM", syscall.SIGHUP: "HUP", syscall.SIGQUIT: "QUIT",
	syscall.SIGUSR1: "USR1", syscall.SIGUSR2: "USR2", syscall.SIGWINCH: "WINCH", syscall.SIGCONT: "CONT",
}

// Signals reach the command, and all of its group.
func TestRunSignals(t *testing.T) {
	t.Parallel()
	server := runServer(t)
	client := server.Client(t)
	for sig, name := range signalNames {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := shell(t, server.Address(), name, fmt.Sprintf(`
				trap "echo got; exit 42" %[1]s
				sh -c 'trap "echo child; exit" %[1]s; echo born; while :; do sleep 0.05; done'
				while :; do sleep 0.05; done`, name))
			r.prints("born")
			r.signal(sig)
			r.ends(42)
			if out := r.out.String(); !strings.Contains(out, "child\n") || !strings.Contains(out, "got\n") {
				t.Errorf("it says %q", out)
			}
			unheld(t, client, name)
		})
		if sig == syscall.SIGWINCH || sig == syscall.SIGCONT { // which end nothing
			continue
		}
		t.Run("dies of "+name, func(t *testing.T) {
			t.Parallel()
			r := shell(t, server.Address(), "dies of "+name, "ulimit -c 0; echo ready; exec sleep 1000")
			r.prints("ready")
			r.signal(sig)
			r.ends(128 + int(sig))
			if r.stderr.String() != "" {
				t.Errorf("it complains: %s", &r.stderr)
			}
			unheld(t, client, "dies of "+name)
		})
		t.Run("waits for "+name, func(t *testing.T) {
			t.Parallel()
			key := "waits for " + name
			harness.Create(t, client, key, name, time.Hour)
			r := shell(t, server.Address(), key, "echo never")
			r.queue(client, key, 1, 1)
			r.signal(syscall.SIGWINCH) // it has no effect
			r.signal(syscall.SIGCONT)
			r.signal(sig)
			r.ends(128 + int(sig))
			if r.out.String()+r.stderr.String() != "" {
				t.Errorf("it says %q, %q", &r.out, &r.stderr)
			}
			r.queue(client, key, 1, 0)
		})
	}
}

// Without a server, too, a signal ends the wait.
func TestRunSignalWithoutServer(t *testing.T) {
	t.Parallel()
	r := startRun(t, "127.0.0.1:1", "n", "--timeout", "100ms", "--", "true")
	r.eventually("it waits", func() bool { return r.stderr.String() != "" })
	r.signal(syscall.SIGTERM)
	r.ends(143)
}

// A command that is stopped by hand is continued by hand. Without a terminal only the command stops:
// the lock is kept.
func TestRunStopAndGo(t *testing.T) {
	t.Parallel()
	server := runServer(t)
	r := shell(t, server.Address(), "n", "echo ready; exec sleep 1000", "--ttl", "30s")
	r.prints("ready")
	r.signal(syscall.SIGTSTP)
	r.commandIsStopped()
	r.renews(server.Client(t), "n")
	r.commandIsStopped()
	r.signal(syscall.SIGCONT)
	r.eventually("the command goes on", func() bool { return !slices.Contains(r.commandStates(), "T") })
	r.signal(syscall.SIGTERM)
	r.ends(143)
}

// A command that has not begun when it is stopped begins stopped.
func TestRunStopAtStart(t *testing.T) {
	t.Parallel()
	server := runServer(t)
	var r *runner
	reaper, guard := 0, -1
	for guard != 0 { // the reaper was stopped too late
		r = shell(t, server.Address(), "n", "echo on; exec sleep 1000")
		for reaper = 0; reaper == 0; reaper = childOf(r.cmd.Process.Pid) { // without a pause: before it has started the guard
			select {
			case <-r.ended:
				t.Fatal("it has ended")
			default:
			}
		}
		harness.Must(t, syscall.Kill(reaper, syscall.SIGSTOP))
		r.eventually("its reaper is stopped", func() bool { return stateOf(reaper) == "T" })
		if guard = r.findHelper("guard"); guard != 0 {
			harness.Must(t, syscall.Kill(reaper, syscall.SIGCONT))
			r.signal(syscall.SIGTERM)
			r.ends(143)
		}
	}
	r.signal(syscall.SIGTSTP)
	harness.Must(t, syscall.Kill(reaper, syscall.SIGCONT))
	r.commandIsStopped()
	r.signal(syscall.SIGCONT)
	r.prints("on\n")
	r.signal(syscall.SIGTERM)
	r.ends(143)
}

// renews waits for a renewal.
func (r *runner) renews(client models.LocketClient, name string) {
	r.t.Helper()
	version := func() uint64 {
		q, err := client.GetQueue(r.t.Context(), &models.GetQueueRequest{Resource: name})
		harness.Must(r.t, err)
		if len(q.GetHolders()) != 1 {
			r.t.Fatalf("it does not hold %q: %v", name, q)
		}
		return q.GetHolders()[0].GetVersion()
	}
	before := version()
	r.eventually("it renews", func() bool { return version() > before })
}

// stateOf returns the state of a process as Linux reports it: T is stopped.
func stateOf(pid int) string {
	stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, _ := strings.Cut(string(stat), ") ")
	state, _, _ := strings.Cut(rest, " ")
	return state
}

// childOf returns a child of a process, 0 if it has none.
func childOf(pid int) (child int) {
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, file := range files {
		if text, _ := os.ReadFile(file); len(text) > 0 {
			_, _ = fmt.Sscan(string(text), &child)
		}
	}
	return child
}

// commandStates returns the states of the command's processes.
func (r *runner) commandStates() (states []string) {
	for _, pid := range marked(r.t, r.mark) {
		if pid != r.cmd.Process.Pid && pid != r.findHelper("guard") && pid != r.findHelper("reaper") {
			states = append(states, stateOf(pid))
		}
	}
	return states
}

// commandIsStopped waits until the command is stopped, whose supervisor must not be.
func (r *runner) commandIsStopped() {
	r.t.Helper()
	r.eventually("the command is stopped", func() bool { return slices.Equal(slices.Compact(r.commandStates()), []string{"T"}) })
	if stateOf(r.cmd.Process.Pid) == "T" {
		r.t.Error("it stopped itself, and renews no more")
	}
}

// Signals that were ignored at the start stay ignored.
func TestRunNohup(t *testing.T) {
	t.Parallel()
	server := runServer(t)
	r := newRunner(t, server.Address(), "n", "--", "sh", "-c", "kill -HUP $$; kill -INT $$; echo ready; exec sleep 1000")
	r.cmd.Args = append([]string{"sh", "-c", `trap "" HUP INT; exec "$@"`, "sh", r.cmd.Path}, r.cmd.Args[1:]...)
	r.cmd.Path = "/bin/sh"
	r.start().prints("ready")
	r.signal(syscall.SIGHUP)
	r.signal(syscall.SIGINT)
	time.Sleep(300 * time.Millisecond) // real time: if they are not ignored, it ends meanwhile
	r.queue(server.Client(t), "n", 1, 0)
	r.signal(syscall.SIGTERM)
	r.ends(143)
}

// After TERM the command has the time of --grace, and no more. Its own status counts.
func TestRunGrace(t *testing.T) {
	t.Parallel()
	server := runServer(t)
	const deaf = `trap "echo heard" TERM; echo ready; while :; do sleep 0.05; done`
	for name, test := range map[string]struct {
		script, grace string
		status        int
		atLeast       time.Duration
	}{
		"polite":   {`trap "sleep 0.5; exit 0" TERM; echo ready; while :; do sleep 0.05; done`, "1m", 0, 500 * time.Millisecond},
		"deaf":     {deaf, "1s", 137, time.Second},
		"at once":  {deaf, "0", 137, 0},
		"a child":  {`sh -c 'trap "" TERM; echo ready; sleep 1000' & wait`, "500ms", 143, 500 * time.Millisecond},
		"stopped":  {`echo ready; kill -STOP $$; exec sleep 1000`, "1m", 143, 0},
		"a daemon": {`setsid sh -c 'trap "" TERM; echo ready; sleep 1000' & wait`, "500ms", 143, 500 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := shell(t, server.Address(), name, test.script, "--grace", test.grace)
			r.prints("ready")
			begin := time.Now()
			r.signal(syscall.SIGTERM)
			r.ends(test.status)
			if took := time.Since(begin); took < test.atLeast { // real time: on no machine earlier
				t.Errorf("it took %s", took)
			}
			unheld(t, server.Client(t), name)
		})
	}
}

// The lock is held as long as anything of the command is left, and that is ended.
func TestRunLeftovers(t *testing.T) {
	t.Parallel()
	server := runServer(t)
	for name, script := range map[string]string{
		"group":    `sleep 1000 & sleep 1000 & exit 5`,
		"daemon":   `setsid sleep 1000 & (setsid sh -c 'sleep 1000 & sleep 1000' &) ; exit 5`,
		"deaf":     `(trap "" TERM; sleep 1000; sleep 1000) & exit 5`,
		"children": `(trap "" TERM; while :; do sleep 0.01 & done) & sleep 0.2; exit 5`,
		"stopped":  `sleep 1000 & kill -STOP $!; exit 5`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := shell(t, server.Address(), name, script, "--grace", "500ms")
			if status := r.wait(); status != 5 {
				t.Errorf("status %d", status)
			}
			if left := marked(r.t, r.mark); len(left) > 0 {
				t.Errorf("%d processes are left", len(left))
			}
			unheld(t, server.Client(t), name)
		})
	}
}

// Processes that the command has left may end in their own time while the lock is held.
func TestRunLeftoverTidiesUp(t *testing.T) {
	t.Parallel()
	server := runServer(t)
	file := filepath.Join(t.TempDir(), "file")
	r := newRunner(t, server.Address(), "n", "--", "sh", "-c", `(trap "sleep 0.3; echo tidy >>`+file+`; exit" TERM; echo ready; while :; do sleep 0.05; done) & read line; exit 0`)
	end, err := r.cmd.StdinPipe()
	harness.Must(t, err)
	r.start().prints("ready")
	next := shell(t, server.Address(), "n", "echo next >>"+file)
	next.queue(server.Client(t), "n", 1, 1)
	harness.Must(t, end.Close())
	next.ends(0)
	r.ends(0)
	if text, err := os.ReadFile(file); string(text) != "tidy\nnext\n" || err != nil {
		t.Errorf("%q, %v", text, err)
	}
}

// When locket run or its guard is killed, the command ends.
func TestRunKilled(t *testing.T) {
	t.Parallel()
	server := runServer(t)
	client := server.Client(t)
	const family = `sleep 1000 & setsid sh -c 'sleep 1000 & sleep 1000' & sh -c 'sleep 1000; :' & (sleep 1000 &); echo ready; wait`
	t.Run("supervisor", func(t *testing.T) {
		t.Parallel()
		r := shell(t, server.Address(), "supervisor", `trap "echo tidy; exit" TERM; `+family, "--ttl", "1h")
		r.prints("ready")
		r.signal(syscall.SIGKILL)
		r.ends(-1)
		r.prints("tidy")
		r.queue(client, "supervisor", 0, 0) // the guard has released it
	})
	t.Run("supervisor, deaf", func(t *testing.T) {
		t.Parallel()
		r := shell(t, server.Address(), "supervisor, deaf", `trap "" TERM; `+family, "--ttl", "10s", "--grace", "1h")
		r.prints("ready")
		r.signal(syscall.SIGKILL)
		r.ends(-1) // at the end of its lease, or after an hour
	})
	t.Run("by the words of the command", func(t *testing.T) {
		t.Parallel()
		r := shell(t, server.Address(), "words", family+" # deploy-the-shop", "--ttl", "1h")
		r.prints("ready")
		var pids []int
		// A program that the shell starts has the words of the shell at first.
		r.eventually("locket run and the command, and no others, have the words of the command", func() bool {
			pids = slices.DeleteFunc(marked(r.t, r.mark), func(pid int) bool {
				line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
				return !bytes.Contains(line, []byte("deploy-the-shop"))
			})
			return len(pids) == 2
		})
		for _, pid := range pids {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		r.ends(-1)
		r.queue(client, "words", 0, 0)
	})
	t.Run("guard", func(t *testing.T) {
		t.Parallel()
		r := shell(t, server.Address(), "guard", `trap "" TERM; `+family)
		r.prints("ready")
		harness.Must(t, syscall.Kill(r.helperPid("guard"), syscall.SIGKILL))
		r.ends(125, "guards")
		unheld(t, client, "guard")
	})
	t.Run("both", func(t *testing.T) {
		t.Parallel()
		r := shell(t, server.Address(), "both", `echo ready; exec sleep 1000`)
		r.prints("ready")
		guard := r.helperPid("guard")
		r.signal(syscall.SIGSTOP)
		harness.Must(t, syscall.Kill(guard, syscall.SIGKILL))
		r.signal(syscall.SIGKILL)
		r.ends(-1)
	})
	t.Run("waiting", func(t *testing.T) {
		t.Parallel()
		harness.Create(t, client, "waiting", "holder", time.Hour)
		r := shell(t, server.Address(), "waiting", "echo never")
		r.queue(client, "waiting", 1, 1)
		r.signal(syscall.SIGKILL)
		r.ends(-1)
	})
}
