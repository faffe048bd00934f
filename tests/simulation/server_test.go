package simulation_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/tedsuo/ifrit"
	"github.com/tedsuo/ifrit/grouper"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/db/replica"
	"github.com/locket-service/locket/db/replica/disk/disktest"
	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/gateway"
	"github.com/locket-service/locket/grpcserver"
	program "github.com/locket-service/locket/internal/program/server"
)

// server is one server of a cluster. Its folder and its disk outlive its runs.
type server struct {
	w      *world
	n      int
	name   string
	rnd    *rand.Rand
	folder string
	clock  clock
	faults faults
	ended  chan struct{} // closed when it has ended for good

	mu       sync.Mutex // guards the following
	disk     *disktest.Disk
	run      *run // nil while it is stopped
	runs     int
	holdDown bool          // it stays stopped
	closing  bool          // it ends for good
	changed  chan struct{} // closed when one of these two changes
}

// run is one run of a server.
type run struct {
	s       *server
	n       int
	log     atomic.Pointer[sharedLog]
	store   db.Store
	service *program.Service
	local   *grpcserver.Local
	http    *fixtures.Pipes
	process ifrit.Process
	handler replica.Handler // for other servers
	calls   sync.WaitGroup  // of other servers
	// gone is closed when nobody reaches the run any more.
	gone    chan struct{}
	going   sync.Once
	crashed bool // read after gone
	after   *disktest.Disk
}

func newServer(w *world, n int) *server {
	name := fmt.Sprint("server ", n)
	s := &server{
		w: w, n: n, name: name, rnd: w.rand(name), folder: filepath.Join(w.folder, fmt.Sprint(n)), disk: disktest.New(),
		changed: make(chan struct{}), ended: make(chan struct{}),
	}
	s.faults.s = s
	s.clock.step(time.Duration(s.rnd.IntN(2000)-1000) * time.Millisecond)
	return s
}

// live keeps the server running, as a supervisor does, until it ends for good.
func (s *server) live() {
	defer close(s.ended)
	for s.mayRun() {
		r, err := s.start()
		if err != nil {
			s.note("did not start: %v", err)
			sleep(context.Background(), time.Second)
			continue
		}
		select {
		case <-r.gone:
		case <-r.store.About().Broken:
			s.note("is broken: %v", r.store.About().Failure)
		case err := <-r.process.Wait():
			s.note("ended by itself: %v", err)
		}
		r.end()
	}
}

// mayRun waits until the server may run, and reports false when it ends for good.
func (s *server) mayRun() bool {
	for {
		s.mu.Lock()
		down, closing, changed := s.holdDown, s.closing, s.changed
		s.mu.Unlock()
		switch {
		case closing:
			return false
		case !down:
			return true
		}
		<-changed
	}
}

// set sets whether the server stays stopped, or ends for good.
func (s *server) set(down, closing bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.holdDown, s.closing = down, closing
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *server) note(format string, args ...any) { s.w.trace.note(s.name, format, args...) }

// current returns the present run, nil if there is none.
func (s *server) current() *run {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.run
}

// start opens the store and runs the service on it.
func (s *server) start() (*run, error) {
	r, got := s.newRun(), false
	log := slog.New(&logger{r})
	s.mu.Lock()
	used := s.disk
	s.mu.Unlock()
	options := replica.Options{
		SegmentBytes: 8192, SnapshotBytes: 4 << 10, Delay: 50 * time.Millisecond, Disk: used, Wall: s.clock.now, Log: log,
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	used.SetFault(func(operation string) error { return s.faults.disk(r, operation) })
	store, err := program.OpenCluster(ctx, s.folder, options, func() (*replica.Cluster, error) {
		opened := &sharedLog{Server: s.w.log.Open(), run: r}
		opened.Fail(s.faults.before(r), s.faults.after(r))
		r.log.Store(opened)
		return &replica.Cluster{Log: opened, Peers: &peers{run: r, got: func() { got = true }}}, nil
	})
	if err != nil {
		if got {
			s.w.reached.note(installed)
		}
		r.vanish(false)
		if r.after != nil {
			s.take(r.after)
		}
		return nil, err
	}
	r.store = timed{store, s.w}
	r.serve(log)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.run = r
	return r, nil
}

func (s *server) take(d *disktest.Disk) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.disk = d
}

func (s *server) newRun() *run {
	s.mu.Lock()
	s.runs++
	r := &run{s: s, n: s.runs, gone: make(chan struct{})}
	s.mu.Unlock()
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	s.w.named[r.about()] = r
	return r
}

