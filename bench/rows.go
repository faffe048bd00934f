package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
)

// result is the result of one measurement, by metric.
type result map[string]float64

// The metrics. The table units has their units.
const (
	rate       = "rate" // operations: an acquire or a release, a hand-off, an activation
	p50, p99   = "p50", "p99"
	p999       = "p99.9"
	processor  = "processor" // processor time of the server for an operation
	busy       = "busy"      // processor time of an idle server
	busyBeside = "beside"    // processor time of the etcd beside it
	slowest    = "slowest"   // the slowest call during an outage, the median of the outages
	worst      = "worst"     // the slowest call of all outages
	written    = "written"   // bytes written by an idle server
	memory     = "memory"    // memory of the process
	listing    = "listing"   // additional memory while everything is listed
	start      = "start"     // from the start of the process until it is ready

	snapshotTime = "snapshot" // how long the slowest snapshot was written
)

var units = map[string]string{
	rate: "/s", p50: "ms", p99: "ms", p999: "ms", processor: "µs", busy: "% of a core", busyBeside: "% of a core", slowest: "ms", worst: "ms", written: "bytes/s", memory: "MiB", listing: "MiB", start: "s", snapshotTime: "s",
}

// measurement is repeated in each round.
type measurement struct {
	name string
	run  func(*lab) (result, error)
	// needs is a program that must be installed, "" for none.
	needs string
	// once: it is measured in the first round alone.
	once bool
}

// connections is how many connections the callers share.
const connections = 4

// measurements are in the order of their runs: compared ones are adjacent.
var measurements = []measurement{
	{name: "session-256", run: load("locket", "load-session", 256)},
	{name: "redis-256", run: load("redis", "load-redis", 256), needs: "redis"},
	{name: "echo-256", run: load("echo", "load-unary", 256)},
	{name: "locket-256", run: load("locket", "load-unary", 256)},
	{name: "million", run: (*lab).million},
	{name: "mariadb-256", run: load("mariadb", "load-unary", 256), needs: "mariadb"},
	{name: "etcd-256", run: load("etcd", "etcd", 256), needs: "etcd"},
	{name: "zookeeper-256", run: load("zookeeper", "zookeeper", 256), needs: "zookeeper"},
	{name: "echo-64", run: load("echo", "load-unary", 64)},
	{name: "locket-64", run: load("locket", "load-unary", 64)},
	{name: "redis-64", run: load("redis", "load-redis", 64), needs: "redis"},
	{name: "etcd-64", run: load("etcd", "etcd", 64), needs: "etcd"},
	{name: "zookeeper-64", run: load("zookeeper", "zookeeper", 64), needs: "zookeeper"},
	{name: "echo-1", run: load("echo", "load-unary", 1)},
	{name: "locket-1", run: load("locket", "load-unary", 1)},
	{name: "redis-1", run: load("redis", "load-redis", 1), needs: "redis"},
	{name: "hand-off-64", run: load("locket", "load-hand-off", 64)},
	{name: "mariadb-1", run: load("mariadb", "load-unary", 1), needs: "mariadb"},
	{name: "etcd-1", run: load("etcd", "etcd", 1), needs: "etcd"},
	{name: "zookeeper-1", run: load("zookeeper", "zookeeper", 1), needs: "zookeeper"},
	{name: "etcd-hand-off-64", run: load("etcd", "etcd-hand-off", 64), needs: "etcd"},
	{name: "zookeeper-hand-off-64", run: load("zookeeper", "zookeeper-hand-off", 64), needs: "zookeeper"},
	{name: "first", run: load("locket", "load-first", 1)},
	{name: "mariadb-first", run: load("mariadb", "load-first", 1), needs: "mariadb"},
	{name: "mix", run: (*lab).mix},
	{name: "idle", run: func(l *lab) (result, error) { return l.idle(0) }},
	{name: "idle-sessions", run: func(l *lab) (result, error) { return l.idle(l.size.sessions) }},
}

// figure is a metric of a measurement.
type figure struct{ Measurement, Metric string }

// row is a line of the table: a figure, and a reference that it is compared with, which has no measurement if there is
// none.
type row struct {
	Name      string
	What      string
	Of        figure
	Than      string // describes Reference
	Reference figure
}

func (r row) title() string {
	if r.Than == "" {
		return r.What
	}
	return r.What + ", of " + r.Than
}

