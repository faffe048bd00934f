//go:build chaos

package robustness_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	etcd "go.etcd.io/etcd/client/v3"

	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/tests/harness"
)

// kind is a kind of fault. inject begins it, and returns the function that ends it.
type kind struct {
	name   string
	is     where
	inject func(*world) (heal func())
	waits  []time.Duration // of clients, one for each time
}

const (
	// short is shorter than an election of etcd, and long is longer than one and than the silence of a decider.
	short = 300 * time.Millisecond
	long  = 4 * time.Second
)

// kinds are all kinds of faults. They come in this order.
var kinds = []kind{
	{name: "the decider is stopped for 4 s", is: everywhere, inject: stops(long, (*world).decider)},
	{name: "the decider is stopped for 0.3 s", is: everywhere, inject: stops(short, (*world).decider)},
	{name: "the decider reaches nobody", is: everywhere, inject: (*world).muteDecider},
	{name: "nobody reaches the decider", is: everywhere, inject: (*world).deafenDecider},
	{name: "kill -9 of the decider", is: everywhere, inject: kills((*world).decider)},
	{name: "the disk of the decider hangs", is: everywhere, inject: func(w *world) func() { return w.breakDisk(w.decider(), fixtures.DiskHangs) }},
	{name: "etcd's leader is stopped for 4 s", is: everywhere, inject: stops(long, (*world).leaderMachine)},
	{name: "etcd's leader and the decider are stopped for 4 s", is: everywhere, inject: (*world).stopBoth},
	{name: "the decider is cut off", is: everywhere, inject: (*world).cutDecider},
	{name: "etcd is full (NOSPACE)", is: everywhere, inject: (*world).fillEtcd},
	{name: "a server is stopped while it writes a snapshot", is: everywhere, inject: (*world).stopInSnapshot},
	{name: "the log is trimmed while a server is stopped", is: everywhere, inject: (*world).trimDuringLag},
	{name: "the disk of a member of etcd is full", is: beside, inject: (*world).fillMember},
	{name: "other data fills etcd up to its quota", is: beside, inject: (*world).fillQuota},
	{name: "etcd is compacted while a server is stopped", is: everywhere, inject: (*world).compactDuringLag},
	{name: "kill -9 of etcd's leader", is: beside, inject: (*world).killMember},
	{name: "kill -9 of a server that does not decide", is: everywhere, inject: kills((*world).follower)},
	{name: "a server that does not decide is stopped for 4 s", is: everywhere, inject: stops(long, (*world).follower)},
	{name: "clients are cut off from the decider", is: everywhere, inject: (*world).cutClients},
	{name: "connections of clients to the decider go silent", is: everywhere, inject: (*world).silenceClients},
	{name: "etcd's leader does not reach one member", is: everywhere, inject: (*world).cutOnePair},
	{name: "all links are slow", is: everywhere, inject: (*world).slowLinks},
	{name: "all links lose packets", is: everywhere, inject: (*world).lossyLinks},
	{name: "all connections between machines break", is: everywhere, inject: (*world).breakLinks},
	{name: "the disk of the decider fails", is: everywhere, inject: func(w *world) func() { return w.breakDisk(w.decider(), fixtures.DiskFails) }},
	{name: "the disk of the decider is full", is: everywhere, inject: (*world).fillDisk},
	{name: "the disk of the decider is slow", is: everywhere, inject: (*world).slowDisk},
	{name: "each server is stopped and started again, one by one", is: everywhere, inject: (*world).restartAll},
	{name: "the folder of a server is lost", is: beside, inject: restarts(deletes())},
	{name: "the folder of a server is rolled back", is: beside, inject: restarts((*world).takeBack)},
	{name: "a server starts with a copy of another one's folder", is: everywhere, inject: (*world).copyFolder},
	{name: "the folder of a node is lost, and the node is replaced", is: inside, inject: replaces(deletes(), "")},
	{name: "the folder of a node is rolled back, and the node is replaced", is: inside, inject: replaces((*world).takeBack, "older state")},
	{name: "etcd's files of a node are deleted, and the node is replaced", is: inside, inject: replaces(deletes("etcd", "member"), "deleted")},
	{name: "a node is added and removed", is: inside, inject: (*world).addAndRemove},
	{name: "the certificates of the nodes are replaced", is: inside, inject: (*world).replaceCertificates},
}

