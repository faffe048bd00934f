package run

import (
	"bufio"
	"crypto/rand"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// cgroup is the path of the control group (version 2) of a command, "" if it has none. The command is born in it, and so is all that comes
// from it: Kill reaches them all at once, however they fork and whatever user they have become, unless they moved to another group.
type cgroup string

// makeCgroup makes a control group below this process's own. It returns "" where that is not possible: no version 2, a kernel before 5.14,
// or a group that was not delegated to this user.
func makeCgroup() cgroup {
	parent := ownCgroup()
	if parent == "" {
		return ""
	}
	removeLeft(parent)
	c := cgroup(filepath.Join(parent, cgroupPrefix+rand.Text()))
	if os.Mkdir(string(c), 0o755) != nil {
		return ""
	}
	if _, err := os.Stat(c.file("cgroup.kill")); err != nil {
		c.remove()
		return ""
	}
	return c
}

const cgroupPrefix = "locket-run-"

// removeLeft removes empty groups of earlier runs that were killed together with their helpers. A group of the last minute may belong to a
// command that is about to start.
func removeLeft(parent string) {
	groups, _ := filepath.Glob(filepath.Join(parent, cgroupPrefix+"*"))
	for _, group := range groups {
		if info, err := os.Stat(group); err == nil && time.Since(info.ModTime()) > time.Minute {
			_ = syscall.Rmdir(group)
		}
	}
}

// ownCgroup returns the folder of the control group of this process, "" if none is mounted.
func ownCgroup() string {
	groups, _ := os.ReadFile("/proc/self/cgroup")
	for line := range strings.Lines(string(groups)) {
		if path, ok := strings.CutPrefix(strings.TrimSpace(line), "0::"); ok {
			return mountedCgroup(path)
		}
	}
	return ""
}

// mountedCgroup returns the folder of a control group, "" if no mount shows it.
func mountedCgroup(path string) string {
	mounts, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return ""
	}
	defer mounts.Close()
	for lines := bufio.NewScanner(mounts); lines.Scan(); {
		// id parent device root point options... - type ... (see proc_pid_mountinfo(5))
		fields := strings.Fields(lines.Text())
		_, kind, _ := strings.Cut(lines.Text(), " - ")
		if len(fields) < 5 || !strings.HasPrefix(kind, "cgroup2 ") {
			continue
		}
		if below, err := filepath.Rel(fields[3], path); err == nil && below != ".." && !strings.HasPrefix(below, "../") {
			return filepath.Join(fields[4], below)
		}
	}
	return ""
}

func (c cgroup) file(name string) string { return filepath.Join(string(c), name) }

// start is syscall.ForkExec that puts the child into the group; without the group if the kernel refuses that.
func (c cgroup) start(path string, words []string, attr *syscall.ProcAttr) (pid int, err error) {
	if folder, err := os.Open(string(c)); err == nil {
		defer folder.Close()
		inGroup, sys := *attr, *attr.Sys
		sys.UseCgroupFD, sys.CgroupFD = true, int(folder.Fd())
		inGroup.Sys = &sys
		if pid, err := syscall.ForkExec(path, words, &inGroup); err == nil {
			return pid, nil
		}
	}
	return syscall.ForkExec(path, words, attr)
}

// kill kills all that is in the group, and reports whether the kernel does.
func (c cgroup) kill() bool {
	return c != "" && os.WriteFile(c.file("cgroup.kill"), []byte("1"), 0) == nil
}

// remove removes the group, which must be empty but for processes that are about to end.
func (c cgroup) remove() {
	for range 100 {
		if c.tryRemove() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// tryRemove removes the group if there is no process in it, and reports whether that is so.
func (c cgroup) tryRemove() bool { return c == "" || syscall.Rmdir(string(c)) != syscall.EBUSY }
