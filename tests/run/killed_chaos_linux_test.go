//go:build chaos

package run_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/tests/harness"
)

// TestRunKilledTogetherChaos is TestRunKilledTogether with control groups and without. It needs
// root, and control groups of version 2.
func TestRunKilledTogetherChaos(t *testing.T) {
	mounts := needCgroups(t)
	t.Run("cgroup", func(t *testing.T) {
		killTogether(t, func(*runner) {}, func(cgroup string) bool { return cgroup != "" })
	})
	t.Run("no cgroup", func(t *testing.T) {
		killTogether(t, func(r *runner) { r.hideCgroups(mounts) }, func(cgroup string) bool { return cgroup == "" })
	})
}

// needCgroups returns where control groups are mounted.
func needCgroups(t *testing.T) (mounts []string) {
	t.Helper()
	mounts = cgroupMounts(t)
	if os.Geteuid() != 0 || len(mounts) == 0 {
		t.Fatal("run it as root on a machine with control groups of version 2: mount -t cgroup2 none /sys/fs/cgroup")
	}
	return mounts
}

// hideCgroups runs locket where no control groups are mounted.
func (r *runner) hideCgroups(mounts []string) {
	r.t.Helper()
	script := ""
	for _, mount := range mounts {
		script += "umount -l '" + mount + "'; "
	}
	r.cmd.Args = append([]string{"sh", "-c", script + `exec "$0" "$@"`, fixtures.LocketProgram(r.t)}, r.cmd.Args[1:]...)
	shell, err := exec.LookPath("sh")
	harness.Must(r.t, err)
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

// TestRunRemovesLeftGroupChaos: the control group of a run that was killed with all its helpers is removed by a later one.
func TestRunRemovesLeftGroupChaos(t *testing.T) {
	needCgroups(t)
	server := runServer(t)
	r := newRunner(t, server.Address(), "n", "--", "sh", "-c", family)
	r.start().prints("ready")
	folder := r.cgroupFolder()
	r.killTogether([]string{"supervisor", "reaper", "guard"})
	for _, pid := range marked(r.t, r.mark) {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	r.leavesNothing()
	if _, err := os.Stat(folder); err != nil {
		t.Fatalf("the group that is to be left: %v", err)
	}
	young := filepath.Join(filepath.Dir(folder), "locket-run-young")
	harness.Must(t, os.Mkdir(young, 0o755))
	defer os.Remove(young)
	long := time.Now().Add(-time.Hour)
	harness.Must(t, os.Chtimes(folder, long, long))
	shell(t, server.Address(), "next", "true").ends(0)
	if _, err := os.Stat(folder); !os.IsNotExist(err) {
		t.Errorf("%s is still there: %v", folder, err)
	}
	if _, err := os.Stat(young); err != nil {
		t.Errorf("a group that is about to be used: %v", err)
	}
}
