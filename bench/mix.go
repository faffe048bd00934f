package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"
)

// mixRun is one run of the mix: on which database, with what load.
type mixRun struct {
	target string
	rate   string // activations a second, or max
	mixResult
}

// mix measures REST under the load of mix_job.go.
func mix(args []string) error {
	flags := flag.NewFlagSet("mix", flag.ContinueOnError)
	rates := flags.String("rates", "100,1000,max", "activations a second; max is what the machine gives")
	clients := flags.Int("clients", 1536, "how many clients there are at max")
	seconds := flags.Float64("seconds", 20, "how long one measurement lasts")
	targets := flags.String("targets", "raft,mariadb", "what to measure")
	dsn := flags.String("mysql", os.Getenv("LOCKET_TEST_MYSQL_DSN"), "another database server than a private MariaDB")
	warm, err := parse(flags, args, shortMix)
	if err != nil {
		return err
	}
	lab, err := newLab(*dsn, strings.Split(*targets, ","), warm)
	if err != nil {
		return err
	}
	defer lab.close()
	var (
		runs     []mixRun
		failures []error
	)
	for _, target := range lab.targets {
		for rate := range strings.SplitSeq(*rates, ",") {
			run, err := lab.measureMix(target, rate, *clients, time.Duration(*seconds*float64(time.Second)))
			if err != nil {
				failures = append(failures, fmt.Errorf("%s at %s: %w", target, rate, err))
				continue
			}
			fmt.Fprintf(os.Stderr, "%-8s %4s: %5.0f activations/s, of requests %s  max %7.2f ms\n",
				target, rate, run.Activations, run.All.sample, ms(run.All.Max))
			runs = append(runs, run)
		}
	}
	printMix(os.Stdout, runs)
	return errors.Join(failures...)
}

// measureMix loads a target with the mix.
func (l *lab) measureMix(target, rate string, clients int, duration time.Duration) (run mixRun, err error) {
	perSecond, err := parseRate(rate)
	if err != nil {
		return run, err
	}
	server, err := l.start(target)
	if err != nil {
		return run, err
	}
	defer server.stop()
	run = mixRun{target: target, rate: rate}
	err = child(&run.mixResult, "load-mix", "-address", server.http, "-rate", fmt.Sprint(perSecond),
		"-clients", strconv.Itoa(clients), "-duration", duration.String())
	return run, err
}

// parseRate returns 0 for max.
func parseRate(rate string) (float64, error) {
	if rate == "max" {
		return 0, nil
	}
	perSecond, err := strconv.ParseFloat(rate, 64)
	if err != nil || perSecond <= 0 {
		return 0, fmt.Errorf("invalid rate %q", rate)
	}
	return perSecond, nil
}

func printMix(w io.Writer, runs []mixRun) {
	fmt.Fprintln(w, "| database | asked for | activations/s | requests/s | p50 ms | p99 ms | max ms |")
	fmt.Fprintln(w, "| --- | ---: | ---: | ---: | ---: | ---: | ---: |")
	for _, r := range runs {
		fmt.Fprintf(w, "| %s | %s | %.0f %s\n", r.target, r.rate, r.Activations, r.All.cells())
	}
	for _, r := range runs {
		fmt.Fprintf(w, "\n| %s, %s | requests/s | p50 ms | p99 ms | max ms |\n", r.target, r.rate)
		fmt.Fprintln(w, "| --- | ---: | ---: | ---: | ---: |")
		for _, k := range r.Kinds {
			fmt.Fprintf(w, "| %s %s\n", k.Kind, k.cells())
		}
	}
}

func (t tally) cells() string {
	return fmt.Sprintf("| %.0f | %.2f | %.2f | %.2f |", t.PerSecond, ms(t.P50), ms(t.P99), ms(t.Max))
}
