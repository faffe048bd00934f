package run_test

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/locket-service/locket/tests/harness"
)

// family is a command with children, grandchildren and daemons that ignore TERM.
const family = `trap "" TERM; sleep 1000 & setsid sh -c 'sleep 1000 & sleep 1000' & sh -c 'sleep 1000; :' & (sleep 1000 &); echo ready; wait`

// Any one or two of the supervisor, the reaper and the guard may be killed at once: the remaining ones end all
// processes of the command, releases the lock, and leaves no control group. Whether the command
// has a control group depends on this machine; TestRunKilledTogetherChaos tests both.
func TestRunKilledTogether(t *testing.T) {
	t.Parallel()
	killTogether(t, func(*runner) {}, func(string) bool { return true })
}

// killTogether runs commands, prepared, whose control group ("" for none) must be the right one, and
// kills their supervisors.
func killTogether(t *testing.T, prepare func(r *runner), right func(cgroup string) bool) {
	t.Helper()
	server := runServer(t)
	for _, victims := range [][]string{{"reaper"}, {"guard"}, {"supervisor", "guard"}, {"supervisor", "reaper"}, {"reaper", "guard"}} {
		t.Run(fmt.Sprint(victims), func(t *testing.T) {
			t.Parallel()
			r := newRunner(t, server.Address(), t.Name(), "--grace", "200ms", "--ttl", "1h", "--", "sh", "-c", family)
			prepare(r)
			r.start().prints("ready")
			folder := r.cgroupFolder()
			if !right(folder) {
				t.Fatalf("the control group is %q", folder)
			}
			r.killTogether(victims)
			if victims[0] == "supervisor" {
				r.ends(-1)
			} else {
				r.ends(125, "has died, so the command was")
			}
			if folder != "" {
				r.eventually("the control group is removed", func() bool {
					_, err := os.Stat(folder)
					return os.IsNotExist(err)
				})
			}
			r.queue(server.Client(t), t.Name(), 0, 0) // a survivor has released it
		})
	}
}

// killTogether kills some of the processes of a locket run; none can act before all are
// killed.
func (r *runner) killTogether(victims []string) {
	r.t.Helper()
	var pids []int
	for _, victim := range victims {
		pid := r.cmd.Process.Pid
		if victim != "supervisor" {
			pid = r.helperPid(victim)
		}
		harness.Must(r.t, syscall.Kill(pid, syscall.SIGSTOP))
		pids = append(pids, pid)
	}
	for _, pid := range pids {
		harness.Must(r.t, syscall.Kill(pid, syscall.SIGKILL))
	}
}

// cgroupFolder returns the control group of the command, "" if it has none of its own.
func (r *runner) cgroupFolder() string {
	r.t.Helper()
	folder := groupOf(r.helperPid("guard"))
	if folder != "" {
		r.eventually("the family is in "+folder, func() bool {
			members, err := os.ReadFile(folder + "/cgroup.procs")
			return err == nil && bytes.Count(members, []byte("\n")) >= 7
		})
	}
	return folder
}

// A supervisor, or one of its helpers, is killed after the command has ended and before it has released the lock. A
// survivor releases it.
func TestRunKilledBeforeRelease(t *testing.T) {
	t.Parallel()
	server := runServer(t)
	client := server.Client(t)
	for _, test := range []struct{ first, second string }{{"", "command"}, {"", "guard"}, {"reaper", "command"}} {
		name := strings.TrimSpace(test.first + " " + test.second)
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := shell(t, server.Address(), name, "echo $$ ready; exec sleep 1000", "--ttl", "1h")
			r.prints("ready")
			command := 0
			_, err := fmt.Sscan(r.out.String(), &command)
			harness.Must(t, err)
			victims := map[string]int{"guard": r.helperPid("guard"), "reaper": r.helperPid("reaper"), "command": command}
			reports := r.reports(victims["guard"])
			defer reports.Close()
			unread := func() int {
				n, err := unix.IoctlGetInt(int(reports.Fd()), unix.TIOCINQ)
				harness.Must(t, err)
				return n
			}
			isGone := func(pid int) bool { return strings.Trim(stateOf(pid), "Z") == "" }
			r.eventually("it knows that the command runs", func() bool { return unread() == 0 })
			r.signal(syscall.SIGSTOP)
			r.eventually("it is stopped", func() bool { return stateOf(r.cmd.Process.Pid) == "T" })
			if test.first != "" {
				harness.Must(t, syscall.Kill(victims[test.first], syscall.SIGKILL))
				r.eventually("it is gone", func() bool { return isGone(victims[test.first]) })
			}
			harness.Must(t, syscall.Kill(victims[test.second], syscall.SIGKILL))
			r.eventually("its helpers have nothing more to do", func() bool {
				idle := func(pid int) bool { return isGone(pid) || stateOf(pid) == "S" }
				return isGone(command) && (unread() > 0 || isGone(victims["guard"]) && isGone(victims["reaper"])) && idle(victims["guard"]) && idle(victims["reaper"])
			})
			r.queue(client, name, 1, 0)
			r.signal(syscall.SIGKILL)
			r.ends(-1)
			r.queue(client, name, 0, 0)
		})
	}
}

// reports returns the pipe of the reports that a guard sends to its supervisor.
func (r *runner) reports(guard int) *os.File {
	r.t.Helper()
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", guard))
	harness.Must(r.t, err)
	_, value, _ := strings.Cut(string(line), "\x00--guard=")
	pipe, err := os.Open(fmt.Sprintf("/proc/%d/fd/%s", guard, strings.Split(value, ",")[1]))
	harness.Must(r.t, err)
	return pipe
}
