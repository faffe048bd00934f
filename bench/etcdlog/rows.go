package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/locket-service/locket/fixtures"
)

// system is a row of the benchmark: a log behind a service, or etcd as its clients use it.
type system struct {
	name string
	// start starts it. It returns the address of the service or of etcd's leader, for callers in another process.
	start  func(c *cluster, extra ...string) (address string, err error)
	nodes  int
	direct bool // a lock is a transaction of etcd
}

// connections is how many connections the callers share, as in the other benchmarks.
const connections = 4

func systems(l *lab) []system {
	all := []system{
		{name: "file log", start: startFile, nodes: 1},
		{name: "etcd embedded, one node", start: startAt(""), nodes: 1},
		{name: "etcd embedded, three nodes, decider at etcd's leader", start: startAt("leader"), nodes: 3},
		{name: "etcd embedded, three nodes, decider elsewhere", start: startAt("other"), nodes: 3},
	}
	for _, v := range l.versions() {
		all = append(all, system{name: "etcd " + v + " beside it, three nodes", start: startBeside(v), nodes: 3})
	}
	for _, v := range l.versions() {
		all = append(all, system{name: "locks in etcd " + v + ", three nodes", start: startDirect(v), nodes: 3, direct: true})
	}
	return append(all, system{name: "locks in etcd 3.7, one node", start: startDirect("3.7"), nodes: 1, direct: true})
}

func startFile(c *cluster, extra ...string) (string, error) {
	address, err := fixtures.FreeAddress()
	if err != nil {
		return "", err
	}
	err = c.startMember("x", append([]string{"-file", filepath.Join(c.folder, "log"), "-service", address}, extra...)...)
	return address, err
}

// startAt starts members with an embedded etcd. The first decides. Etcd's leader is the same or another one.
func startAt(leader string) func(*cluster, ...string) (string, error) {
	return func(c *cluster, extra ...string) (string, error) {
		services := map[string]string{}
		for i, p := range c.etcds {
			address, err := fixtures.FreeAddress()
			if err != nil {
				return "", err
			}
			services[p.name] = address
			p.args = append([]string{
				c.lab.self, "member", "-name", p.name, "-folder", p.folder, "-client", p.client, "-peer", p.peer, "-cluster",
				c.initial(), "-service", address,
			}, extra...)
			if i == 0 {
				p.args = append(p.args, "-candidate")
			} else {
				p.args = append(p.args, "-silence", "0", "-callers", "0")
			}
			c.members = append(c.members, p)
			if err := c.start(p); err != nil {
				return "", err
			}
		}
		if err := c.ready(); err != nil {
			return "", err
		}
		switch leader {
		case "leader":
			return services["a"], c.lead("a")
		case "other":
			return services["a"], c.lead("b")
		default:
			return services["a"], nil
		}
	}
}

// startBeside starts one member beside an etcd.
func startBeside(version string) func(*cluster, ...string) (string, error) {
	return func(c *cluster, extra ...string) (string, error) {
		address, err := fixtures.FreeAddress()
		if err != nil {
			return "", err
		}
		if err := errors.Join(c.startEtcds(c.lab.program("etcd-"+version)), c.lead("a")); err != nil {
			return "", err
		}
		err = c.startMember("x", append([]string{"-endpoints", c.endpoints("a"), "-service", address, "-candidate"}, extra...)...)
		return address, err
	}
}

func startDirect(version string) func(*cluster, ...string) (string, error) {
	return func(c *cluster, _ ...string) (string, error) {
		err := errors.Join(c.startEtcds(c.lab.program("etcd-"+version)), c.lead("a"))
		return c.etcds[0].client, err
	}
}

// variants are ways to append. Those with several appends at once need -variants.
var variants = []struct {
	name  string
	extra []string
}{
	{"", nil},
	{", batches gather", []string{"-gather", "2ms"}},
	{", two appends at once", []string{"-depth", "2"}},
	{", four appends at once", []string{"-depth", "4"}},
}

// rows prints, for 1, 64 and 256 callers, the rate, p50, p99 and processor time of each system.
func rows(l *lab) error {
	match, err := regexp.Compile(l.match)
	if err != nil {
		return err
	}
	fmt.Println("| | callers | operations/s | p50, ms | p99, ms | processor time of the servers, µs | of three-node etcd 3.7 |")
	fmt.Println("| --- | ---: | ---: | ---: | ---: | ---: | ---: |")
	var (
		order []string
		found = map[string][]load{}
	)
	all := variants
	if !l.variants {
		all = variants[:2]
	}
	for range l.rounds {
		for _, callers := range []int{1, 64, 256} {
			for _, s := range systems(l) {
				for i, v := range all {
					name := s.name + v.name
					if i > 0 && (s.direct || callers == 1 || s.nodes == 1) || !match.MatchString(name) {
						continue
					}
					one, err := l.row(s, callers, v.extra)
					if err != nil {
						return fmt.Errorf("%s, %d callers: %w", name, callers, err)
					}
					key := fmt.Sprintf("%s | %d", name, callers)
					if found[key] == nil {
						order = append(order, key)
					}
					found[key] = append(found[key], one)
				}
			}
		}
	}
	for _, key := range order {
		one := median(found[key])
		_, callers, _ := strings.Cut(key, " | ")
		peer := median(found["locks in etcd 3.7, three nodes | "+callers])
		fmt.Printf("| %s | %.0f | %.2f | %.1f | %.1f | %.2f |\n", key, one.Rate, one.P50, one.P99, one.Processor, one.Rate/peer.Rate)
	}
	return nil
}

func median(all []load) load {
	if len(all) == 0 {
		return load{}
	}
	all = slices.Clone(all)
	slices.SortFunc(all, func(a, b load) int { return int(a.Rate - b.Rate) })
	return all[len(all)/2]
}

// row measures a system with callers in another process.
func (l *lab) row(s system, callers int, extra []string) (found load, err error) {
	c, err := l.newCluster(s.nodes, tuning{100, 1000})
	if err != nil {
		return found, err
	}
	defer c.stop()
	if s.name == "file log" {
		c.etcds = nil
	}
	address, err := s.start(c, append([]string{"-quiet"}, extra...)...)
	if err != nil {
		return found, err
	}
	program, role := l.program("load"), "load-unary"
	if s.direct {
		program, role = l.program("peers"), "etcd"
	} else if err := serves(address); err != nil {
		return found, err
	}
	before := c.processor()
	var out bytes.Buffer
	drive := exec.Command(program, role, "-address", address, "-callers", strconv.Itoa(callers), "-pid", strconv.Itoa(c.all()[0].cmd.Process.Pid),
		"-connections", strconv.Itoa(min(connections, callers)), "-duration", l.duration().String())
	var complaints bytes.Buffer
	drive.Stdout, drive.Stderr = &out, &complaints
	if err := drive.Run(); err != nil {
		return found, fmt.Errorf("%w: %s", err, complaints.String())
	}
	spent := c.processor() - before
	if err := json.Unmarshal(out.Bytes(), &found); err != nil {
		return found, err
	}
	found.Processor = float64(spent.Microseconds()) / (found.Rate * l.seconds * 1.2) // the load warms up for a fifth
	return found, nil
}

// serves waits until the service carries out a request: then its member decides.
func serves(address string) error {
	end := time.Now().Add(20 * time.Second)
	for {
		err := callService(address)
		if err == nil || time.Now().After(end) {
			return err
		}
		time.Sleep(20 * time.Millisecond)
	}
}
