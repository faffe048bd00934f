// Command bench measures Locket, always durable and with history, and what its figures are compared with: a bare gRPC
// echo of the same messages, Redis, or Locket itself in another situation. The rows of the table are in rows.go.
//
//	make bench                                   # all rows; writes docs/benchmarks.md and docs/benchmarks/
//	go run -C bench .                               # prints the table alone
//	go run -C bench . -rows 'unary|session'         # the rows whose names match
//	go run -C bench . -rounds 5 -seconds 10
//	go run -C bench . -quick                        # a moment for each: whether it works; the figures mean nothing
//	make bench-peers                             # Redis, ZooKeeper and etcd, if they are installed
//	make bench-cluster                           # three servers of Locket, etcd and ZooKeeper
//	make profile                                 # what the compiler is to know of the server under these loads
//
// The measurements of a round run one after the other, and there are several rounds, so that changes of the machine's
// load affect all measurements. A ratio is the median of the rounds' ratios. Load and server are separate processes.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"regexp"
	"runtime/debug"
	"time"

	"github.com/locket-service/locket/fixtures"
)

func main() {
	role, args := bench, os.Args[1:]
	if len(args) > 0 && roles[args[0]] != nil {
		debug.SetGCPercent(1000) // as a server does whose heap is small
		role, args = roles[args[0]], args[1:]
	}
	err := role(args)
	fixtures.Shutdown()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// roles are the functions of child processes of this program.
var roles = map[string]func([]string) error{
	"serve-echo":    serveEcho,
	"load-unary":    loadUnary,
	"load-session":  loadSession,
	"load-hand-off": loadHandOff,
	"load-redis":    loadRedis,
	"load-mix":      loadMix,
	"load-idle":     loadIdle,
	"load-first":    loadFirst,
	"load-pass":     loadPass,
	"load-outage":   loadOutage,

	"load-snapshots": loadSnapshots,
}

// options configure a run.
type options struct {
	duration time.Duration // of one measurement
	rounds   int
	rows     *regexp.Regexp
	peers    bool
	cluster  bool
	faults   int // how often a server that decides is killed, and stopped
	quick    bool
	docs     string // the folder of the generated documents, "" for none
	json     string // the file of the raw results, "" for none
	profile  string // the file for processor profiles of servers, "" for none
	folder   string // the parent folder of the data
	dsn      string // of a database server to use instead of a private MariaDB
	size     sizes
}

// sizes are the sizes of the measurements.
type sizes struct {
	claims   int           // live ones, and the same number of finished ones
	line     int           // number of claims that wait for one resource
	sessions int           // number of idle sessions, with ten locks each
	clients  int           // of the mix of REST requests
	idle     time.Duration // how long an idle server is measured
	outage   time.Duration // how long callers are watched while a server ends
	some     int           // number of idle sessions of three servers
	missed   int           // number of records that a server misses
	warmUp   time.Duration // how long to write to a new MariaDB first
}

var (
	fullSize  = sizes{claims: 1_000_000, line: 10_000, sessions: 10_000, clients: 1536, some: 1000, outage: 5 * time.Second, missed: 100_000, idle: 10 * time.Second, warmUp: 20 * time.Second}
	quickSize = sizes{claims: 2000, line: 50, sessions: 20, clients: 30, some: 20, outage: time.Second, missed: 50, idle: 300 * time.Millisecond}
)

func parseOptions(args []string) (o options, list bool, err error) {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	seconds := flags.Float64("seconds", 4, "how long one measurement lasts")
	rows := flags.String("rows", "", "a regular expression: measure the rows whose names match")
	flags.IntVar(&o.rounds, "rounds", 3, "how often everything is measured")
	flags.BoolVar(&o.peers, "peers", false, "compare with Redis, ZooKeeper and etcd")
	flags.BoolVar(&o.cluster, "cluster", false, "measure three servers beside three of etcd and ZooKeeper")
	flags.IntVar(&o.faults, "faults", 5, "how often the server that decides is killed, and stopped")
	flags.BoolVar(&o.quick, "quick", false, "measure everything once, for a moment: whether the benchmark works")
	flags.BoolVar(&list, "list", false, "print the names of the rows")
	flags.StringVar(&o.docs, "docs", "", "a folder for benchmarks.md and benchmarks/")
	flags.StringVar(&o.json, "json", "", "a file for the raw results")
	flags.StringVar(&o.profile, "profile", "", "a file for a processor profile of Locket's servers, for Go's compiler")
	flags.StringVar(&o.folder, "folder", "", "a folder on the disk to measure (default: the folder of temporary files)")
	flags.StringVar(&o.dsn, "mysql", os.Getenv("LOCKET_TEST_MYSQL_DSN"), "another database server than a private MariaDB")
	if err := flags.Parse(args); err != nil {
		return o, false, err
	}
	if o.rows, err = regexp.Compile(*rows); err != nil {
		return o, false, fmt.Errorf("-rows: %w", err)
	}
	switch {
	case flags.NArg() > 0: // an argument would be ignored
		return o, false, fmt.Errorf("%q is no flag", flags.Arg(0))
	case o.faults < 1:
		return o, false, errors.New("-faults must be at least 1")
	case o.rounds < 1 || !(*seconds > 0 && *seconds <= 3600):
		return o, false, errors.New("-rounds must be at least 1, and -seconds above 0 and at most 3600")
	}
	o.duration, o.size = time.Duration(*seconds*float64(time.Second)), fullSize
	if o.quick {
		o.duration, o.rounds, o.faults, o.size = 100*time.Millisecond, 1, 1, quickSize
	}
	return o, list, nil
}

func bench(args []string) error {
	o, list, err := parseOptions(args)
	if err != nil {
		return err
	}
	rows := o.selected()
	if len(rows) == 0 {
		return errors.New("no row has such a name; -list names them")
	}
	if list {
		for _, r := range rows {
			fmt.Printf("%-24s %s\n", r.Name, r.title())
		}
		return nil
	}
	lab, err := newLab(o)
	if err != nil {
		return err
	}
	defer lab.close()
	report := &report{Machine: describeMachine(lab.folder), Quick: o.quick, Rounds: o.rounds, Seconds: o.duration.Seconds(), Began: time.Now().UTC()}
	for _, warning := range report.Machine.Warnings {
		fmt.Fprintln(os.Stderr, "warning:", warning)
	}
	if report.Results, report.Missing, err = lab.measureAll(rows); err != nil {
		return err
	}
	if text := said(lab.etcd("--version")); text != "" {
		report.Machine.Versions["etcd"] = version(text)
	}
	report.fill(rows)
	report.print(os.Stdout)
	if o.profile != "" {
		return errors.Join(report.write(o), lab.mergeProfiles(o.profile))
	}
	return report.write(o)
}
