package main

import (
	"context"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/locket-service/locket/models"
)

// commandSize is the size of a command in a record.
const commandSize = 200

// load is the result of a measurement.
type load struct {
	Rate      float64 `json:"rate"`
	P50       float64 `json:"p50"` // in ms
	P99       float64 `json:"p99"`
	Processor float64 `json:"processor"` // of all servers, in µs for each operation
	Reorders  int     `json:"reorders"`
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// measure loads a batcher with callers inside its process.
func measure(b *batcher, callers int, duration time.Duration) load {
	run := func(d time.Duration) (took []time.Duration) {
		var group sync.WaitGroup
		var mu sync.Mutex
		end := time.Now().Add(d)
		for range callers {
			group.Go(func() {
				var mine []time.Duration
				body := make([]byte, commandSize)
				for time.Now().Before(end) {
					begin := time.Now()
					if b.submit(body) != nil {
						return
					}
					mine = append(mine, time.Since(begin))
				}
				mu.Lock()
				defer mu.Unlock()
				took = append(took, mine...)
			})
		}
		group.Wait()
		return took
	}
	run(duration / 5)
	begin := time.Now()
	took := run(duration)
	elapsed := time.Since(begin)
	if len(took) == 0 {
		return load{}
	}
	slices.Sort(took)
	at := func(share float64) float64 { return ms(took[int(share*float64(len(took)-1))]) }
	b.mu.Lock()
	defer b.mu.Unlock()
	return load{Rate: float64(len(took)) / elapsed.Seconds(), P50: at(0.5), P99: at(0.99), Reorders: b.reorders}
}

// callService locks something.
func callService(address string) error {
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	_, err = models.NewLocketClient(conn).Lock(ctx, &models.LockRequest{Resource: &models.Resource{Key: "first"}})
	return err
}