var rows = []row{
	{"unary-256-echo", "Lock and Release, 256 callers", figure{"locket-256", rate}, "the echo", figure{"echo-256", rate}},
	{"unary-64-echo", "Lock and Release, 64 callers", figure{"locket-64", rate}, "the echo", figure{"echo-64", rate}},
	{"unary-1-echo", "Lock and Release, one caller", figure{"locket-1", rate}, "the echo", figure{"echo-1", rate}},
	{"unary-1-redis", "Lock and Release, one caller", figure{"locket-1", rate}, "Redis", figure{"redis-1", rate}},
	{"session-256-echo", "Streams of sessions, 256 in flight", figure{"session-256", rate}, "the unary echo", figure{"echo-256", rate}},
	{"session-256-redis", "Streams of sessions, 256 in flight", figure{"session-256", rate}, "Redis", figure{"redis-256", rate}},
	{"processor-256-echo", "The server's processor time for an operation, 256 callers", figure{"locket-256", processor}, "the echo's", figure{"echo-256", processor}},
	{"hand-off-64", "Hand-offs, 64 waiters", figure{"hand-off-64", rate}, "one caller's operations", figure{"locket-1", rate}},
	{"first", "The first lock of a new client, half of them within", figure{"first", p50}, "", figure{}},
	{"mariadb-first", "The first lock of a new client on MariaDB, half of them within", figure{"mariadb-first", p50}, "", figure{}},
	{"mix", "REST, a mix of requests: activations", figure{"mix", rate}, "", figure{}},
	{"million-256", "256 callers beside 2,000,000 claims and a line of 10,000", figure{"million", rate}, "an empty folder", figure{"locket-256", rate}},
	{"million-memory", "Memory of the process with 1,000,000 live claims, after that load", figure{"million", memory}, "", figure{}},
	{"million-start", "Start with 1,000,000 live claims", figure{"million", start}, "", figure{}},
	{"million-list", "Memory besides while a million locks are listed", figure{"million", listing}, "", figure{}},
	{"mariadb-1", "Lock and Release on MariaDB, one caller", figure{"mariadb-1", rate}, "the echo", figure{"echo-1", rate}},
	{"mariadb-256-echo", "Lock and Release on MariaDB, 256 callers", figure{"mariadb-256", rate}, "the echo", figure{"echo-256", rate}},
	{"idle-written", "A server without leases: written", figure{"idle", written}, "", figure{}},
	{"idle-processor", "A server without leases: processor", figure{"idle", busy}, "", figure{}},
	{"sessions-written", "10,000 sessions with 100,000 locks that do nothing: written", figure{"idle-sessions", written}, "", figure{}},
	{"sessions-processor", "10,000 sessions with 100,000 locks that do nothing: processor", figure{"idle-sessions", busy}, "", figure{}},
	{"sessions-memory", "10,000 sessions with 100,000 locks that do nothing: memory of the process", figure{"idle-sessions", memory}, "", figure{}},
}

// peerRows are the same workloads on other servers.
var peerRows = func() (rows []row) {
	for _, peer := range []struct{ name, title string }{{"redis", "Redis"}, {"zookeeper", "ZooKeeper"}, {"etcd", "etcd"}} {
		for _, n := range []string{"1", "64", "256"} {
			rows = append(rows, row{
				"unary-" + n + "-" + peer.name, loadOf(n),
				figure{"locket-" + n, rate},
				peer.title,
				figure{peer.name + "-" + n, rate},
			})
		}
		rows = append(rows, row{"session-256-" + peer.name, "Streams of sessions, 256 in flight", figure{"session-256", rate}, peer.title, figure{peer.name + "-256", rate}})
		if peer.name != "redis" { // Redis has no queue
			rows = append(rows, row{"hand-off-64-" + peer.name, "Hand-offs, 64 waiters", figure{"hand-off-64", rate}, peer.title, figure{peer.name + "-hand-off-64", rate}})
		}
	}
	return rows
}()

// loadOf describes Lock and Release by a number of callers.
func loadOf(callers string) string {
	_, load := measurement{name: "locket-" + callers}.load()
	return load
}

// selected returns the rows to measure.
func (o options) selected() (found []row) {
	from := rows
	switch {
	case o.peers:
		from = peerRows
	case o.cluster:
		from = clusterRows
	}
	for _, r := range from {
		if o.rows.MatchString(r.Name) {
			found = append(found, r)
		}
	}
	return found
}

// results are the results of the rounds, by measurement.
type results map[string][]result

// measureAll measures what the rows need, and returns the programs that are not installed.
func (l *lab) measureAll(rows []row) (all results, missing []string, err error) {
	var selected []measurement
	for _, m := range slices.Concat(measurements, clusterMeasurements) {
		needed := slices.ContainsFunc(rows, func(r row) bool { return r.Of.Measurement == m.name || r.Reference.Measurement == m.name })
		switch {
		case !needed:
		case m.needs == "" || l.installed(m.needs):
			selected = append(selected, m)
		case !slices.Contains(missing, m.needs):
			missing = append(missing, m.needs)
			fmt.Fprintf(os.Stderr, "warning: %s is not installed (tools/deps tools/packages-peers): the rows with it are left out\n", m.needs)
		}
	}
	if err := l.prepare(selected); err != nil {
		return nil, nil, err
	}
	all = make(results)
	begin, steps := time.Now(), l.rounds*len(selected)
	for step := range steps {
		m := selected[step%len(selected)]
		if m.once && step >= len(selected) {
			continue
		}
		found, err := m.run(l)
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", m.name, err)
		}
		all[m.name] = append(all[m.name], found)
		fmt.Fprintf(os.Stderr, "%3d of %d, %4.0f s: %-22s %s\n", step+1, steps, time.Since(begin).Seconds(), m.name, found)
	}
	return all, missing, nil
}

// String implements fmt.Stringer.
func (r result) String() (text string) {
	for _, metric := range []string{rate, p50, p99, p999, processor, busy, busyBeside, slowest, worst, written, memory, listing, start, snapshotTime} {
		if value, ok := r[metric]; ok {
			text += fmt.Sprintf("  %s %s", metric, inUnits(value, metric))
		}
	}
	return text
}

func inUnits(value float64, metric string) string {
	digits := 0
	if metric != rate && metric != written && value < 100 {
		digits = 2
	}
	gap := " "
	if metric == rate {
		gap = ""
	}
	return withCommas(fmt.Sprintf("%.*f", digits, value)) + gap + units[metric]
}

// withCommas separates the thousands of a number.
func withCommas(number string) string {
	whole, fraction, found := strings.Cut(number, ".")
	for i := len(whole) - 3; i > 0; i -= 3 {
		whole = whole[:i] + "," + whole[i:]
	}
	if found {
		whole += "." + fraction
	}
	return whole
}