func (w *world) must(err error) {
	w.t.Helper()
	harness.Must(w.t, err)
}

// stop stops a machine's process for a while.
func (w *world) stop(d time.Duration, machines ...int) (heal func()) {
	w.t.Helper()
	for _, n := range machines {
		w.must(w.process(n).Pause())
	}
	w.pause(d)
	return func() {
		for _, n := range machines {
			w.must(w.process(n).Resume())
		}
	}
}

// process is a server, or a member of etcd beside.
type process interface {
	Pause() error
	Resume() error
}

func (w *world) process(machine int) process {
	if machine < len(w.servers) {
		return w.servers[machine]
	}
	return w.etcd.Members[machine-len(w.servers)]
}

// stops returns a fault that stops one machine's process for a while.
func stops(d time.Duration, machine func(*world) int) func(*world) (heal func()) {
	return func(w *world) func() {
		n := machine(w)
		w.loses(n)
		return w.stop(d, n)
	}
}

func (w *world) stopBoth() func() {
	d, l := w.decider(), w.leaderMachine()
	w.loses(d, l)
	if d == l {
		return w.stop(long, d)
	}
	if w.etcd == nil { // then there is no majority
		w.loses(0, 1, 2)
	}
	return w.stop(long, d, l)
}

// kills returns a fault that ends a server as kill -9 does.
func kills(server func(*world) int) func(*world) (heal func()) {
	return func(w *world) func() {
		n := server(w)
		w.loses(n)
		w.servers[n].Kill()
		w.pause(rand.N(2 * time.Second))
		return func() { w.again(n) }
	}
}

func (w *world) killMember() func() {
	m := w.etcd.Members[w.leader()]
	w.must(m.Kill())
	w.pause(2 * time.Second)
	return func() { w.must(m.Start()) }
}

// isolate cuts a machine off from the others, one way or both.
func (w *world) isolate(n int, out, in func(*fixtures.Proxy)) func() {
	w.loses(n)
	w.around(n, out, in)
	w.pause(long)
	return w.restore
}

func nothing(*fixtures.Proxy) {}

// A link carries answers, too: a machine that reaches nobody sends neither requests nor answers.
func (w *world) muteDecider() func() {
	return w.isolate(w.decider(), (*fixtures.Proxy).HoldUp, (*fixtures.Proxy).HoldDown)
}

func (w *world) deafenDecider() func() {
	return w.isolate(w.decider(), (*fixtures.Proxy).HoldDown, (*fixtures.Proxy).HoldUp)
}

func (w *world) cutDecider() func() {
	how := (*fixtures.Proxy).Hang
	if rand.IntN(2) == 0 {
		how = (*fixtures.Proxy).Cut
	}
	return w.isolate(w.decider(), how, how)
}

func (w *world) cutClients() func() {
	n := w.decider()
	w.loses(n)
	w.between(clients, n, (*fixtures.Proxy).Hang)
	w.pause(long)
	return w.restore
}

func (w *world) silenceClients() func() {
	n := w.decider()
	w.loses(n)
	w.between(clients, n, (*fixtures.Proxy).Silence)
	w.pause(2 * time.Second)
	return func() { // a machine that comes back resets the connections
		w.between(clients, n, (*fixtures.Proxy).Cut)
		w.restore()
	}
}

func (w *world) cutOnePair() func() {
	leader := w.leader()
	a, b := w.memberMachine(leader), w.memberMachine((leader+1)%3)
	if w.etcd == nil {
		w.loses(a, b)
	}
	w.between(a, b, (*fixtures.Proxy).Hang)
	w.between(b, a, (*fixtures.Proxy).Hang)
	w.pause(long)
	return w.restore
}

