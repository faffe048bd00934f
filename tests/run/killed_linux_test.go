package run_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/tests/harness"
)

// family is a command with children, grandchildren and daemons that ignore TERM.
const family = `trap "" TERM; sleep 1000 & setsid sh -c 'sleep 1000 & sleep 1000' & sh -c 'sleep 1000; :' & (sleep 1000 &); echo ready; wait`

// Of the keeper, the reaper and the guard any two may be killed at once: the third one ends all
// that came from the command, releases the lock, and leaves no control group.
func TestRunKilledTogether(t *testing.T) {
	t.Parallel()
	server := runServer(t)
	for _, way := range []struct {
		name    string
		prepare func(t *testing.T, r *runner)
		grouped bool
	}{
		{"cgroup", needCgroups, true},
		{"no cgroup", hideCgroups, false},
	} {
		for _, victims := range [][]string{{"reaper"}, {"guard"}, {"keeper", "guard"}, {"keeper", "reaper"}, {"reaper", "guard"}} {
			t.Run(fmt.Sprint(way.name, victims), func(t *testing.T) {
				t.Parallel()
				r := newRunner(t, server.Address(), t.Name(), "--grace", "200ms", "--ttl", "1h", "--", "sh", "-c", family)
				way.prepare(t, r)
				r.start().prints("ready")
				folder := r.cgroupFolder()
				if (folder != "") != way.grouped {
					t.Fatalf("the control group is %q", folder)
				}
				r.killTogether(victims)
				if len(victims) == 1 && victims[0] == "reaper" { // the others can do without it
					r.signal(syscall.SIGTERM)
				}
				r.leavesNothing()
				if _, err := os.Stat(folder); folder != "" && !os.IsNotExist(err) {
					r.eventually("the control group is removed", func() bool {
						_, err := os.Stat(folder)
						return os.IsNotExist(err)
					})
				}
				r.queue(server.Client(t), t.Name(), 0, 0) // who is left has released it
			})
		}
	}
}

// killTogether kills some of the processes of a locket run, none of which can act before all
// are killed.
func (r *runner) killTogether(victims []string) {
	r.t.Helper()
	var pids []int
	for _, victim := range victims {
		pid := r.cmd.Process.Pid
		if victim != "keeper" {
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

// needCgroups skips the test where it is not certain that locket may make control groups.
func needCgroups(t *testing.T, _ *runner) {
	t.Helper()
	if os.Geteuid() != 0 || len(cgroupMounts(t)) == 0 {
		t.Skip("only root may surely make control groups, and only where version 2 is mounted")
	}
}

// hideCgroups runs locket where no control groups are mounted.
func hideCgroups(t *testing.T, r *runner) {
	t.Helper()
	mounts := cgroupMounts(t)
	if len(mounts) == 0 {
		return
	}
	if os.Geteuid() != 0 {
		t.Skip("only root may unmount the control groups, in a mount namespace")
	}
	script := ""
	for _, mount := range mounts {
		script += "umount -l '" + mount + "'; "
	}
	r.cmd.Args = append([]string{"sh", "-c", script + `exec "$0" "$@"`, fixtures.LocketProgram(t)}, r.cmd.Args[1:]...)
	shell, err := exec.LookPath("sh")
	harness.Must(t, err)
	r.cmd.Path = shell
	r.cmd.SysProcAttr.Unshareflags = syscall.CLONE_NEWNS
}

// cgroupMounts returns where control groups of version 2 are mounted.
func cgroupMounts(t *testing.T) (mounts []string) {
	t.Helper()
	text, err := os.ReadFile("/proc/self/mounts")
	harness.Must(t, err)
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); fields[2] == "cgroup2" {
			mounts = append(mounts, fields[1])
		}
	}
	return mounts
}
