package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	etcd "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/locket-service/locket/fixtures"
)

var silent = zap.NewNop()

// process is a member or an etcd, with its arguments for another start.
type process struct {
	name, folder, client, peer string
	cmd                        *exec.Cmd
	args                       []string
}

// signal sends a signal to a process that this program has started.
func (p *process) signal(s syscall.Signal) { _ = p.cmd.Process.Signal(s) }

// cluster is three processes of etcd, embedded or not, and the members beside it.
type cluster struct {
	lab     *lab
	folder  string
	etcds   []*process
	members []*process // the same processes, if etcd is embedded
	events  *events
	extra   []string // further arguments of etcd
	tuning  tuning
}

type tuning struct{ heartbeat, election int }

// events collects what all members print.
type events struct {
	mu    sync.Mutex
	all   []event
	fresh chan struct{}
}

func (e *events) add(all ...event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all = append(e.all, all...)
	close(e.fresh)
	e.fresh = make(chan struct{})
}

// await returns the first event after a time that fits.
func (e *events) await(after int64, limit time.Duration, fits func(event) bool) (event, error) {
	late := time.After(limit)
	for seen := 0; ; {
		e.mu.Lock()
		all, fresh := e.all, e.fresh
		e.mu.Unlock()
		for ; seen < len(all); seen++ {
			if all[seen].At > after && fits(all[seen]) {
				return all[seen], nil
			}
		}
		select {
		case <-fresh:
		case <-late:
			return event{}, fmt.Errorf("nothing happened for %s", limit)
		}
	}
}

func (e *events) list() []event {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.all[:len(e.all):len(e.all)]
}

func is(what string) func(event) bool {
	return func(e event) bool { return e.What == what }
}

func by(who, what string) func(event) bool {
	return func(e event) bool { return e.What == what && e.Who == who }
}

// newCluster prepares folders and addresses of n processes.
func (l *lab) newCluster(n int, t tuning) (*cluster, error) {
	l.runs++
	c := &cluster{lab: l, folder: filepath.Join(l.folder, strconv.Itoa(l.runs)), events: &events{fresh: make(chan struct{})}, tuning: t}
	for i := range n {
		p, err := c.newProcess(string(rune('a' + i)))
		if err != nil {
			return nil, err
		}
		c.etcds = append(c.etcds, p)
	}
	return c, nil
}

func (c *cluster) newProcess(name string) (*process, error) {
	p := &process{name: name, folder: filepath.Join(c.folder, name, "data")}
	var failures [2]error
	p.client, failures[0] = fixtures.FreeAddress()
	p.peer, failures[1] = fixtures.FreeAddress()
	return p, errors.Join(failures[0], failures[1], os.MkdirAll(filepath.Dir(p.folder), 0o700))
}

func (c *cluster) initial() string {
	var all []string
	for _, p := range c.etcds {
		all = append(all, p.name+"=http://"+p.peer)
	}
	return strings.Join(all, ",")
}

// startEtcds starts the program of a version of etcd.
func (c *cluster) startEtcds(program string) error {
	for _, p := range c.etcds {
		p.args = append([]string{
			program, "--name", p.name, "--data-dir", p.folder, "--listen-client-urls", "http://" + p.client,
			"--advertise-client-urls", "http://" + p.client, "--listen-peer-urls", "http://" + p.peer, "--initial-advertise-peer-urls",
			"http://" + p.peer, "--initial-cluster", c.initial(), "--log-level", "fatal", "--heartbeat-interval",
			strconv.Itoa(c.tuning.heartbeat), "--election-timeout", strconv.Itoa(c.tuning.election),
		}, c.extra...)
		if err := c.start(p); err != nil {
			return err
		}
	}
	return c.ready()
}

// startEmbedded starts members with an embedded etcd. None decides before one is told to by candidate.
func (c *cluster) startEmbedded(args ...string) error {
	for _, p := range c.etcds {
		p.args = append([]string{
			c.lab.self, "member", "-name", p.name, "-folder", p.folder, "-client", p.client, "-peer", p.peer, "-cluster",
			c.initial(), "-heartbeat", strconv.Itoa(c.tuning.heartbeat), "-election", strconv.Itoa(c.tuning.election),
		}, args...)
		c.members = append(c.members, p)
		if err := c.start(p); err != nil {
			return err
		}
	}
	return c.ready()
}

