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

// usage has the resources that a process has used so far.
func usage(pid int) (spent time.Duration, bytes float64, err error) {
	if spent, err = processorTime(pid); err != nil {
		return 0, 0, err
	}
	bytes, err = writtenBytes(pid)
	return spent, bytes, err
}

// watch measures the server's use of resources for a while, and prints it as JSON.
func (f loadFlags) watch() error {
	spent, bytes, err := usage(f.pid)
	if err != nil {
		return err
	}
	time.Sleep(f.duration)
	spentThen, bytesThen, err := usage(f.pid)
	if err != nil {
		return err
	}
	resident, err := mebibytes(f.pid, "VmRSS")
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(result{
		busy: 100 * (spentThen - spent).Seconds() / f.duration.Seconds(), written: (bytesThen - bytes) / f.duration.Seconds(), memory: resident,
	})
}
