//go:build chaos

package robustness_test

import (
	"cmp"
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
	"testing"
	"time"

	etcd "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/internal/rules/claim"
	"github.com/locket-service/locket/tests/harness"
)

// chaosEnv names the environment variable with how long TestChaosCluster runs, as 3m; chaosTime otherwise. chaosFaultsEnv names the one with
// a regular expression for the faults that come; all otherwise.
const (
	chaosEnv       = "LOCKET_TEST_CHAOS"
	chaosFaultsEnv = "LOCKET_TEST_CHAOS_FAULTS"
)

const (
	chaosTime = 30 * time.Minute
	// roundTime is how long a cluster is used until everything is checked, and the next cluster begins.
	roundTime = 2 * time.Minute
)

// TestChaosCluster: clients of every kind use three servers with etcd inside, or beside three members of etcd 3.4 or 3.7, all in
// networks of their own with links between each two, while every kind of fault comes in turn. The rules explain all answers
// and events, so nothing that was acknowledged is lost, and no two clients trust at the same time that they hold the same
// resource. It prints how long clients of the other servers waited.
func TestChaosCluster(t *testing.T) {
	length, err := time.ParseDuration(cmp.Or(os.Getenv(chaosEnv), chaosTime.String()))
	harness.Must(t, err)
	end := time.Now().Add(length)
	r := &chaosReport{began: time.Now(), only: regexp.MustCompile(os.Getenv(chaosFaultsEnv))}
	for ran := true; ran && time.Now().Before(end); { // real time: of the test
		ran = false
		for _, d := range []struct {
			name  string
			start func(*testing.T) *world
			is    where
		}{
			{"etcd inside", startInside, inside},
			{"etcd 3.4 beside", func(t *testing.T) *world { return startBeside(t, fixtures.Etcd34) }, beside},
			{"etcd inside", startInside, inside},
			{"etcd 3.7 beside", func(t *testing.T) *world { return startBeside(t, fixtures.Etcd37) }, beside},
		} {
			if !r.has(d.is) {
				continue
			}
			ok := t.Run(d.name, func(t *testing.T) {
				ran = true // it is not if -run has another name
				d.start(t).round(t, r, d.is, min(roundTime, length/4))
			})
			if !ok {
				end = time.Now() // real time: the first failure ends the test
				break
			}
		}
	}
	r.print(t, length >= chaosTime)
}

// where says which clusters a kind of fault is for.
type where int

const (
	inside where = 1 << iota
	beside
	everywhere = inside | beside
)

// clients is the machine of the clients: the network of this process.
const clients = -1

// world is a cluster on several machines.
type world struct {
	t        *testing.T
	networks []*fixtures.Network
	links    map[[2]int][]*fixtures.Proxy // from one machine to another
	servers  []*fixtures.Locket           // the first machines
	disks    []*fixtures.Disk             // of the servers
	data     []string                     // their folders
	nodes    []string                     // the addresses of the nodes of etcd inside
	common   int                          // how many of the arguments of a server do not depend on its role in the cluster
	etcd     *fixtures.Etcd               // the members beside, on the last machines
	etcds    []*etcd.Client               // a client of each node or member
	lost     []int                        // the servers whose clients are not expected to be served during the present fault
	ca       *fixtures.CA
	certs    [][2]string // of the nodes
	probes   *probes
	folder   string
}

const nodeNames = "abcd"

// newWorld has networks for some machines.
func newWorld(t *testing.T, machines int) *world {
	t.Helper()
	w := &world{t: t, links: make(map[[2]int][]*fixtures.Proxy)}
	for range machines {
		w.networks = append(w.networks, fixtures.NewNetwork(t))
	}
	folder, err := os.MkdirTemp("", "lc-") //nolint:usetesting // the path of a socket is short
	harness.Must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	w.folder = folder
	t.Cleanup(w.keepLogs)
	return w
}

// keepLogs keeps the whole logs of the servers of a test that failed.
func (w *world) keepLogs() {
	if !w.t.Failed() {
		return
	}
	folder, err := os.MkdirTemp("", "locket-chaos-")
	for n, s := range w.servers {
		if err == nil {
			err = os.WriteFile(filepath.Join(folder, fmt.Sprint("server", n, ".log")), []byte(s.Log()), 0o600)
		}
	}
	w.t.Logf("the logs of the servers: %s (%v)", folder, err)
}

