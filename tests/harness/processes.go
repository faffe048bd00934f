package harness

import (
	"os"
	"slices"
	"strconv"
	"testing"
)

// Processes returns the ids of all processes. It does not open their folders, as a glob pattern would, which takes far longer.
func Processes(t testing.TB) (pids []int) {
	t.Helper()
	folder, err := os.Open("/proc")
	Must(t, err)
	defer folder.Close()
	names, err := folder.Readdirnames(-1)
	Must(t, err)
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			pids = append(pids, pid)
		}
	}
	slices.Sort(pids)
	return pids
}
