package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// fault is an accident of one process. disk prepares its folder, if a disk is part of it.
type fault struct {
	name          string
	device        bool // the folder is on a disk of its own
	embedded      bool // etcd must be embedded
	begin, remedy func(*cluster, *process, *disk) error
}

const faultLasts = 5 * time.Second

var allFaults = []fault{
	{name: "kill -9", begin: kill, remedy: restart},
	{name: "SIGSTOP", begin: stop, remedy: resume},
	{
		name: "fsfreeze", device: true, begin: func(_ *cluster, _ *process, d *disk) error { return d.freeze(d.inner) },
		remedy: func(_ *cluster, _ *process, d *disk) error { return d.thaw() },
	},
	{
		name: "device hangs", device: true, begin: func(_ *cluster, _ *process, d *disk) error { return d.freeze(d.outer) },
		remedy: func(_ *cluster, _ *process, d *disk) error { return d.thaw() },
	},
	{name: "strace delays fdatasync", begin: delay, remedy: undelay},
	{name: "its collector is busy", embedded: true, begin: collect, remedy: func(*cluster, *process, *disk) error { return nil }},
}

func kill(_ *cluster, p *process, _ *disk) error {
	p.signal(syscall.SIGKILL)
	_ = p.cmd.Wait()
	return nil
}

func restart(c *cluster, p *process, _ *disk) error {
	return c.start(p)
}

func stop(_ *cluster, p *process, _ *disk) error {
	p.signal(syscall.SIGSTOP)
	return nil
}

func resume(_ *cluster, p *process, _ *disk) error {
	p.signal(syscall.SIGCONT)
	return nil
}

// collect makes the process allocate for five seconds.
func collect(_ *cluster, p *process, _ *disk) error {
	p.signal(syscall.SIGUSR1)
	return nil
}

var tracer *exec.Cmd

// delay delays each fdatasync of a process by a minute.
func delay(_ *cluster, p *process, _ *disk) error {
	tracer = exec.Command("strace", "-f", "-q", "-p", strconv.Itoa(p.cmd.Process.Pid), "-o", "/dev/null", "-e", "trace=fdatasync", "-e",
		"inject=fdatasync:delay_enter=60000000")
	return tracer.Start()
}

func undelay(*cluster, *process, *disk) error {
	_ = tracer.Process.Signal(syscall.SIGINT)
	_ = tracer.Wait()
	return nil
}

// disk is a filesystem in a file of another filesystem, so that either can be frozen. With the outer one frozen, the device of the inner one does
// not answer: writes end up in the cache, and fdatasync waits, as with a disk that hangs.
type disk struct {
	outer, inner, folder string
	frozen               string
}

func newDisk(folder string) (*disk, error) {
	d := &disk{folder: folder, outer: filepath.Join(folder, "outer"), inner: filepath.Join(folder, "inner")}
	for _, step := range []struct {
		image, at string
		size      int64
	}{{filepath.Join(folder, "outer.img"), d.outer, 700 << 20}, {filepath.Join(d.outer, "inner.img"), d.inner, 500 << 20}} {
		if err := os.MkdirAll(step.at, 0o700); err != nil {
			return nil, err
		}
		file, err := os.Create(step.image)
		if err != nil {
			return nil, err
		}
		if err := errors.Join(file.Truncate(step.size), file.Close()); err != nil {
			return nil, err
		}
		for _, command := range [][]string{{"mkfs.ext4", "-q", "-F", step.image}, {"mount", "-o", "loop", step.image, step.at}} {
			if out, err := exec.Command(command[0], command[1:]...).CombinedOutput(); err != nil {
				return nil, fmt.Errorf("%s: %w: %s", strings.Join(command, " "), err, out)
			}
		}
	}
	return d, nil
}

func (d *disk) freeze(mount string) error {
	d.frozen = mount
	return exec.Command("fsfreeze", "-f", mount).Run()
}

func (d *disk) thaw() error {
	if d.frozen == "" {
		return nil
	}
	defer func() { d.frozen = "" }()
	return exec.Command("fsfreeze", "-u", d.frozen).Run()
}

func (d *disk) remove() {
	_ = d.thaw()
	for _, mount := range []string{d.inner, d.outer} {
		for range 50 {
			if exec.Command("umount", mount).Run() == nil {
				break
			}
			time.Sleep(100 * time.Millisecond)
		}
	}
	_ = os.RemoveAll(d.folder)
}