// link makes an address of a machine one of another machine, too.
func (w *world) link(from, to int, address string) {
	w.t.Helper()
	w.links[[2]int{from, to}] = append(w.links[[2]int{from, to}], fixtures.NewLink(w.t, w.network(from), w.network(to), address))
}

func (w *world) network(machine int) *fixtures.Network {
	if machine == clients {
		return nil
	}
	return w.networks[machine]
}

// addServer makes a server on the next machine. All servers reach its peer address, and the clients its other addresses.
func (w *world) addServer(peers int, args ...string) *fixtures.Locket {
	w.t.Helper()
	n := len(w.servers)
	data := filepath.Join(w.folder, fmt.Sprint("server", n))
	common := []string{"--log-level", "info"}
	if w.ca == nil { // a server with a node uses the address of that
		address, err := fixtures.FreeAddress()
		harness.Must(w.t, err)
		common = append(common, "--peer-address", address)
		for from := range peers {
			if from != n {
				w.link(from, n, address)
			}
		}
	}
	w.common = len(common)
	server := fixtures.NewLocket(w.t, "embedded:"+data, append(common, args...)...)
	disk := fixtures.NewDisk(w.t)
	server.Network, server.Under = w.networks[n], disk.Under()
	w.link(clients, n, server.Address())
	w.link(clients, n, server.HTTPAddress())
	w.servers, w.disks, w.data = append(w.servers, server), append(w.disks, disk), append(w.data, data)
	return server
}

// startInside starts three servers with etcd inside. There is a fourth machine.
func startInside(t *testing.T) *world {
	w := newWorld(t, len(nodeNames))
	w.ca = fixtures.NewCA(t)
	var members []string
	for n := range len(nodeNames) {
		address, err := fixtures.FreeAddress()
		harness.Must(t, err)
		w.nodes, members = append(w.nodes, address), append(members, nodeNames[n:n+1]+"="+address)
		for from := range len(nodeNames) {
			if from != n {
				w.link(from, n, address)
			}
		}
		cert, key := w.ca.Issue(t, nodeNames[n:n+1])
		w.certs = append(w.certs, [2]string{cert, key})
	}
	for n := range len(nodeNames) {
		w.addServer(len(nodeNames), w.nodeArgs(n, "--cluster", strings.Join(members[:3], ","))...)
	}
	w.start(3)
	for n := range 3 {
		w.etcds = append(w.etcds, w.dialEtcd("unix://"+filepath.Join(w.data[n], "etcd", "client.sock")))
	}
	return w
}

// nodeArgs are arguments of a server with a node.
func (w *world) nodeArgs(n int, more ...string) []string {
	return append([]string{
		"--node", nodeNames[n : n+1], "--cluster-cert", w.certs[n][0], "--cluster-key", w.certs[n][1], "--cluster-ca", w.ca.File,
	}, more...)
}

// quota is how large the database of etcd beside may be: large enough for the log between two snapshots.
const quota = 512 << 20

// startBeside starts three servers beside three members of etcd.
func startBeside(t *testing.T, version string) *world {
	const servers, members = 3, 3
	w := newWorld(t, servers+members)
	small, member := w.smallDisk(), 0
	onSmallDisk := func(m *fixtures.EtcdMember) {
		if member++; member == members {
			fixtures.WithEtcdArgs("--data-dir=" + small + "/data")(m)
		}
	}
	w.etcd = fixtures.NewEtcd(t, version, members, onSmallDisk, fixtures.WithEtcdArgs("--heartbeat-interval=50", "--election-timeout=500", fmt.Sprint("--quota-backend-bytes=", quota)),
		fixtures.WithEtcdNetworks(w.networks[servers:], func(member int, client, peer, metrics string) {
			n := servers + member
			w.link(clients, n, client)
			w.link(clients, n, metrics)
			for from := range w.networks {
				switch {
				case from < servers:
					w.link(from, n, client)
				case from != n:
					w.link(from, n, peer)
				}
			}
		}))
	for range servers {
		w.addServer(servers, "--etcd", strings.Join(w.etcd.Endpoints(), ","))
	}
	w.start(servers)
	for _, endpoint := range w.etcd.Endpoints() {
		w.etcds = append(w.etcds, w.dialEtcd(endpoint))
	}
	return w
}

