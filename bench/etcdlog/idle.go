package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// idle prints what clusters cost while nobody calls: processor time, memory, goroutines and bytes written.
func idle(l *lab) error {
	fmt.Println("| three nodes, idle | processor, % of a core, all processes | memory of a process, MiB | written, kB/s, all processes | threads of a process |")
	fmt.Println("| --- | ---: | ---: | ---: | ---: |")
	embedded := func(beat time.Duration) func(*cluster) error {
		return func(c *cluster) error {
			_, err := startAt("leader")(c, "-quiet", "-beat", beat.String())
			return err
		}
	}
	for _, one := range []struct {
		name  string
		start func(*cluster) error
	}{
		{"one member with a file log", func(c *cluster) error {
			c.etcds = nil
			return c.startMember("x", "-file", filepath.Join(c.folder, "log"), "-beat", "0")
		}},
		{"etcd 3.7 alone", func(c *cluster) error { return c.startEtcds(l.program("etcd-3.7")) }},
		{"embedded, no beats", embedded(0)},
		{"embedded, a beat each second", embedded(time.Second)},
		{"embedded, four beats each second", embedded(250 * time.Millisecond)},
		{"etcd 3.7 and a member beside it, four beats each second", func(c *cluster) error {
			_, err := startBeside("3.7")(c, "-quiet", "-beat", "250ms")
			return err
		}},
	} {
		row, err := l.rest(one.start)
		if err != nil {
			return fmt.Errorf("%s: %w", one.name, err)
		}
		fmt.Printf("| %s | %s |\n", one.name, row)
	}
	return nil
}

func (l *lab) rest(start func(*cluster) error) (string, error) {
	c, err := l.newCluster(3, tuning{100, 1000})
	if err != nil {
		return "", err
	}
	defer c.stop()
	if err := start(c); err != nil {
		return "", err
	}
	time.Sleep(3 * time.Second)
	period := max(l.duration(), 6*time.Second)
	spent, written, _ := c.processor(), c.written(), 0
	time.Sleep(period)
	spent, written = c.processor()-spent, c.written()-written
	first := c.all()[0].cmd.Process.Pid
	memory, errMemory := statusOf(first, "VmRSS:")
	threads, errThreads := statusOf(first, "Threads:")
	return fmt.Sprintf("%.1f | %.0f | %.1f | %.0f", 100*spent.Seconds()/period.Seconds(), memory/1024, written/1024/period.Seconds(), threads),
		errors.Join(errMemory, errThreads)
}

// written returns how many bytes all processes have written to disks.
func (c *cluster) written() (sum float64) {
	for _, p := range c.all() {
		bytes, _ := number(fmt.Sprintf("/proc/%d/io", p.cmd.Process.Pid), "write_bytes:")
		sum += bytes
	}
	return sum
}

func statusOf(pid int, name string) (float64, error) {
	return number(fmt.Sprintf("/proc/%d/status", pid), name)
}

// number returns the value of a line of a file in /proc.
func number(file, name string) (value float64, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if rest, found := strings.CutPrefix(line, name); found {
			_, err = fmt.Sscan(rest, &value)
			return value, err
		}
	}
	return 0, fmt.Errorf("%s has no %s", file, name)
}