// layout says where the decider is while etcd's leader has a fault.
type layout struct {
	name     string
	external bool
	// start starts everything and returns the process that gets the fault, and the name of the decider.
	start func(*cluster, *disk) (victim *process, decider string, err error)
}

var layouts = []layout{
	{"embedded, decider with etcd's leader", false, func(c *cluster, d *disk) (*process, string, error) { return embedded(c, d, "a", "a") }},
	{"embedded, decider elsewhere", false, func(c *cluster, d *disk) (*process, string, error) { return embedded(c, d, "b", "a") }},
	{"external 3.4", true, func(c *cluster, d *disk) (*process, string, error) { return external(c, d, "3.4") }},
	{"external 3.7", true, func(c *cluster, d *disk) (*process, string, error) { return external(c, d, "3.7") }},
}

const quickBeat = 20 * time.Millisecond // so that a gap is known to 20 ms

// embedded starts three members with an embedded etcd each. The leader of etcd, a, will have the fault.
func embedded(c *cluster, d *disk, decider, leader string) (*process, string, error) {
	victim := c.etcdNamed(leader)
	if d != nil {
		victim.folder = filepath.Join(d.inner, "data")
	}
	if err := c.startEmbedded(append(strings.Fields(c.lab.member), "-beat", quickBeat.String())...); err != nil {
		return nil, "", err
	}
	// Any of them may have raised the epoch.
	if err := errors.Join(c.lead(leader), c.choose(decider)); err != nil {
		return nil, "", err
	}
	return victim, decider, c.lead(leader)
}

// choose makes a member the decider: it pauses each other decider until another member raises the epoch.
func (c *cluster) choose(name string) error {
	for range 10 {
		now, err := c.decider()
		if err != nil || now == name {
			return err
		}
		for _, m := range c.members {
			if m.name == now {
				m.signal(syscall.SIGSTOP)
				time.Sleep(1500 * time.Millisecond)
				m.signal(syscall.SIGCONT)
				time.Sleep(2500 * time.Millisecond)
			}
		}
	}
	return fmt.Errorf("%s does not become the decider", name)
}

// decider returns the member that appended last.
func (c *cluster) decider() (string, error) {
	e, err := c.events.await(time.Now().UnixNano(), 20*time.Second, is("append"))
	return e.Who, err
}

// external starts three etcds and two members whose first choice is etcd's leader.
func external(c *cluster, d *disk, version string) (*process, string, error) {
	if d != nil {
		c.etcds[0].folder = filepath.Join(d.inner, "data")
	}
	if err := errors.Join(c.startEtcds(c.lab.program("etcd-"+version)), c.lead("a")); err != nil {
		return nil, "", err
	}
	common := append(strings.Fields(c.lab.member), "-endpoints", c.endpoints("a"), "-beat", quickBeat.String())
	if err := c.startMember("x", append(common, "-candidate")...); err != nil {
		return nil, "", err
	}
	if _, err := c.events.await(0, 10*time.Second, by("x", "append")); err != nil {
		return nil, "", err
	}
	err := c.startMember("y", common...)
	return c.etcds[0], "x", err
}

// faults prints, for each fault, how long no append succeeded and what the members did.
func faults(l *lab) error {
	match, err := regexp.Compile(l.match)
	if err != nil {
		return err
	}
	fmt.Println("| fault of etcd's leader | where | heartbeat/election | no append for, ms | epochs raised | old decider: mute, stood back, ms | says it leads, ms | after the remedy | log |")
	fmt.Println("| --- | --- | --- | ---: | ---: | --- | ---: | --- | --- |")
	for range l.rounds {
		for _, t := range []tuning{{100, 1000}, {50, 500}} {
			for _, f := range allFaults {
				for _, where := range layouts {
					name := fmt.Sprintf("%s, %s, %d/%d", f.name, where.name, t.heartbeat, t.election)
					if !match.MatchString(name) || where.name == "external 3.4" && l.etcd34 == "" || f.embedded && where.external {
						continue
					}
					row, err := l.fault(f, where, t)
					if err != nil {
						row = "failed: " + err.Error()
					}
					fmt.Printf("| %s | %s | %d/%d | %s |\n", f.name, where.name, t.heartbeat, t.election, row)
				}
			}
		}
	}
	return nil
}

