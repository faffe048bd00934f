package main

import (
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/locket-service/locket/models"
)

// names is how many locks each caller goes round.
const names = 100

// sample is one measurement. An operation is an acquire or a release.
type sample struct {
	PerSecond float64
	P50, P99  time.Duration
}

func (s sample) String() string {
	return fmt.Sprintf("%8.0f/s  p50 %7.2f ms  p99 %7.2f ms", s.PerSecond, ms(s.P50), ms(s.P99))
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// load is the process that makes the requests. It prints a sample as JSON.
func load(args []string) error {
	flags := flag.NewFlagSet("load", flag.ContinueOnError)
	address := flags.String("address", "", "where to send requests")
	callers := flags.Int("callers", 1, "how many at once")
	connections := flags.Int("connections", 0, "how many connections the callers share, 0 for one each")
	duration := flags.Duration("duration", time.Second, "for how long")
	if err := flags.Parse(args); err != nil {
		return err
	}
	clients := make([]models.LocketClient, min(cmp.Or(*connections, *callers), *callers))
	for i := range clients {
		conn, err := grpc.NewClient(*address,
			grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithInitialWindowSize(1<<20), grpc.WithInitialConnWindowSize(1<<20))
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close() }()
		clients[i] = models.NewLocketClient(conn)
	}
	result, err := drive(clients, *callers, *duration)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(result)
}

// drive warms up, and then measures.
func drive(clients []models.LocketClient, callers int, duration time.Duration) (sample, error) {
	if _, err := run(clients, callers, duration/5); err != nil {
		return sample{}, err
	}
	start := time.Now()
	latencies, err := run(clients, callers, duration)
	took := time.Since(start)
	if err != nil {
		return sample{}, err
	}
	slices.Sort(latencies)
	at := func(q float64) time.Duration { return latencies[int(q*float64(len(latencies)-1))] }
	return sample{PerSecond: float64(len(latencies)) / took.Seconds(), P50: at(0.5), P99: at(0.99)}, nil
}

func run(clients []models.LocketClient, callers int, duration time.Duration) ([]time.Duration, error) {
	var (
		group   sync.WaitGroup
		mu      sync.Mutex
		all     []time.Duration
		failure error
	)
	end := time.Now().Add(duration)
	for i := range callers {
		group.Go(func() {
			latencies, err := pairs(clients[i%len(clients)], i, end)
			mu.Lock()
			defer mu.Unlock()
			all = append(all, latencies...)
			if err != nil {
				failure = err
			}
		})
	}
	group.Wait()
	return all, failure
}

// pairs acquires and releases one lock after the other.
func pairs(client models.LocketClient, caller int, end time.Time) (latencies []time.Duration, err error) {
	ctx, cancel := context.WithDeadline(context.Background(), end.Add(30*time.Second))
	defer cancel()
	owner := fmt.Sprintf("caller-%d", caller)
	for i := 0; time.Now().Before(end); i++ {
		resource := &models.Resource{
			Key: fmt.Sprintf("bench/%d/%d", caller, i%names), Owner: owner,
			Value: "10.0.0.1:8080", TypeCode: models.TypeCode_LOCK,
		}
		start := time.Now()
		if _, err := client.Lock(ctx, &models.LockRequest{Resource: resource, TtlInSeconds: 60}); err != nil {
			return latencies, err
		}
		middle := time.Now()
		if _, err := client.Release(ctx, &models.ReleaseRequest{Resource: resource}); err != nil {
			return latencies, err
		}
		latencies = append(latencies, middle.Sub(start), time.Since(middle))
	}
	return latencies, nil
}
