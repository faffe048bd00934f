package replica

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/db/replica/order"
	"github.com/locket-service/locket/db/replica/record"
	"github.com/locket-service/locket/internal/rules/claim"
)

// In a cluster several servers share a log (package order). One of them, the decider, carries out batches and appends
// their records; every server applies the records to its state, and keeps a copy of them in its own log. The other
// servers send their batches to the decider (Forwarder).
//
// A record is applied when it is committed, not before: a decider that was deposed has nothing to take back.
//
// The decider is alive if its records or beats appear in the log. A server that needs one, and has seen none for
// silentTicks, raises the epoch. It decides once it has applied everything before its epoch in the log.

// Cluster is what a store needs to be one server of a cluster.
type Cluster struct {
	Log   order.Log
	Peers Peers
}

// Peers are the connections to the other servers. decider is the Decider of an epoch. Errors that a method of the other
// server's store returns come back as they are; any other error leaves the outcome unknown.
type Peers interface {
	// About is the Decider of the epochs of this server. No two servers, and no two runs of one, have the same.
	About() []byte
	// CarryOut has another server carry out a batch: see Store.CarryOut.
	CarryOut(ctx context.Context, decider, batch []byte) (outcome []byte, err error)
	// Alive has another server note that a server with sessions is alive: see Store.Alive.
	Alive(ctx context.Context, decider []byte, name string) error
	// Register has another server register a name: see Store.RegisterName.
	Register(ctx context.Context, decider []byte, name string) error
}

const (
	// clusterTick is how often a server looks for the decider.
	clusterTick = 100 * time.Millisecond
	// silentTicks is for how many ticks nothing must come from the decider until another server takes over. A pause of
	// this process counts as one tick. jitterTicks is how many more it may be, so that not all do at once.
	silentTicks, jitterTicks = 10, 3
	// appendTimeout is how long a decider waits for the log. After that it decides no more, until it is the decider again.
	appendTimeout = 2 * time.Second
	// answerTimeout is how long a read waits for the log. Then there is no quorum, or this server is cut off.
	answerTimeout = time.Second
	// followPause is the pause after the log was lost.
	followPause = 100 * time.Millisecond
)

var (
	// ErrNotDecider is returned by a server that does not decide. It has done nothing.
	ErrNotDecider = errors.New("this server does not decide")
	// errNoQuorum is the reason why a server of a cluster is unavailable.
	errNoQuorum = errors.New("no server of the cluster can commit, or this one is cut off from the others")
)

// cluster is the part of a store that shares its log.
type cluster struct {
	Cluster
	s         *Store
	forwarder *Forwarder
	wanting   atomic.Int64  // calls that wait for a decider
	wanted    chan struct{} // full when one has come
	barrier   barrier

	applying sync.Mutex // held while a record is decided or applied

	mu      sync.Mutex // guards the following
	epoch   order.Epoch
	mine    uint64        // the epoch that this server decides in, 0 if it does not decide
	raised  uint64        // the last epoch that this server has raised
	silent  int           // ticks since the last sign of a decider
	changed chan struct{} // closed when epoch or mine changes
	alive   map[string]claim.Time
}

func newCluster(s *Store, c Cluster) *cluster {
	made := &cluster{Cluster: c, s: s, changed: make(chan struct{}), wanted: make(chan struct{}, 1), alive: make(map[string]claim.Time)}
	made.forwarder = NewForwarder(rand.Uint64()|1, 1, made.send)
	made.forwarder.lost = made.wait
	made.barrier.wake = make(chan struct{}, 1)
	return made
}

// run follows the log, and looks for a decider, until the store is closed.
func (c *cluster) run() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	var working sync.WaitGroup
	working.Go(func() { c.follow(ctx) })
	working.Go(func() { c.watch(ctx) })
	working.Go(func() { c.readRounds(ctx) })
	select {
	case <-c.s.closed:
	case <-c.s.broken:
	}
	stop()
	working.Wait()
}