func (l *lab) fault(f fault, where layout, t tuning) (string, error) {
	c, err := l.newCluster(3, t)
	if err != nil {
		return "", err
	}
	defer c.stop()
	var d *disk
	if f.device {
		if d, err = newDisk(filepath.Join(c.folder, "disk")); err != nil {
			return "", err
		}
		defer func() { _ = d.thaw(); c.stop(); d.remove() }()
	}
	victim, decider, err := where.start(c, d)
	if err != nil {
		return "", err
	}
	time.Sleep(time.Second)
	if now, err := c.decider(); err != nil || now != decider {
		return "", fmt.Errorf("%q decides, not %s: %w", now, decider, err)
	}
	begin := time.Now().UnixNano()
	if err := f.begin(c, victim, d); err != nil {
		return "", err
	}
	time.Sleep(faultLasts)
	middle := time.Now().UnixNano()
	if err := f.remedy(c, victim, d); err != nil {
		return "", err
	}
	time.Sleep(3 * time.Second)
	verdict, err := c.verify()
	if err != nil {
		return "", err
	}
	return c.summary(begin, middle, decider, victim.name) + " | " + verdict, nil
}

// summary describes the events after a fault began.
func (c *cluster) summary(begin, middle int64, decider, victim string) string {
	gap, last, raised, mute, back, lead := int64(0), begin, 0, "-", "-", "-"
	later := []string{}
	for _, e := range c.events.list() {
		since := fmt.Sprintf("%.0f", float64(e.At-begin)/1e6)
		switch {
		case e.What == "append" && e.At > begin-int64(time.Second):
			if e.At > begin && e.At-last > gap {
				gap = e.At - last
			}
			last = max(last, e.At)
		case e.At < begin:
		case e.What == "raised" && e.At < middle:
			raised++
		case e.What == "raised", strings.HasPrefix(e.What, "raise refused") && e.At > middle:
			if did := e.Who + " " + e.What; !slices.Contains(later, did) {
				later = append(later, did)
			}
		case e.Who == decider && e.What == "mute" && mute == "-":
			mute = since
		case e.Who == decider && strings.HasPrefix(e.What, "stood back") && back == "-":
			back = since
		case e.Who == victim && strings.HasPrefix(e.What, "etcd's leader: ") && lead == "-":
			lead = since
		}
	}
	if len(later) == 0 {
		later = []string{"-"}
	}
	return fmt.Sprintf("%.0f | %d | %s, %s | %s | %s", float64(gap)/1e6, raised, mute, back, lead, strings.Join(later, ", "))
}

// verify reads the whole log: its indexes and epochs, and that each acknowledged record is in it under the epoch of its writer.
func (c *cluster) verify() (string, error) {
	client, err := c.client()
	if err != nil {
		return "", err
	}
	defer func() { _ = client.Close() }()
	events := c.events.list() // before the log is read, since it grows
	records, err := readAll(client)
	if err != nil {
		return "", err
	}
	acknowledged, lost, again := 0, 0, 0
	seen := map[uint64]bool{}
	for _, e := range events {
		if e.What != "append" {
			continue
		}
		acknowledged++
		if e.Index > uint64(len(records)) {
			lost++
		}
		if seen[e.Index] {
			again++
		}
		seen[e.Index] = true
	}
	return fmt.Sprintf("%d records, %d acknowledged, %d lost, %d twice", len(records), acknowledged, lost, again), nil
}

// readAll reads the log and checks that no index is missing and no epoch falls.
func readAll(client reader) (all []record, err error) {
	l := newEtcdLog(nil, "/locket/", time.Second)
	for {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		response, err := client.Get(ctx, l.key(uint64(len(all))+1), rangeOf(l)...)
		cancel()
		if err != nil {
			return nil, err
		}
		for _, pair := range response.Kvs {
			r, err := decode(string(pair.GetKey()), pair.GetValue())
			if err != nil {
				return nil, err
			}
			if r.index != uint64(len(all))+1 || len(all) > 0 && r.epoch < all[len(all)-1].epoch {
				return nil, fmt.Errorf("record %d of epoch %d stands at %d", r.index, r.epoch, len(all)+1)
			}
			all = append(all, r)
		}
		if !response.More {
			return all, nil
		}
	}
}