// delay delays what all links between machines carry.
func (w *world) delay(by func() time.Duration) func() {
	for from := range w.networks {
		w.around(from, func(p *fixtures.Proxy) { p.Delay(by) }, nothing)
	}
	w.pause(long)
	return w.restore
}

func (w *world) slowLinks() func() {
	return w.delay(func() time.Duration { return 20*time.Millisecond + rand.N(20*time.Millisecond) })
}

// lossyLinks has one of ten pieces sent again, as TCP does.
func (w *world) lossyLinks() func() {
	return w.delay(func() time.Duration {
		if rand.IntN(10) > 0 {
			return 0
		}
		return 200*time.Millisecond + rand.N(200*time.Millisecond)
	})
}

func (w *world) breakLinks() func() {
	for from := range w.networks {
		w.around(from, (*fixtures.Proxy).Cut, nothing)
	}
	return w.restore
}

// breakDisk breaks a server's disk. The server ends, or is killed as its machine is when somebody replaces the disk.
func (w *world) breakDisk(n int, mode int32) func() {
	w.loses(n)
	w.disks[n].Turn(mode)
	w.pause(long)
	return func() {
		w.servers[n].Kill()
		w.disks[n].Turn(fixtures.DiskWorks)
	}
}

func (w *world) fillDisk() func() {
	n := w.decider()
	w.loses(n)
	w.disks[n].Turn(fixtures.DiskFull)
	w.pause(long)
	return func() { w.disks[n].Turn(fixtures.DiskWorks) }
}

func (w *world) slowDisk() func() {
	n := w.decider()
	w.disks[n].Turn(fixtures.DiskSlow)
	w.pause(long)
	return func() { w.disks[n].Turn(fixtures.DiskWorks) }
}

// fillEtcd raises the alarm of a full etcd.
func (w *world) fillEtcd() func() {
	leader := w.leader()
	alarm := func(what pb.AlarmRequest_AlarmAction) {
		insistEtcd(w, leader, func(ctx context.Context, c *etcd.Client) (*pb.AlarmResponse, error) {
			status, err := c.Status(ctx, c.Endpoints()[0])
			if err != nil {
				return nil, err
			}
			return pb.NewMaintenanceClient(c.ActiveConnection()).Alarm(ctx, &pb.AlarmRequest{Action: what, MemberID: status.Header.GetMemberId(), Alarm: pb.AlarmType_NOSPACE})
		})
	}
	alarm(pb.AlarmRequest_ACTIVATE)
	w.pause(long)
	return func() { alarm(pb.AlarmRequest_DEACTIVATE) }
}

// compactDuringLag compacts etcd while a server has not seen the last changes.
func (w *world) compactDuringLag() func() {
	n := w.follower()
	w.loses(n)
	heal := w.stop(2*time.Second, n)
	insistEtcd(w, w.leader(), func(ctx context.Context, c *etcd.Client) (*etcd.CompactResponse, error) {
		status, err := c.Status(ctx, c.Endpoints()[0])
		if err != nil {
			return nil, err
		}
		return c.Compact(ctx, status.Header.GetRevision())
	}, rpctypes.ErrCompacted)
	return heal
}

// restartAll replaces the program server by server. Before the first release there is only one version of it.
func (w *world) restartAll() func() {
	for n := range 3 {
		if code, _ := w.servers[n].Terminate(); code != 0 {
			w.t.Errorf("server %d ends with %d: %s", n, code, lastLine(w.servers[n].Log()))
		}
		w.again(n)
	}
	w.loses(0, 1, 2) // each is away for a moment
	return func() {}
}

// restarts returns a fault that harms the folder of a server. The log is in etcd, so the server reads the records that it lacks.
func restarts(harm func(w *world, n int)) func(*world) (heal func()) {
	return func(w *world) func() {
		n := w.follower()
		w.loses(n)
		harm(w, n)
		return func() { w.again(n) }
	}
}

// replaces returns a fault that harms the folder of a node, which then refuses to start, says why, and is replaced.
func replaces(harm func(w *world, n int), why string) func(*world) (heal func()) {
	return func(w *world) func() {
		n := w.follower()
		w.loses(n)
		harm(w, n)
		w.refuses(w.servers[n], why)
		return func() { w.replace(n) }
	}
}

