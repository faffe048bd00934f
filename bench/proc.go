package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// clockTick is the unit of processor time in /proc, on every Linux that Go supports.
const clockTick = 10 * time.Millisecond

// processorTime returns how much processor time a process has used.
func processorTime(pid int) (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(text), ") ") // it follows a name in parentheses
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		return 0, fmt.Errorf("/proc/%d/stat is too short", pid)
	}
	user, err := strconv.Atoi(fields[11])
	if err != nil {
		return 0, err
	}
	system, err := strconv.Atoi(fields[12])
	return time.Duration(user+system) * clockTick, err
}

// processorTime returns how much processor time several processes have used.
func (l list) processorTime() (all time.Duration, err error) {
	for _, text := range l {
		pid, err := strconv.Atoi(text)
		if err != nil {
			return 0, err
		}
		spent, err := processorTime(pid)
		if err != nil {
			return 0, err
		}
		all += spent
	}
	return all, nil
}

// number returns the value of a line "name: number" in a file of /proc.
func number(file, name string) (float64, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if value, found := strings.CutPrefix(line, name+":"); found {
			return strconv.ParseFloat(strings.Fields(value)[0], 64)
		}
	}
	return 0, fmt.Errorf("%s has no %s", file, name)
}

// mebibytes returns a value that /proc/PID/status has in kB: VmRSS is the memory of the process, VmHWM its maximum
// since resetPeak.
func mebibytes(pid int, name string) (float64, error) {
	kilobytes, err := number(fmt.Sprintf("/proc/%d/status", pid), name)
	return kilobytes / 1024, err
}

func resetPeak(pid int) error {
	return os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0)
}

// writtenBytes returns how many bytes a process has written to disks.
func writtenBytes(pid int) (float64, error) {
	return number(fmt.Sprintf("/proc/%d/io", pid), "write_bytes")
}

// usage has the resources that processes have used so far, and their memory.
type usage struct {
	spent, spentBeside time.Duration
	bytes, resident    float64
}

func (f loadFlags) usage() (u usage, err error) {
	if u.spent, err = f.pids.processorTime(); err != nil {
		return u, err
	}
	if u.spentBeside, err = f.beside.processorTime(); err != nil {
		return u, err
	}
	for _, text := range f.pids {
		pid, err := strconv.Atoi(text)
		if err != nil {
			return u, err
		}
		bytes, err := writtenBytes(pid)
		if err != nil {
			return u, err
		}
		resident, err := mebibytes(pid, "VmRSS")
		if err != nil {
			return u, err
		}
		u.bytes, u.resident = u.bytes+bytes, u.resident+resident
	}
	return u, nil
}

// watch measures the servers' use of resources for a while, and prints it as JSON.
func (f loadFlags) watch() error {
	before, err := f.usage()
	if err != nil {
		return err
	}
	time.Sleep(f.duration)
	after, err := f.usage()
	if err != nil {
		return err
	}
	seconds := f.duration.Seconds()
	return json.NewEncoder(os.Stdout).Encode(result{
		busy: 100 * (after.spent - before.spent).Seconds() / seconds, busyBeside: 100 * (after.spentBeside - before.spentBeside).Seconds() / seconds,
		written: (after.bytes - before.bytes) / seconds, memory: after.resident,
	})
}
