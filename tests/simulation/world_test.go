package simulation_test

import (
	"context"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/locket-service/locket/db/replica/order/ordertest"
	"github.com/locket-service/locket/db/replica/record"
	"github.com/locket-service/locket/tests/recorder"
)

// world is one simulation.
type world struct {
	testing.TB
	*recorder.Recorder
	seed    uint64
	trace   trace
	reached *reached
	log     *ordertest.Shared
	folder  string
	servers []*server
	keys    []string
	held    holds
	probes  int

	leaseTime leaseTime

	ctx     context.Context // of the clients; when it is done they end what they hold
	stop    context.CancelFunc
	clients sync.WaitGroup
	watches sync.WaitGroup

	mu    sync.Mutex // guards the following
	named map[string]*run
	// committed are the batches of servers that do not decide whose records the log has.
	committed map[record.Origin]bool
}

const (
	serversOf = 3
	keysOf    = 3
)

func newWorld(t testing.TB, seed uint64, r *reached) *world {
	w := &world{
		TB: t, Recorder: recorder.New(), seed: seed, reached: r, log: ordertest.New(), folder: folder(t),
		named: make(map[string]*run), committed: make(map[record.Origin]bool), held: newHolds(),
	}
	w.trace.began = time.Now()
	w.ctx, w.stop = context.WithCancel(t.Context())
	for n := range keysOf {
		w.keys = append(w.keys, fmt.Sprint("key-", n))
	}
	for n := range serversOf {
		w.servers = append(w.servers, newServer(w, n))
	}
	return w
}

// folder returns a folder for the files of the servers, in memory if the system has such folders: a simulation does not lose them.
func folder(t testing.TB) string {
	const memory = "/dev/shm"
	if _, err := os.Stat(memory); err != nil {
		return t.TempDir()
	}
	made, err := os.MkdirTemp(memory, "locket-simulation-") //nolint:usetesting // t.TempDir is on a disk
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(made) })
	return made
}

// rand returns the random numbers of whoever has a name. One goroutine at a time uses them.
func (w *world) rand(name string) *rand.Rand { return rand.New(rand.NewPCG(w.seed, number(name))) }

// chance returns a number below 1 for the nth decision with a name.
func (w *world) chance(name string, n uint64) float64 {
	return rand.New(rand.NewPCG(w.seed^number(name), n)).Float64()
}

func number(name string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name))
	return h.Sum64()
}

// sleep lets simulated time pass, unless a context ends before.
func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(max(d, 1)): // real time: none, simulations run in bubbles
	case <-ctx.Done():
	}
}

// trace records the events of a run.
type trace struct {
	began time.Time
	mu    sync.Mutex
	lines []line
}

type line struct {
	at     time.Duration
	who    string
	format string
	args   []any
}

// note adds a line. Its arguments may not change later.
func (t *trace) note(who, format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lines = append(t.lines, line{time.Since(t.began), who, format, args})
}

// String returns the lines.
func (t *trace) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var text []byte
	for _, l := range t.lines {
		text = fmt.Appendf(text, "%10.4fs %-12s ", l.at.Seconds(), l.who)
		text = append(fmt.Appendf(text, l.format, l.args...), '\n')
	}
	return string(text)
}
