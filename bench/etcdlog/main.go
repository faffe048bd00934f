// Command etcdlog measures etcd as the log of a cluster: how fast it is, what its faults do, and which errors they show.
//
//	go run -C bench ./etcdlog rows      # 1, 64 and 256 callers: about two minutes a round
//	go run -C bench ./etcdlog faults    # hung disks, pauses and kills; hung disks need root
//	go run -C bench ./etcdlog errors    # which error appears where
//	go run -C bench ./etcdlog outcome   # kills the leader among a thousand appends
//	go run -C bench ./etcdlog reads     # a barrier, and 100,000 records that a server lacks
//	go run -C bench ./etcdlog idle      # what a cluster without leases costs
//	go run -C bench ./etcdlog embedding # what etcd's server adds to the program
//
// Debian's etcd 3.4 is used if -etcd34 names its program: apt-get download etcd-server, dpkg -x.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/locket-service/locket/fixtures"
)

// lab is the folder, the programs and the options of a run.
type lab struct {
	self, folder, parent  string
	etcd34, match, member string
	rounds, runs          int
	seconds               float64
	verbose, variants     bool
}

func (l *lab) duration() time.Duration { return time.Duration(l.seconds * float64(time.Second)) }

func (l *lab) program(name string) string { return filepath.Join(l.folder, name) }

var commands = map[string]func(*lab) error{"rows": rows, "faults": faults, "errors": errorsTable, "outcome": outcomes, "reads": reads, "idle": idle, "embedding": embedding}

func main() {
	var err error
	if len(os.Args) > 1 && os.Args[1] == "member" {
		err = runMember(os.Args[2:])
	} else {
		err = run(os.Args[1:])
	}
	fixtures.Shutdown()
	if err != nil {
		fmt.Fprintln(os.Stderr, "etcdlog:", err)
		os.Exit(1)
	}
}

func run(args []string) (err error) {
	if len(args) == 0 || commands[args[0]] == nil {
		return errors.New("the first argument must be rows, faults, errors, outcome, reads, idle or embedding")
	}
	l := &lab{}
	flags := flag.NewFlagSet(args[0], flag.ContinueOnError)
	flags.StringVar(&l.parent, "folder", "", "the parent folder of the data")
	flags.StringVar(&l.etcd34, "etcd34", "", "the program of etcd 3.4")
	flags.StringVar(&l.match, "rows", "", "only rows whose name matches this regular expression")
	flags.StringVar(&l.member, "member", "", "faults: further flags of the members, such as -epoch-only, or -try 500ms -doubles")
	flags.IntVar(&l.rounds, "rounds", 1, "how often to measure")
	flags.Float64Var(&l.seconds, "seconds", 1.5, "how long to measure a row")
	flags.BoolVar(&l.variants, "variants", false, "rows: also several appends at once")
	flags.BoolVar(&l.verbose, "v", false, "print what the members do")
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	if l.self, err = os.Executable(); err != nil {
		return err
	}
	if l.folder, err = os.MkdirTemp(l.parent, "etcdlog-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(l.folder)) }()
	if err := l.build(); err != nil {
		return err
	}
	return commands[args[0]](l)
}

// build builds etcd 3.7 and the loads of the benchmark, and links etcd 3.4.
func (l *lab) build() error {
	for name, pkg := range map[string]string{
		"etcd-3.7": "go.etcd.io/etcd/server/v3", "load": "github.com/locket-service/locket/bench", "peers": "github.com/locket-service/locket/bench/peers",
	} {
		build := exec.Command("go", "build", "-pgo=off", "-o", l.program(name), pkg)
		build.Stderr = os.Stderr
		if err := build.Run(); err != nil {
			return fmt.Errorf("build %s: %w", name, err)
		}
	}
	if l.etcd34 == "" {
		return nil
	}
	program, err := filepath.Abs(l.etcd34)
	if err != nil {
		return err
	}
	return os.Symlink(program, l.program("etcd-3.4"))
}

// versions are the versions of etcd that are there.
func (l *lab) versions() []string {
	if l.etcd34 == "" {
		return []string{"3.7"}
	}
	return []string{"3.4", "3.7"}
}
