// Command peers loads ZooKeeper and etcd as command bench loads Locket, for the comparison of `make bench-peers`. It is a module of its own, so
// that Locket does not depend on their clients.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	// names is the number of locks of each caller, which it takes in turn.
	names = 100
	// ttl is the TTL of leases and sessions, in seconds.
	ttl = 60
	// value is stored with each lock.
	value = "10.0.0.1:8080"
)

// caller carries out the operation of one caller with a number: an even one acquires, an odd one releases.
type caller func(ctx context.Context, n int) error

// loads makes the callers of each load. They share connections.
var loads = map[string]func(addresses []string, connections, callers int) ([]caller, error){
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
	address := flags.String("address", "", "where the servers listen, with commas between them")
	number := flags.Int("callers", 1, "how many at once")
	connections := flags.Int("connections", 1, "how many connections they share")
	duration := flags.Duration("duration", time.Second, "for how long")
	flags.String("pid", "", "not used")
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	callers, err := loads[args[0]](strings.Split(*address, ","), *connections, *number)
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

// drive runs the operations of all callers for a while. Each caller carries out an even number of them, so that it holds nothing at the end.
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

// handOff returns a caller that takes a lock and releases it at once. Each operation does both, and counts as one hand-off.
func handOff(lock, unlock func(context.Context) error) caller {
	return func(ctx context.Context, _ int) error {
		if err := lock(ctx); err != nil {
			return err
		}
		return unlock(ctx)
	}
}