// startMember starts a member beside the etcds, whose endpoints are given in the order of preference.
func (c *cluster) startMember(name string, args ...string) error {
	p := &process{name: name, args: append([]string{c.lab.self, "member", "-name", name}, args...)}
	c.members = append(c.members, p)
	return c.start(p)
}

// start starts a process, or starts it again.
func (c *cluster) start(p *process) error {
	p.cmd = exec.Command(p.args[0], p.args[1:]...)
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	p.cmd.Stderr = os.Stderr
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if strings.HasSuffix(p.args[0], "etcd-3.4") {
		p.cmd.Stderr = nil
	}
	go c.collect(out)
	return p.cmd.Start()
}

func (c *cluster) collect(out io.Reader) {
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		var e event
		if json.Unmarshal(lines.Bytes(), &e) == nil {
			if c.lab.verbose && e.What != "append" {
				fmt.Fprintln(os.Stderr, lines.Text())
			}
			c.events.add(e)
		}
	}
}

// ready waits until each etcd has answered a linearizable read.
func (c *cluster) ready() error {
	for _, p := range c.etcds {
		client, err := dialEach([]string{p.client})
		if err != nil {
			return err
		}
		for end := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
			ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
			_, err = client[0].Get(ctx, "x")
			cancel()
			if err == nil || time.Now().After(end) {
				break
			}
		}
		_ = client[0].Close()
		if err != nil {
			return fmt.Errorf("etcd at %s: %w", p.client, err)
		}
	}
	return nil
}

// client returns a client for all etcds of the cluster.
func (c *cluster) client() (*etcd.Client, error) {
	return etcd.New(etcd.Config{Endpoints: strings.Split(c.endpoints(), ","), DialTimeout: 5 * time.Second, Logger: silent})
}

// endpoints returns the addresses for clients. The named processes come first.
func (c *cluster) endpoints(first ...string) string {
	var all []string
	for _, name := range first {
		all = append(all, c.etcdNamed(name).client)
	}
	for _, p := range c.etcds {
		if !strings.Contains(strings.Join(first, ","), p.name) {
			all = append(all, p.client)
		}
	}
	return strings.Join(all, ",")
}

func (c *cluster) etcdNamed(name string) *process {
	for _, p := range c.etcds {
		if p.name == name {
			return p
		}
	}
	return nil
}

// leader returns the name of etcd's leader.
func (c *cluster) leader() (string, error) {
	client, err := c.client()
	if err != nil {
		return "", err
	}
	defer func() { _ = client.Close() }()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	for _, p := range c.etcds {
		if s, err := client.Status(ctx, p.client); err == nil && s.Leader == s.Header.GetMemberId() {
			return p.name, nil
		}
	}
	return "", errors.New("etcd has no leader")
}

// lead makes a named etcd the leader.
func (c *cluster) lead(name string) error {
	was, err := c.leader()
	if err != nil || was == name {
		return err
	}
	clients, err := dialEach([]string{c.etcdNamed(was).client, c.etcdNamed(name).client})
	if err != nil {
		return err
	}
	defer func() { _, _ = clients[0].Close(), clients[1].Close() }()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	s, err := clients[1].Status(ctx, c.etcdNamed(name).client)
	if err != nil {
		return err
	}
	_, err = clients[0].MoveLeader(ctx, s.Header.GetMemberId())
	return err
}

// processor returns the processor time that all processes of the cluster have used.
func (c *cluster) processor() (sum time.Duration) {
	for _, p := range c.all() {
		spent, _ := processorTime(p.cmd.Process.Pid)
		sum += spent
	}
	return sum
}

func (c *cluster) all() []*process {
	all := append([]*process(nil), c.etcds...)
	for _, m := range c.members {
		if c.etcdNamed(m.name) != m {
			all = append(all, m)
		}
	}
	return all
}

// stop ends all processes of the cluster and removes its data.
func (c *cluster) stop() {
	for _, p := range c.all() {
		if p.cmd != nil && p.cmd.Process != nil {
			p.signal(syscall.SIGKILL)
			_ = p.cmd.Wait()
		}
	}
	_ = os.RemoveAll(c.folder)
}

// processorTime returns how much processor time a process has used.
func processorTime(pid int) (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(rest)
	user, _ := strconv.Atoi(fields[11])
	system, err := strconv.Atoi(fields[12])
	return time.Duration(user+system) * 10 * time.Millisecond, err
}