// about is the name of the run among the servers.
func (r *run) about() string { return fmt.Sprintf("server %d, run %d", r.s.n, r.n) }

// serve runs the service as `locket server` does.
func (r *run) serve(log *slog.Logger) {
	config := program.DefaultConfig()
	config.Etcd = []string{"simulated"}
	config.DatabaseTimeout = 2 * time.Second // shorter than some faults, so that servers do not learn the outcome of batches
	registry := prometheus.NewRegistry()
	r.service = program.NewService(config, r.store, log, registry, program.Guards{})
	r.local, r.http = grpcserver.NewLocal(r.service.Chain, r.service.Register), fixtures.NewPipes()
	members := append(r.service.Members, grouper.Member{Name: "http", Runner: gateway.New(gateway.Config{
		Listener: r.http, Service: r.local, Metrics: registry, ShutdownTimeout: config.ShutdownTimeout, Log: log,
	})})
	r.process = ifrit.Background(grouper.NewOrdered(os.Interrupt, members))
	select {
	case <-r.process.Ready():
		r.s.note("serves, run %d", r.n)
	case <-r.process.Wait():
	case <-r.gone:
	}
}

// vanish makes the run unreachable. In a crash its log and its disk are lost to it at once.
func (r *run) vanish(crash bool) {
	r.going.Do(func() {
		s := r.s
		s.mu.Lock()
		if s.run == r {
			s.run = nil
		}
		used := s.disk
		s.mu.Unlock()
		if r.crashed = crash; crash {
			_ = r.log.Load().Close()
			used.SetFault(func(string) error { return errNoPower })
			s.w.mu.Lock()
			r.after = used.Crash(s.rnd)
			s.w.mu.Unlock()
			s.note("crashes")
		}
		close(r.gone)
	})
}

var errNoPower = errors.New("there is no power")

// end ends the run in order, unless it has crashed: then nothing that it does has an effect.
func (r *run) end() {
	crashed := false
	select {
	case <-r.gone:
		crashed = r.crashed
	default:
	}
	if !crashed {
		r.s.note("stops")
	}
	r.service.Chain.EndStreams()
	r.service.Drain()
	r.process.Signal(os.Interrupt)
	<-r.process.Wait()
	err := r.store.Close()
	r.vanish(false)
	_ = r.log.Load().Close()
	r.s.mu.Lock()
	r.s.run = nil
	if r.s.disk = r.s.disk.Kill(); r.after != nil {
		r.s.disk = r.after
	}
	r.s.mu.Unlock()
	if err != nil && !crashed {
		r.s.note("closed with an error: %v", err)
	}
}

// timed is a store whose feed takes time to read. A follower reads until it has everything before the present: without this the
// present would never pass.
type timed struct {
	db.Store
	w *world
}

// Transact implements db.Store.
func (t timed) Transact(ctx context.Context, batch db.Batch) (db.Outcome, db.Completion, error) {
	outcome, completion, err := t.Store.Transact(ctx, batch)
	if errors.Is(err, db.ErrOutcomeUnknown) {
		t.w.reached.note(unknownToServer)
	}
	return outcome, completion, err
}

// Changes implements db.Feed.
func (t timed) Changes(ctx context.Context, after db.Position, own bool) ([]db.Commit, error) {
	time.Sleep(20 * time.Microsecond) // real time: none, simulations run in bubbles
	return t.Store.Changes(ctx, after, own)
}

// clock is a clock of the wall that may be wrong.
type clock struct{ wrong atomic.Int64 }

func (c *clock) step(by time.Duration) { c.wrong.Add(int64(by)) }

func (c *clock) now() time.Time { return time.Now().Add(time.Duration(c.wrong.Load())) }

// faults has the present faults of a server.
type faults struct {
	s *server

	mu      sync.Mutex // guards the following
	paused  chan struct{}
	slow    bool // the log answers slowly
	losing  bool // outcomes of the log are lost, and operations fail
	late    bool // appends fail at once and are committed later
	lagging bool // events come late
	full    bool // the disk is full
	slowly  bool // the disk is slow
	apart   bool // off the other servers
	alone   bool // off the clients
	offLog  bool // off the log
	writes  int  // how many writes to the disk until it crashes; 0: it does not
	appends int  // how many appends until it crashes; 0: it does not
	behind  bool // that crash is after the commit
	counted map[string]uint64
}