// start starts the first servers.
func (w *world) start(servers int) {
	w.t.Helper()
	for _, s := range w.servers[:servers] {
		harness.Must(w.t, s.Launch())
	}
	for _, s := range w.servers[:servers] {
		harness.Must(w.t, s.AwaitServing(harness.HangTimeout))
	}
}

func (w *world) dialEtcd(endpoint string) *etcd.Client {
	w.t.Helper()
	client, err := etcd.New(etcd.Config{Endpoints: []string{endpoint}, Logger: zap.NewNop(), MaxUnaryRetries: 1})
	harness.Must(w.t, err)
	w.t.Cleanup(func() { _ = client.Close() })
	return client
}

// askEtcd makes a request of a node or member of etcd.
func askEtcd[T any](w *world, n int, ask func(context.Context, *etcd.Client) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(w.t.Context(), 5*time.Second)
	defer cancel()
	return ask(ctx, w.etcds[n])
}

// insistEtcd repeats a request of a node or member of etcd until it succeeds, or fails in one of some ways.
func insistEtcd[T any](w *world, n int, ask func(context.Context, *etcd.Client) (T, error), fine ...error) (answer T) {
	w.t.Helper()
	harness.Eventually(w.t, func() (err error) {
		answer, err = askEtcd(w, n, ask)
		if slices.ContainsFunc(fine, func(f error) bool { return errors.Is(err, f) }) {
			return nil
		}
		return err
	})
	return answer
}

// leader returns the number of etcd's leader among the nodes or members.
func (w *world) leader() (leader int) {
	w.t.Helper()
	harness.Eventually(w.t, func() error {
		for n := range w.etcds {
			s, err := askEtcd(w, n, func(ctx context.Context, c *etcd.Client) (*etcd.StatusResponse, error) {
				return c.Status(ctx, c.Endpoints()[0])
			})
			if err == nil && s.Leader == s.Header.GetMemberId() {
				leader = n
				return nil
			}
		}
		return fmt.Errorf("no node of etcd leads")
	})
	return leader
}

// memberMachine returns the machine of a node or member of etcd.
func (w *world) memberMachine(n int) int {
	if w.etcd != nil {
		return len(w.servers) + n
	}
	return n
}

// leaderMachine returns the machine of etcd's leader.
func (w *world) leaderMachine() int { return w.memberMachine(w.leader()) }

var decides = regexp.MustCompile(`"this server decides","epoch":(\d+)`)

// decider returns the number of the server that decided last.
func (w *world) decider() (decider int) {
	w.t.Helper()
	highest := 0
	for n, s := range w.servers {
		for _, found := range decides.FindAllStringSubmatch(s.Log(), -1) {
			if epoch, err := strconv.Atoi(found[1]); err == nil && epoch > highest {
				highest, decider = epoch, n
			}
		}
	}
	return decider
}

// follower returns a server that does not decide: never the first one, whose folder is checked at the end.
func (w *world) follower() int {
	if w.decider() == 1 {
		return 2
	}
	return 1
}

// locket runs a command on the machine of a server.
func (w *world) locket(n int, args ...string) (string, error) {
	cmd := exec.Command(fixtures.LocketProgram(w.t), append(args, "--data", w.data[n])...)
	cmd.Env = fixtures.CleanEnv()
	return w.networks[n].Output(cmd)
}

// between calls do for the links from one machine to another.
func (w *world) between(from, to int, do func(*fixtures.Proxy)) {
	for _, p := range w.links[[2]int{from, to}] {
		do(p)
	}
}

// around calls out for the links from a machine to all others, and in for those to it. The links of clients stay.
func (w *world) around(machine int, out, in func(*fixtures.Proxy)) {
	for other := range w.networks {
		w.between(machine, other, out)
		w.between(other, machine, in)
	}
}

