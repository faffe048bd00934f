package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/locket-service/locket/models"
)

// names is how many locks each caller uses in turn.
const names = 100

// list is a flag of several values, with commas between them.
type list []string

// Set implements flag.Value.
func (l *list) Set(text string) error {
	*l = strings.Split(text, ",")
	return nil
}

// String implements flag.Value.
func (l *list) String() string { return strings.Join(*l, ",") }

// of returns the value for the i-th user.
func (l list) of(i int) string { return l[i%len(l)] }

// loadFlags are the flags of every role that loads a server.
type loadFlags struct {
	addresses   list // of the servers, for the connections in turn
	pids        list // of the servers' processes
	beside      list // of processes that are watched apart from them
	folders     list // of the servers' data
	victim      int  // the process that an outage begins with
	signal      int  // that it gets
	callers     int  // concurrent callers, or concurrent commands
	connections int
	duration    time.Duration
}

func parseLoad(args []string) (f loadFlags, err error) {
	flags := flag.NewFlagSet("load", flag.ContinueOnError)
	flags.Var(&f.addresses, "address", "where to send requests")
	flags.Var(&f.pids, "pid", "the servers' processes")
	flags.Var(&f.beside, "beside", "processes that are watched apart from them")
	flags.Var(&f.folders, "folder", "the servers' folders")
	flags.IntVar(&f.victim, "victim", 0, "the process that an outage begins with")
	flags.IntVar(&f.signal, "signal", 0, "the signal that it gets")
	flags.IntVar(&f.callers, "callers", 1, "how many at once")
	flags.IntVar(&f.connections, "connections", 1, "how many connections they share")
	flags.DurationVar(&f.duration, "duration", time.Second, "for how long")
	return f, flags.Parse(args)
}

// worker does operations, one after the other or several concurrently, until a point in time, but at least one, and
// records how long each took.
type worker func(end time.Time, took *histogram) error

// drive warms up, measures, and prints the result as JSON.
func (f loadFlags) drive(workers []worker) error {
	if _, err := runAll(workers, f.duration/5); err != nil {
		return err
	}
	before, err := f.pids.processorTime()
	if err != nil {
		return err
	}
	begin := time.Now()
	took, err := runAll(workers, f.duration)
	if err != nil {
		return err
	}
	elapsed := time.Since(begin)
	after, err := f.pids.processorTime()
	if err != nil {
		return err
	}
	n := float64(took.count)
	return json.NewEncoder(os.Stdout).Encode(result{
		rate: n / elapsed.Seconds(), p50: ms(took.quantile(0.5)), p99: ms(took.quantile(0.99)), p999: ms(took.quantile(0.999)),
		processor: float64((after - before).Microseconds()) / n,
	})
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// runAll runs the workers concurrently until a duration has passed and all have ended.
func runAll(workers []worker, duration time.Duration) (all *histogram, failure error) {
	var (
		group sync.WaitGroup
		mu    sync.Mutex
	)
	all = &histogram{}
	end := time.Now().Add(duration)
	for _, work := range workers {
		group.Go(func() {
			var took histogram
			err := work(end, &took)
			mu.Lock()
			defer mu.Unlock()
			all.addAll(&took)
			failure = errors.Join(failure, err)
		})
	}
	group.Wait()
	return all, failure
}

// dial returns gRPC connections to a server, with room for many calls.
func (f loadFlags) dial() (clients []models.LocketClient, err error) {
	for i := range f.connections {
		conn, err := grpc.NewClient(f.addresses.of(i), grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithInitialWindowSize(1<<20), grpc.WithInitialConnWindowSize(1<<20))
		if err != nil {
			return nil, err
		}
		clients = append(clients, models.NewLocketClient(conn)) // closed when the process ends
	}
	return clients, nil
}

// loadUnary is the role of callers of Lock and Release.
func loadUnary(args []string) error {
	f, err := parseLoad(args)
	if err != nil {
		return err
	}
	clients, err := f.dial()
	if err != nil {
		return err
	}
	var workers []worker
	for caller := range f.callers {
		workers = append(workers, pairs(clients[caller%len(clients)], caller))
	}
	return f.drive(workers)
}

// pairs acquires and releases one lock after the other.
func pairs(client models.LocketClient, caller int) worker {
	owner := fmt.Sprintf("caller-%d", caller)
	return func(end time.Time, took *histogram) error {
		ctx, cancel := context.WithDeadline(context.Background(), end.Add(30*time.Second))
		defer cancel()
		for i := 0; i == 0 || time.Now().Before(end); i++ {
			resource := &models.Resource{
				Key: fmt.Sprintf("bench/%d/%d", caller, i%names), Owner: owner,
				Value: "10.0.0.1:8080", TypeCode: models.TypeCode_LOCK,
			}
			begin := time.Now()
			if _, err := client.Lock(ctx, &models.LockRequest{Resource: resource, TtlInSeconds: 60}); err != nil {
				return err
			}
			middle := time.Now()
			if _, err := client.Release(ctx, &models.ReleaseRequest{Resource: resource}); err != nil {
				return err
			}
			took.add(middle.Sub(begin))
			took.add(time.Since(middle))
		}
		return nil
	}
}