// follow applies what is committed.
func (c *cluster) follow(ctx context.Context) {
	for ctx.Err() == nil {
		err := c.Log.Follow(ctx, c.s.at().index, c.event)
		if err == nil || ctx.Err() != nil {
			continue
		}
		if !errors.Is(err, order.ErrUnavailable) {
			c.s.fail(err)
			return
		}
		c.s.options.Log.Debug("the log of the cluster is not followed", "error", err)
		pause(ctx, followPause)
	}
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// event takes up a change of the log.
func (c *cluster) event(e order.Event) error {
	switch {
	case e.Epoch != nil:
		c.begin(*e.Epoch)
	case e.Index != 0:
		if err := c.apply(e.Index, e.Data, nil); err != nil {
			return err
		}
	}
	c.mu.Lock()
	c.silent = 0
	c.mu.Unlock()
	return nil
}

// begin notes an epoch. Everything before it in the log is applied.
func (c *cluster) begin(e order.Epoch) {
	c.applying.Lock()
	defer c.applying.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	if e.Number < c.epoch.Number || e.Number == c.epoch.Number && c.mine != 0 {
		return // the log was followed from an earlier place again
	}
	c.epoch = e
	switch {
	case e.Number == c.raised && bytes.Equal(e.Decider, c.Peers.About()):
		c.mine = e.Number
		clear(c.alive)
		c.s.startClock()
		c.s.options.Log.Info("this server decides", "epoch", e.Number)
	case c.mine != 0:
		c.mine = 0
		c.s.options.Log.Info("another server decides", "epoch", e.Number)
	}
	c.turn()
}

// turn wakes everybody who waits for a decider. The caller has mu.
func (c *cluster) turn() {
	close(c.changed)
	c.changed = make(chan struct{})
}

// depose ends this server's decisions in an epoch.
func (c *cluster) depose(epoch uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mine == epoch {
		c.mine, c.raised = 0, 0
		c.turn()
	}
}

// decides returns the epoch that this server decides in, 0 if it does not decide.
func (c *cluster) decides() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mine
}

// decider returns the decider, empty for none, and what is closed when there may be another one.
func (c *cluster) decider() (decider []byte, changed <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.epoch.Decider, c.changed
}

// apply applies the record with an index to the state, unless the state has it. own is its proposal if this server has
// decided it.
func (c *cluster) apply(index uint64, data []byte, own *proposal) error {
	c.applying.Lock()
	defer c.applying.Unlock()
	s := c.s
	at := s.at().index
	switch {
	case index <= at:
		return nil
	case index != at+1:
		return fmt.Errorf("record %d of the log of the cluster comes after record %d", index, at)
	}
	if err := s.append(data); err != nil {
		return err
	}
	if err := s.follow(data, own); err != nil {
		return fmt.Errorf("record %d: %w", index, err)
	}
	s.wake()
	c.barrier.reached(index)
	return nil
}

// decide makes a proposal. Nothing else is decided, or applied, meanwhile.
func (c *cluster) decide(decide func(decision) (*record.Record, error)) (*proposal, error) {
	c.applying.Lock()
	defer c.applying.Unlock()
	epoch, s := c.decides(), c.s
	if epoch == 0 {
		return nil, ErrNotDecider
	}
	at := time.Now()
	d := decision{at: at, now: claim.Instant{Wall: s.clock.wallTime(), Lease: s.clock.now(at), Quarantine: s.state.Quarantine}}
	r, err := decide(d)
	if err != nil || r == nil {
		return nil, err
	}
	if r.Lease == 0 {
		r.Lease = d.now.Lease
	}
	after := s.at()
	p := &proposal{record: r, at: at, done: make(chan struct{}), epoch: epoch, index: after.index + 1}
	p.data, p.sum = record.Append(nil, after.sum, r)
	if len(p.data) > order.MaxRecord {
		return nil, fmt.Errorf("%w: it has %d bytes, and %d are the limit", order.ErrTooLarge, len(p.data), order.MaxRecord)
	}
	return p, nil
}

// commit commits a proposal.
func (c *cluster) commit(p *proposal) error {
	ctx, cancel := context.WithTimeout(context.Background(), appendTimeout)
	defer cancel()
	err := c.Log.Append(ctx, p.epoch, p.index, p.data)
	if err == nil {
		err = c.apply(p.index, p.data, p)
		if err != nil {
			c.s.fail(err)
			return fmt.Errorf("%w: %w", db.ErrOutcomeUnknown, err)
		}
		return nil
	}
	c.depose(p.epoch)
	if errors.Is(err, order.ErrDeposed) {
		return fmt.Errorf("%w: %w", db.ErrUnavailable, err)
	}
	return fmt.Errorf("%w: %w", db.ErrOutcomeUnknown, err)
}