// has returns one of the faults.
func (f *faults) has(fault *bool) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return *fault
}

// cutsOff reports whether the server is cut off from its clients or from the log.
func (f *faults) cutsOff() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.paused != nil || f.alone || f.offLog || f.late || f.losing
}

// wait waits until the server is not paused, or a context ends.
func (f *faults) wait(ctx context.Context) {
	f.mu.Lock()
	paused := f.paused
	f.mu.Unlock()
	if paused != nil {
		select {
		case <-paused:
		case <-ctx.Done():
		}
	}
}

// cut waits until the server is not paused, or a context ends, and reports whether the server is cut off from its clients.
func (f *faults) cut(ctx context.Context) bool {
	f.wait(ctx)
	return f.has(&f.alone)
}

// next numbers the operations with a name.
func (f *faults) next(name string) (string, uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.counted == nil {
		f.counted = make(map[string]uint64)
	}
	f.counted[name]++
	return f.s.name + " " + name, f.counted[name]
}

// before is the fault before an operation of the log.
func (f *faults) before(r *run) func(op string) error {
	return func(op string) error {
		f.wait(context.Background())
		name, n := f.next(op)
		chance := f.s.w.chance(name, n)
		latency := 100*time.Microsecond + time.Duration(chance*400)*time.Microsecond
		switch {
		case op == "event" && f.has(&f.lagging):
			latency += time.Duration(chance * float64(700*time.Millisecond))
		case op == "event":
			latency = 20 * time.Microsecond
		case f.has(&f.slow):
			latency += time.Duration(chance * float64(1500*time.Millisecond))
		}
		time.Sleep(latency) // real time: none, simulations run in bubbles
		switch {
		case op == "append" && f.counts(&f.appends, false):
			f.s.w.reached.note(crashedBefore)
			go r.vanish(true)
			return errNoPower
		case op == "append" && f.has(&f.late) && chance < 0.7:
			f.s.w.reached.note(lateCommit)
			return lateBy(chance)
		case op != "event" && f.has(&f.losing) && chance < 0.3:
			return errLost
		}
		return nil
	}
}

// after is the fault after an operation of the log.
func (f *faults) after(r *run) func(op string) error {
	return func(op string) error {
		f.wait(context.Background())
		name, n := f.next("after " + op)
		switch chance := f.s.w.chance(name, n); {
		case op == "append" && f.counts(&f.appends, true):
			f.s.w.reached.note(crashedAfter)
			go r.vanish(true)
			return errNoPower
		case f.has(&f.losing) && chance < 0.4:
			return errLost
		}
		return nil
	}
}

// counts counts down to a crash, before or after commits, and reports whether it is due.
func (f *faults) counts(left *int, behind bool) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if *left == 0 || f.behind != behind {
		return false
	}
	*left--
	return *left == 0
}

// disk is the fault of an operation of the disk.
func (f *faults) disk(r *run, operation string) error {
	f.wait(context.Background())
	f.mu.Lock()
	crash := f.writes == 1
	f.writes = max(0, f.writes-1)
	full, slowly := f.full && (strings.HasPrefix(operation, "create") || strings.HasPrefix(operation, "write")), f.slowly
	f.mu.Unlock()
	switch {
	case crash:
		f.s.w.reached.note(crashedAtWrite)
		go r.vanish(true)
		return errNoPower
	case full:
		f.s.w.reached.note(diskFull)
		return syscall.ENOSPC
	case slowly && strings.HasPrefix(operation, "sync"):
		name, n := f.next("sync")
		time.Sleep(1 + time.Duration(f.s.w.chance(name, n)*float64(2*time.Second))) // real time: none, simulations run in bubbles
	}
	return nil
}

var errLost = errors.New("the connection to the log was lost")

// logger writes what a server logs into the trace.
type logger struct{ *run }

// Enabled implements slog.Handler.
func (*logger) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelInfo }

// Handle implements slog.Handler.
func (l *logger) Handle(_ context.Context, r slog.Record) error {
	text := r.Message
	r.Attrs(func(a slog.Attr) bool { text += " " + a.String(); return true })
	l.s.note("%s", "logs: "+text)
	return nil
}

// WithAttrs implements slog.Handler.
func (l *logger) WithAttrs([]slog.Attr) slog.Handler { return l }

// WithGroup implements slog.Handler.
func (l *logger) WithGroup(string) slog.Handler { return l }