// restore has all links forward again.
func (w *world) restore() {
	for _, links := range w.links {
		for _, p := range links {
			p.Delay(nil)
			p.Restore()
		}
	}
}

// loses notes that clients of some servers need not be served during the fault.
func (w *world) loses(servers ...int) { w.lost = append(w.lost, servers...) }

// round uses the cluster for a while, disturbs it, and checks everything.
func (w *world) round(t *testing.T, r *chaosReport, is where, length time.Duration) {
	end := time.Now().Add(length)
	load := newTogether(w.servers[:3]...)
	load.quiet = w.sameClaims
	w.probes = newProbes(t, load, r)
	load.use(t, func() {
		defer w.probes.stop()
		w.probes.begin(w.servers[:3])
		for time.Now().Before(end) { // real time: of the test
			w.disturb(r, r.next(is))
		}
	})
}

// disturb injects a fault, heals it, and waits until all servers serve.
func (w *world) disturb(r *chaosReport, k *kind) {
	w.t.Helper()
	w.lost = nil
	w.probes.serve(w.t)
	w.t.Logf("%v: %s: %s; server %d decides, etcd's leader is %d", time.Since(r.began).Round(time.Second), w.t.Name(), k.name, w.decider(), w.leader())
	began := w.probes.now()
	heal := k.inject(w)
	r.mark(k.name)
	heal()
	w.restart()
	w.probes.serve(w.t)
	longest := w.probes.longest(began, w.lost)
	w.t.Logf("   clients of servers other than %v waited %v at most, and all were served after %v", w.lost, longest.Round(time.Millisecond), (w.probes.now() - began).Round(time.Millisecond))
	r.add(k, longest)
}

// restart starts the servers again that have ended by themselves.
func (w *world) restart() {
	w.t.Helper()
	for n, s := range w.servers[:3] {
		if s.Signal(0) != nil {
			w.t.Logf("   server %d has ended: %s", n, lastLine(s.Log()))
			w.again(n)
		}
	}
}

// again starts a server, again if it ends because it lags, or because nothing serves yet, as a service manager does.
func (w *world) again(n int) {
	w.t.Helper()
	harness.Eventually(w.t, func() error {
		err := w.servers[n].Start()
		if err != nil {
			w.t.Logf("   server %d did not start: %s", n, lastLine(w.servers[n].Log()))
		}
		return err
	})
}

func lastLine(text string) string { return lastLines(text, 1) }

// lastLines returns the last n lines of a text. etcd may still write something after the reason of its end.
func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// sameClaims checks that all servers get the claims of the first one. The history of a server that has received a snapshot comes later.
func (w *world) sameClaims(first []claim.Claim) {
	w.t.Helper()
	for n, s := range w.servers[1:3] {
		err := differ(first, harness.Stored(w.t, s), n+1)
		if err == nil {
			continue
		}
		w.t.Logf("   not yet: %.200v", err)
		harness.Until(w.t, fmt.Sprintf("server %d has the claims of the first one", n+1), func() bool {
			return differ(first, harness.Stored(w.t, s), n+1) == nil
		})
	}
}

// differ returns an error if a server has other claims than the first one.
func differ(first, other []claim.Claim, server int) error {
	texts := func(claims []claim.Claim) map[string]string {
		all := make(map[string]string, len(claims))
		for i := range claims {
			c := &claims[i]
			all[c.ID] = fmt.Sprintf("%s of %q on %q is %v, token %d, version %d", c.ID, c.Owner, c.Resource, c.Status, c.Token, c.Version)
		}
		return all
	}
	ours, theirs := texts(first), texts(other)
	for id, text := range ours {
		if theirs[id] != text {
			return fmt.Errorf("server 0 has %d claims: %s; server %d has %d: %s", len(ours), text, server, len(theirs), theirs[id])
		}
	}
	for id, text := range theirs {
		if ours[id] == "" {
			return fmt.Errorf("server 0 has %d claims, and server %d has %d: %s", len(ours), server, len(theirs), text)
		}
	}
	return nil
}

// pause lets a fault last for about some time.
func (w *world) pause(d time.Duration) {
	time.Sleep(d) // real time: of the fault
}