// watch looks for a decider, and becomes it if there is none.
func (c *cluster) watch(ctx context.Context) {
	tick := time.NewTicker(clusterTick)
	defer tick.Stop()
	patience := silentTicks + rand.IntN(jitterTicks+1)
	for {
		_, changed := c.decider()
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-changed:
		case <-c.wanted:
		}
		if c.lacks(patience) {
			c.raise(ctx)
			patience = silentTicks + rand.IntN(jitterTicks+1)
		}
	}
}

// lacks counts a tick, and reports whether this server needs a decider and there is none. A server needs one for the
// calls that wait, and so that leases end.
func (c *cluster) lacks(patience int) bool {
	c.s.mu.RLock()
	live := c.s.state.ShortestTTL() > 0 || c.s.state.Lease < c.s.state.Quarantine
	c.s.mu.RUnlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.mine != 0, !live && c.wanting.Load() == 0:
		c.silent = 0
		return false
	case len(c.epoch.Decider) == 0:
		return true
	}
	c.silent++
	return c.silent > patience
}

// raise raises the epoch. This server decides when it sees its own epoch in the log.
func (c *cluster) raise(ctx context.Context) {
	c.mu.Lock()
	after := c.epoch.Number
	c.raised = after + 1
	c.silent = 0
	c.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	if err := c.Log.Raise(ctx, after, c.Peers.About()); err != nil {
		c.s.options.Log.Debug("this server cannot become the decider", "error", err)
	}
}

// resign tells the other servers that nobody decides, if this server does.
func (c *cluster) resign() {
	c.mu.Lock()
	epoch := c.mine
	c.mine, c.raised = 0, 0
	c.mu.Unlock()
	if epoch == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), answerTimeout)
	defer cancel()
	if err := c.Log.Raise(ctx, epoch, nil); err != nil {
		c.s.options.Log.Debug("the other servers could not be told that this one stops", "error", err)
	}
}

// send has the decider carry out a batch: this server, or another one.
func (c *cluster) send(ctx context.Context, sent []byte) ([]byte, error) {
	decider, _ := c.decider()
	switch {
	case c.decides() != 0:
		return c.s.CarryOut(ctx, sent)
	case len(decider) == 0, bytes.Equal(decider, c.Peers.About()):
		return nil, ErrNotDecider
	}
	return c.Peers.CarryOut(ctx, decider, sent)
}

// transact is Store.Transact.
func (c *cluster) transact(ctx context.Context, batch db.Batch) (db.Outcome, db.Completion, error) {
	c.wanting.Add(1)
	defer c.wanting.Add(-1)
	if c.decides() != 0 {
		outcome, commit, err := db.Begin(batch, c.s.beginBatch(ctx))
		if !errors.Is(err, ErrNotDecider) {
			return outcome, commit, err
		}
	}
	select {
	case c.wanted <- struct{}{}:
	default: // it is known
	}
	outcome, err := c.forwarder.Transact(ctx, batch)
	return outcome, nil, err
}

// Alive notes that a server with sessions is alive. The error is ErrNotDecider, or db.ErrServerGone when that server was
// declared gone.
func (s *Store) Alive(name string) error {
	c := s.cluster
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mine == 0 {
		return ErrNotDecider
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	if !s.state.Registered(name) {
		return db.ErrServerGone
	}
	c.alive[name] = s.clock.last()
	return nil
}

// register has the decider register a name.
func (c *cluster) register(ctx context.Context, name string) error {
	decider, _ := c.decider()
	if len(decider) == 0 || bytes.Equal(decider, c.Peers.About()) {
		return fmt.Errorf("%w: %w", db.ErrUnavailable, ErrNotDecider)
	}
	return clusterUnavailable(c.Peers.Register(ctx, decider, name))
}

// RegisterName is Store.Register for another server of the cluster. The error is ErrNotDecider if this one does not decide.
func (s *Store) RegisterName(ctx context.Context, name string) error {
	if s.cluster.decides() == 0 {
		return ErrNotDecider
	}
	return s.register(ctx, name)
}

// seen returns when a server was last alive, as far as this one knows.
func (c *cluster) seen(name string, recorded claim.Time) claim.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return max(recorded, c.alive[name])
}

