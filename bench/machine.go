package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// machine describes the machine and the programs of the measurements.
type machine struct {
	Processor string
	Cores     int
	MemoryMiB float64
	Kernel    string
	Commit    string            // of this module
	Versions  map[string]string // of the installed programs
	Warnings  []string          // reasons to distrust the figures
}

// describeMachine measures for a second how busy the machine already is.
func describeMachine(folder string) machine {
	m := machine{Cores: runtime.NumCPU(), Versions: map[string]string{"Go": strings.TrimPrefix(runtime.Version(), "go")}}
	m.Processor = firstLine("/proc/cpuinfo", "model name")
	m.Kernel = firstLine("/proc/sys/kernel/osrelease", "")
	if total, err := number("/proc/meminfo", "MemTotal"); err == nil {
		m.MemoryMiB = total / 1024
	}
	m.Commit = said(exec.Command("git", "rev-parse", "--short=12", "HEAD"))
	if said(exec.Command("git", "status", "--porcelain", "--untracked-files=no")) != "" {
		m.Commit += " with changes"
	}
	for name, text := range map[string]string{
		"Redis":   said(exec.Command("redis-server", "--version")),
		"MariaDB": said(exec.Command("mariadbd", "--version")),
	} {
		if text != "" {
			m.Versions[name] = version(text)
		}
	}
	if jars, _ := filepath.Glob(filepath.Join(filepath.Dir(zookeeperJar), "zookeeper-[0-9]*.jar")); len(jars) > 0 {
		m.Versions["ZooKeeper"] = version(filepath.Base(jars[0]))
	}
	m.Warnings = warnings(folder)
	return m
}

// said returns the output of a program, "" if it is not installed.
func said(cmd *exec.Cmd) string {
	out, err := cmd.Output()
	if err != nil {
		return ""
	}
	return string(bytes.TrimSpace(out))
}

// version returns the first version number in a text.
func version(text string) string {
	for _, word := range strings.FieldsFunc(text, func(r rune) bool { return r != '.' && (r < '0' || r > '9') }) {
		if word = strings.Trim(word, "."); strings.Count(word, ".") > 0 {
			return word
		}
	}
	return "of unknown version"
}

// firstLine returns the first line of a file, or what follows a name there.
func firstLine(file, name string) string {
	text, _ := os.ReadFile(file)
	for line := range strings.Lines(string(text)) {
		if rest, found := strings.CutPrefix(line, name); found {
			return strings.TrimSpace(strings.TrimLeft(rest, "\t :"))
		}
	}
	return "unknown"
}

// The magic numbers of file systems in memory.
const tmpfs, ramfs = 0x01021994, 0x858458f6

// mostBusy is the maximum share of processor time that may be in use before.
const mostBusy = 0.05

func warnings(folder string) (found []string) {
	if share, err := inUse(time.Second); err == nil && share > mostBusy {
		found = append(found, fmt.Sprintf("the machine is not idle: %.0f %% of its processors were in use before the benchmark began", 100*share))
	}
	var system syscall.Statfs_t
	if err := syscall.Statfs(folder, &system); err == nil && (system.Type == tmpfs || system.Type == ramfs) {
		found = append(found, folder+" is in memory, where commits cost nothing: name a folder on a disk with -folder")
	}
	return found
}

// inUse measures the share of processor time in use.
func inUse(watch time.Duration) (float64, error) {
	idle, all, err := ticks()
	if err != nil {
		return 0, err
	}
	time.Sleep(watch)
	idleThen, allThen, err := ticks()
	if err != nil || allThen == all {
		return 0, err
	}
	return 1 - float64(idleThen-idle)/float64(allThen-all), nil
}

// ticks returns how much time the processors have been idle or waiting for disks, and how much in total.
func ticks() (idle, all int, err error) {
	for i, field := range strings.Fields(firstLine("/proc/stat", "cpu ")) {
		n, err := strconv.Atoi(field)
		if err != nil {
			return 0, 0, err
		}
		if i == 3 || i == 4 {
			idle += n
		}
		if i < 8 { // the other fields, time of guests, are included in these
			all += n
		}
	}
	return idle, all, nil
}
