package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"sync/atomic"
	"time"
)

const (
	// maxJobs is how many jobs may run concurrently before the load stops.
	maxJobs = 10_000
	// drain limits how long the last jobs may take.
	drain = 30 * time.Second
)

// tally has the results of the requests of one kind, in milliseconds.
type tally struct {
	Kind                     string
	PerSecond, P50, P99, Max float64
}

// mixResult is the result of one run of the mix.
type mixResult struct {
	Activations float64 // per second
	All         tally
	Kinds       []tally
}

// loadMix is the role that sends the requests. It prints a mixResult as JSON.
func loadMix(args []string) error {
	flags := flag.NewFlagSet("load-mix", flag.ContinueOnError)
	address := flags.String("address", "", "where to send requests")
	rate := flags.Float64("rate", 0, "how many activations a second, 0 for as many as can be")
	clients := flags.Int("clients", 1, "how many there are when the rate is 0")
	duration := flags.Duration("duration", time.Second, "for how long")
	if err := flags.Parse(args); err != nil {
		return err
	}
	result, err := driveMix(*address, *rate, *clients, *duration)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(result)
}

// driveMix warms up, measures, waits for the jobs to end, and checks the books.
func driveMix(address string, rate float64, clients int, duration time.Duration) (mixResult, error) {
	groups := max(clients/replicas, 1)
	resources := groups * resourcesUnderWay
	if rate > 0 {
		resources = int(rate/activationsPerGroup*resourcesPerRate) + 1
	}
	t, stop := newTraffic(address, rate > 0, resources, duration)
	defer stop()
	if t.open {
		t.arrive(rate / activationsPerGroup)
	} else {
		for range groups {
			t.busy.Go(t.repeat)
		}
	}
	t.busy.Wait()
	if err := t.settle(); err != nil {
		return mixResult{}, err
	}
	return t.result(duration), nil
}

func newTraffic(address string, open bool, resources int, duration time.Duration) (t *traffic, stop func()) {
	t = &traffic{open: open}
	for i := range resources {
		t.books = append(t.books, &book{resource: fmt.Sprintf("mix-%d", i)})
	}
	t.begin = time.Now().Add(duration / 4)
	t.end = t.begin.Add(duration)
	bounded, cancel := context.WithDeadlineCause(context.Background(), t.end.Add(drain), errors.New("jobs are left that do not end"))
	t.ctx, t.abort = context.WithCancelCause(bounded)
	t.links = newLinks(t.ctx, address)
	return t, func() {
		t.abort(nil)
		cancel()
	}
}

// arrive starts groups of jobs at random times, whether or not earlier ones have ended.
func (t *traffic) arrive(perSecond float64) {
	var groups atomic.Int64
	gap, random := float64(time.Second)/perSecond, rand.New(rand.NewPCG(4, 100)) // the same in every run
	for due := time.Now(); due.Before(t.end) && t.ctx.Err() == nil; due = due.Add(time.Duration(random.ExpFloat64() * gap)) {
		time.Sleep(time.Until(due))
		if groups.Add(1) > maxJobs/replicas {
			t.abort(fmt.Errorf("%d jobs are under way at once: the server does not keep up", maxJobs))
		}
		t.busy.Go(func() {
			defer groups.Add(-1)
			t.group(due)
		})
	}
}

// repeat runs one group of jobs after the other.
func (t *traffic) repeat() {
	for time.Now().Before(t.end) && t.ctx.Err() == nil {
		t.group(time.Now())
	}
}

// report records an error, and ends the run at the first.
func (t *traffic) report(err error) {
	if err != nil {
		t.abort(err)
	}
}

// settle checks that all claims have ended once all jobs have.
func (t *traffic) settle() error {
	if err := context.Cause(t.ctx); err != nil {
		return err
	}
	for _, status := range []string{"active", "waiting"} {
		left, err := t.list(time.Now(), "status="+status)
		if err != nil {
			return err
		}
		if len(left) > 0 {
			return fmt.Errorf("at the end there are %s claims: %+v", status, left)
		}
	}
	return nil
}

func (t *traffic) result(duration time.Duration) mixResult {
	r := mixResult{Activations: float64(t.activations.Load()) / duration.Seconds()}
	var all histogram
	for k := range kinds {
		r.Kinds = append(r.Kinds, tallyOf(kindNames[k], &t.histograms[k], duration))
		all.addAll(&t.histograms[k])
	}
	r.All = tallyOf("all", &all, duration)
	return r
}

func tallyOf(kind string, h *histogram, duration time.Duration) tally {
	return tally{kind, float64(h.count) / duration.Seconds(), ms(h.quantile(0.5)), ms(h.quantile(0.99)), ms(h.max)}
}