// others returns the other servers with sessions that have been alive in this epoch.
func (c *cluster) others() (servers []record.Server) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(c.alive)) {
		servers = append(servers, record.Server{Name: name, Seen: c.alive[name]})
	}
	return servers
}

// beat shows that the log takes commits: the decider commits one, and another server finds the decider alive.
func (c *cluster) beat(ctx context.Context) error {
	if epoch := c.decides(); epoch != 0 {
		ctx, cancel := context.WithTimeout(ctx, appendTimeout)
		defer cancel()
		err := c.Log.Beat(ctx, epoch)
		if err != nil {
			c.depose(epoch)
		}
		return err
	}
	decider, _ := c.decider()
	c.mu.Lock()
	silent := c.silent
	c.mu.Unlock()
	if len(decider) == 0 || silent > silentTicks {
		return errNoQuorum
	}
	name := c.s.registeredName()
	if name == "" {
		return nil
	}
	return c.Peers.Alive(ctx, decider, name)
}

// announce is Store.Announce.
func (c *cluster) announce(ctx context.Context, m db.Member, leaves bool) error {
	m.Seen = c.s.clock.wallTime()
	about, err := json.Marshal(m)
	if leaves {
		about = nil
	}
	if err == nil {
		err = c.Log.Announce(ctx, m.Name, about)
	}
	if err == nil {
		_, err = c.members(ctx)
	}
	return clusterUnavailable(err)
}

// members returns the servers that were announced, by name, and forgets old ones.
func (c *cluster) members(ctx context.Context) (members []db.Member, err error) {
	announced, err := c.Log.Announced(ctx)
	if err != nil {
		return nil, clusterUnavailable(err)
	}
	oldest := c.s.clock.wallTime().Add(-db.MemberAge)
	for _, name := range slices.Sorted(maps.Keys(announced)) {
		var m db.Member
		switch err := json.Unmarshal(announced[name], &m); {
		case err != nil || m.Seen < oldest:
			_ = c.Log.Announce(ctx, name, nil) // the next call tries again
		default:
			members = append(members, m)
		}
	}
	return members, nil
}

// clusterUnavailable returns an error of the log as one of package db.
func clusterUnavailable(err error) error {
	if err == nil || errors.Is(err, db.ErrUnavailable) {
		return err
	}
	return fmt.Errorf("%w: %w", db.ErrUnavailable, err)
}

// joinCluster makes the folder one of the cluster's.
func (s *Store) joinCluster(c Cluster) error {
	ctx, cancel := context.WithTimeout(context.Background(), joinTimeout)
	defer cancel()
	id, err := c.Log.Cluster(ctx, s.folder.log)
	if err != nil {
		return clusterUnavailable(err)
	}
	if id != s.folder.log {
		if !s.folder.fresh {
			return fmt.Errorf("%w: %s is of another cluster, or of a server by itself: its log is %x, and this cluster's is %x", ErrFolder, s.folder.path, s.folder.log, id)
		}
		s.folder.log = id
		if err := s.folder.note(stateNew); err != nil {
			return err
		}
	}
	s.cluster = newCluster(s, c)
	return nil
}

// joinTimeout is how long the start of a server waits for the log of the cluster, and to have everything in it.
const joinTimeout = 30 * time.Second

// catchUp waits until the state has everything that was committed.
func (c *cluster) catchUp() error {
	ctx, cancel := context.WithTimeout(context.Background(), joinTimeout)
	defer cancel()
	for {
		err := c.wait(ctx)
		if err == nil || ctx.Err() != nil || c.s.Failure() != nil {
			return err
		}
		pause(ctx, followPause)
	}
}

// startClock begins lease time where the state is. It begins with the time.
func (s *Store) startClock() {
	s.mu.RLock()
	lease := s.state.Lease
	s.mu.RUnlock()
	if lease == 0 {
		lease = s.clock.wallTime()
	}
	s.clock.start(lease)
}
