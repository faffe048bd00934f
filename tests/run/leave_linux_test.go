package run_test

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/locket-service/locket/tests/harness"
)

// With --leave what the command has started runs on, without the lock, when the command ends by itself. When the
// command is stopped, it ends.
func TestRunLeave(t *testing.T) {
	t.Parallel()
	server := runServer(t)
	client := server.Client(t)
	const daemon = `setsid sleep 1000 >/dev/null 2>&1 & echo $! > pid; `
	r := shell(t, server.Address(), "left", daemon+"exit 7", "--leave")
	if status := r.wait(); status != 7 {
		t.Errorf("status %d: %s", status, &r.stderr)
	}
	unheld(t, client, "left")
	if left := marked(r.mark); len(left) != 1 {
		t.Errorf("%d processes are left", len(left))
	}
	stopped := shell(t, server.Address(), "stopped", daemon+"echo ready; sleep 1000", "--leave")
	stopped.prints("ready")
	stopped.signal(syscall.SIGTERM)
	stopped.ends(143)
}

// The control group of a run that was killed with all its helpers is removed by a later one.
func TestRunRemovesLeftGroup(t *testing.T) {
	t.Parallel()
	server := runServer(t)
	r := newRunner(t, server.Address(), "n", "--", "sh", "-c", family)
	needCgroups(t, r)
	r.start().prints("ready")
	folder := r.cgroupFolder()
	r.killTogether([]string{"keeper", "reaper", "guard"})
	for _, pid := range marked(r.mark) {
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
