// Command bench measures acquire and release of distinct locks over gRPC, with durable
// commits and history, against a bare unary echo of the same messages that is served with
// the same options: server and load in two processes, in turn, in one run.
//
//	go run ./bench                      # everything: about seven minutes
//	go run ./bench -short               # about a minute
//	go run ./bench -callers 256 -rounds 3 -seconds 3 -targets echo,raft
//
// A caller acquires and releases one lock after the other, on a connection of its own, as
// the clients of a lock service do; -connections lets callers share some.
//
// It prints a Markdown table of medians. Absolute figures are those of one machine on one
// day; the ratios to the echo are what to compare.
//
//	go run ./bench mix                  # or: make bench BENCHFLAGS=mix; about three minutes
//	go run ./bench mix -seconds 2 -rates 100,max -targets raft
//
// measures REST under the requests of a whole day, as mix_job.go mixes them: 100 and 1,000
// activations a second, then as many as can be. A run fails at the first answer that is not
// as it should be, and when the server does not keep up.
//
//	go run ./bench session              # about three minutes
//
// measures lock and unlock over the streams of sessions, 256 under way, beside unary calls.
//
//	go run ./bench idle                 # about three minutes
//
// measures what 10,000 sessions with 100,000 locks cost while nothing happens.
package main

import (
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

func main() {
	role, args := bench, os.Args[1:]
	if len(args) > 0 && roles[args[0]] != nil {
		role, args = roles[args[0]], args[1:]
	}
	if err := role(args); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// roles are what this program does besides, most of it in processes of its own.
var roles = map[string]func([]string) error{
	"mix":          mix,
	"session":      sessionBench,
	"idle":         idle,
	"serve-echo":   serveEcho,
	"serve-single": serveSingle,
	"load":         load,
	"load-mix":     loadMix,
	"load-session": loadSession,
	"load-idle":    loadIdle,
}

func bench(args []string) error {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	callers := flags.String("callers", "1,16,64,256,1024", "numbers of concurrent callers")
	connections := flags.Int("connections", 0, "how many connections the callers share, 0 for one each")
	rounds := flags.Int("rounds", 3, "how often each target is measured")
	seconds := flags.Float64("seconds", 4, "how long one measurement lasts")
	targets := flags.String("targets", "echo,raft,mariadb,single", "what to measure")
	dsn := flags.String("mysql", os.Getenv("LOCKET_TEST_MYSQL_DSN"), "another database server than a private MariaDB")
	warm, err := parse(flags, args, shortBench)
	if err != nil {
		return err
	}
	counts, err := parseInts(*callers)
	if err != nil {
		return err
	}
	lab, err := newLab(*dsn, strings.Split(*targets, ","), warm)
	if err != nil {
		return err
	}
	defer lab.close()
	table := newTable(lab.targets)
	for _, n := range counts {
		for round := range *rounds {
			for _, target := range lab.targets {
				sample, err := lab.measure(target, n, *connections, time.Duration(*seconds*float64(time.Second)))
				if err != nil {
					return fmt.Errorf("%s with %d callers: %w", target, n, err)
				}
				fmt.Fprintf(os.Stderr, "%4d callers, round %d, %-8s %s\n", n, round+1, target, sample)
				table.add(n, target, sample)
			}
		}
	}
	table.print(os.Stdout)
	return nil
}

func parseInts(list string) (ints []int, err error) {
	for field := range strings.SplitSeq(list, ",") {
		n, err := strconv.Atoi(field)
		if err != nil || n < 1 {
			return nil, fmt.Errorf("invalid number of callers %q", field)
		}
		ints = append(ints, n)
	}
	return ints, nil
}
