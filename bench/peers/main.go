// Command peers loads ZooKeeper and etcd as command bench loads Locket, for the comparison of `make bench-peers`. Its module is its own, so
// that nothing of Locket depends on theirs.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"
)

const (
	// names is how many locks each caller goes round.
	names = 100
	// ttl is that of leases and sessions, in seconds.
	ttl = 60
	// value is stored with each lock.
	value = "10.0.0.1:8080"
)

// caller is what one caller does: its operation with a number, which are even for what acquires and odd for what releases.
type caller func(ctx context.Context, n int) error

// loads make callers that share connections.
var loads = map[string]func(address string, connections, callers int) ([]caller, error){
	"etcd":               loadEtcd,
	"etcd-hand-off":      handOffEtcd,
	"zookeeper":          loadZooKeeper,
	"zookeeper-hand-off": handOffZooKeeper,
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "peers:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) == 0 || loads[args[0]] == nil {
		return errors.New("the first argument must be etcd, etcd-hand-off, zookeeper or zookeeper-hand-off")
	}
	flags := flag.NewFlagSet(args[0], flag.ContinueOnError)
	address := flags.String("address", "", "where the server listens")
	number := flags.Int("callers", 1, "how many at once")
	connections := flags.Int("connections", 1, "how many connections they share")
	duration := flags.Duration("duration", time.Second, "for how long")
	flags.Int("pid", 0, "not used")
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	callers, err := loads[args[0]](*address, *connections, *number)
	if err != nil {
		return err
	}
	if _, err := drive(callers, *duration/5); err != nil { // warm up
		return err
	}
	begin := time.Now()
	took, err := drive(callers, *duration)
	elapsed := time.Since(begin).Seconds()
	if err != nil {
		return err
	}
	slices.Sort(took)
	at := func(share float64) float64 { return took[int(share*float64(len(took)-1))].Seconds() * 1000 }
	return json.NewEncoder(os.Stdout).Encode(map[string]float64{"rate": float64(len(took)) / elapsed, "p50": at(0.5), "p99": at(0.99)})
}

// drive has all callers do one operation after the other for a while. Each does an even number of them, so that it holds nothing at the end.
func drive(callers []caller, duration time.Duration) (took []time.Duration, failure error) {
	var (
		group sync.WaitGroup
		mu    sync.Mutex
	)
	end := time.Now().Add(duration)
	ctx, cancel := context.WithDeadline(context.Background(), end.Add(time.Minute))
	defer cancel()
	for _, do := range callers {
		group.Go(func() {
			var mine []time.Duration
			var err error
			for n := 0; err == nil && (n < 2 || n%2 == 1 || time.Now().Before(end)); n++ {
				begin := time.Now()
				err = do(ctx, n)
				mine = append(mine, time.Since(begin))
			}
			mu.Lock()
			defer mu.Unlock()
			took, failure = append(took, mine...), errors.Join(failure, err)
		})
	}
	group.Wait()
	return took, failure
}

// handOff is a caller that takes a lock and gives it up at once. An operation is both: a hand-off.
func handOff(lock, unlock func(context.Context) error) caller {
	return func(ctx context.Context, _ int) error {
		if err := lock(ctx); err != nil {
			return err
		}
		return unlock(ctx)
	}
}