// deletes returns the harm that deletes a server's folder, or a folder in it.
func deletes(folder ...string) func(w *world, n int) {
	return func(w *world, n int) {
		w.servers[n].Kill()
		w.must(os.RemoveAll(filepath.Join(append([]string{w.data[n]}, folder...)...)))
	}
}

// takeBack stops a server, copies its folder, has the server run for a while, and takes the folder back. The files that show
// copies stay the same ones, as with a snapshot of the disk.
func (w *world) takeBack(n int) {
	w.servers[n].Kill()
	copied := filepath.Join(w.folder, "copy")
	w.must(os.RemoveAll(copied))
	w.must(harness.CopyFiles(w.data[n], copied))
	w.again(n)
	w.pause(2 * time.Second)
	w.servers[n].Kill()
	w.must(restoreFiles(copied, w.data[n]))
}

// restoreFiles makes a folder equal to a copy. Files that are in both stay the same files.
func restoreFiles(from, to string) error {
	err := filepath.WalkDir(to, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		if _, err := os.Lstat(filepath.Join(from, strings.TrimPrefix(path, to))); err != nil {
			return os.Remove(path)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return harness.CopyFiles(from, to)
}

// refuses fails the test unless a server refuses to start, and says why.
func (w *world) refuses(s *fixtures.Locket, why string) {
	w.t.Helper()
	w.must(s.Launch())
	code, err := s.Wait(harness.HangTimeout)
	if err != nil || code == 0 || !strings.Contains(lastLines(s.Log(), 20), why) {
		w.t.Errorf("a server that must be refused ended with %d (%v): %s", code, err, lastLines(s.Log(), 20))
	}
}

// copyFolder starts a server with a copy of a folder while the original is used.
func (w *world) copyFolder() func() {
	n := w.follower()
	w.loses(n)
	copied := filepath.Join(w.folder, "copied")
	w.must(os.RemoveAll(copied))
	w.must(w.servers[n].Pause())
	err := harness.CopyFiles(w.data[n], copied)
	w.must(w.servers[n].Resume())
	w.must(err)
	second := fixtures.NewLocket(w.t, "embedded:"+copied, w.servers[n].Args...)
	second.Network = w.networks[n]
	if w.ca == nil {
		address, err := fixtures.FreeAddress()
		w.must(err)
		second.Args = append(second.Args, "--peer-address", address)
	}
	w.refuses(second, "copy")
	return func() {}
}

// replace replaces a node, and starts it with an empty folder.
func (w *world) replace(n int) {
	w.t.Helper()
	w.command(0, "cluster", "replace", nodeNames[n:n+1])
	w.must(os.RemoveAll(w.data[n]))
	w.servers[n].Args = append(w.servers[n].Args[:w.common], w.nodeArgs(n, "--join", w.nodes[0])...)
	w.again(n)
}

// addAndRemove adds a fourth node, and removes it again.
func (w *world) addAndRemove() func() {
	const n = 3
	name := nodeNames[n : n+1]
	w.command(0, "cluster", "add", name+"="+w.nodes[n])
	w.servers[n].Args = append(w.servers[n].Args[:w.common], w.nodeArgs(n, "--join", w.nodes[0])...)
	w.again(n)
	w.pause(2 * time.Second)
	return func() {
		w.command(0, "cluster", "remove", name)
		w.servers[n].Kill()
		w.must(os.RemoveAll(w.data[n]))
	}
}

// command runs a command until it succeeds.
func (w *world) command(n int, args ...string) {
	w.t.Helper()
	harness.Eventually(w.t, func() error {
		out, err := w.locket(n, args...)
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
}

func (w *world) replaceCertificates() func() {
	for n, old := range w.certs {
		cert, key := w.ca.Issue(w.t, nodeNames[n:n+1])
		w.must(os.Rename(key, old[1]))
		w.must(os.Rename(cert, old[0]))
	}
	return w.breakLinks()
}
