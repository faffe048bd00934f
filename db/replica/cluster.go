package replica

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/db/replica/filelog"
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

// Cluster makes a store one server of a cluster. The store closes both parts, also when it cannot be opened.
type Cluster struct {
	Log   order.Log
	Peers Peers
}

// Peers are the connections to the other servers.
type Peers interface {
	// Serve has the methods of a handler called for other servers, until Close.
	Serve(h Handler)
	// Close ends the connections.
	Close()
	// About is the Decider of the epochs of this server. No two servers, and no two runs of one, have the same.
	About() []byte
	// Snapshot and History send a request to the SendSnapshot and the SendHistory of another server, and call part for each
	// part of the answer.
	Snapshot(ctx context.Context, about, request []byte, part func([]byte) error) error
	// History is described with Snapshot.
	History(ctx context.Context, about, request []byte, part func([]byte) error) error
	// CarryOut sends a message to the decider of an epoch, and returns the result of Store.CarryOut there, with its documented
	// errors. After any other error the outcome is unknown.
	CarryOut(ctx context.Context, decider, message []byte) (outcome []byte, err error)
}

// Handler serves other servers. A Store is one.
type Handler interface {
	// CarryOut is Store.CarryOut.
	CarryOut(ctx context.Context, message []byte) (outcome []byte, err error)
	// SendSnapshot is Store.SendSnapshot.
	SendSnapshot(ctx context.Context, request []byte, send func(part []byte) error) error
	// SendHistory is Store.SendHistory.
	SendHistory(ctx context.Context, request []byte, send func(part []byte) error) error
}

const (
	// clusterTick is how often a server looks for the decider.
	clusterTick = 100 * time.Millisecond
	// silentTicks is for how many ticks nothing must come from the decider until another server takes over. A pause of
	// this process counts as one tick. jitterTicks is how many more it may be, so that not all do at once.
	silentTicks, jitterTicks = 10, 3
	// incompletePatience is how many times as long a server waits whose history is incomplete.
	incompletePatience = 10
	// appendTimeout is how long a decider waits for the log. After that it decides no more, until it is the decider again.
	appendTimeout = 2 * time.Second
	// answerTimeout is how long a read waits for the log. Then there is no quorum, or this server is cut off.
	answerTimeout = time.Second
	// followPause is the pause after the log was lost.
	followPause = 100 * time.Millisecond
)

// ErrNotDecider is returned by a server that does not decide. It has done nothing.
var ErrNotDecider = errors.New("this server does not decide")

// cluster is the part of a store that shares its log.
type cluster struct {
	Cluster
	s         *Store
	forwarder *Forwarder
	wanting   atomic.Int64  // calls that wait for a decider
	wanted    chan struct{} // full when one has come
	// unanswered is when the last question to the log turned out to have no answer, nil if it had one.
	unanswered atomic.Pointer[time.Time]
	barrier    barrier

	applying  turn           // held while a record is decided or applied; guards the following
	proposing *proposal      // is being committed, nil for none
	joiner    *record.Joiner // of the entries
	have      uint64         // the last entry that this server has

	mu      sync.Mutex // guards the following
	epoch   order.Epoch
	mine    uint64        // the epoch that this server decides in, 0 if it does not decide
	raised  uint64        // the last epoch that this server has raised
	silent  int           // ticks since the last sign of a decider
	changed chan struct{} // closed when epoch or mine changes
	alive   map[string]claim.Time
}

// turn is a lock that is held while the disk is written, so waiting for it may take long. It is full while it is held.
type turn chan struct{}

// Lock waits for the lock.
func (t turn) Lock() { t <- struct{}{} }

// Unlock gives it back.
func (t turn) Unlock() { <-t }

func newCluster(s *Store, c Cluster) *cluster {
	made := &cluster{Cluster: c, s: s, applying: make(turn, 1), changed: make(chan struct{}), wanted: make(chan struct{}, 1), alive: make(map[string]claim.Time)}
	made.forwarder = NewForwarder(rand.Uint64()|1, 1, made.send)
	made.forwarder.lost, made.forwarder.closed = made.wait, s.closed
	made.forwarder.clock = func() uint64 { return uint64(s.clock.instant().Lease) }
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
	working.Go(func() { c.maintain(ctx) })
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
		err := c.Log.Follow(ctx, c.last(), c.event)
		if err == nil || ctx.Err() != nil {
			continue
		}
		if errors.Is(err, order.ErrTrimmed) {
			err = &LaggingError{Log: c.s.folder.log, After: c.last()}
		}
		if !errors.Is(err, order.ErrUnavailable) {
			c.s.fail(err)
			return
		}
		c.s.options.Log.Debug("the log of the cluster is not followed", "error", err)
		pause(ctx, followPause)
	}
}

// last returns the last entry that this server has.
func (c *cluster) last() uint64 {
	c.applying.Lock()
	defer c.applying.Unlock()
	return c.have
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
		if !c.begin(*e.Epoch) {
			return nil
		}
	case e.Index != 0:
		if err := c.apply(e.Index, e.Data); err != nil {
			return err
		}
	}
	c.mu.Lock()
	c.silent = 0
	c.mu.Unlock()
	return nil
}

// begin notes an epoch. Everything before it in the log is applied. It reports whether the epoch is new: it is not when the
// log was lost and is followed again.
func (c *cluster) begin(e order.Epoch) (isNew bool) {
	c.applying.Lock()
	defer c.applying.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	if e.Number <= c.epoch.Number {
		return false
	}
	c.epoch = e
	mine := e.Number == c.raised && bytes.Equal(e.Decider, c.Peers.About())
	c.s.startClock(mine)
	switch {
	case mine:
		c.mine = e.Number
		clear(c.alive)
		c.s.options.Log.Info("this server decides", "epoch", e.Number)
	case c.mine != 0:
		c.mine = 0
		c.s.options.Log.Info("another server decides", "epoch", e.Number)
	}
	c.turn()
	return true
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

// apply takes up the entry with an index, unless this server has it. When it completes a record, that is applied to the state.
func (c *cluster) apply(index uint64, entry []byte) error {
	c.applying.Lock()
	defer c.applying.Unlock()
	switch {
	case index <= c.have:
		return nil
	case index != c.have+1:
		return fmt.Errorf("entry %d of the log of the cluster comes after entry %d", index, c.have)
	}
	if len(entry) == 0 { // it stands for the records before the cluster
		return order.ErrTrimmed
	}
	if err := c.keep(entry); err != nil {
		return err
	}
	data, err := c.joiner.Add(entry)
	switch {
	case err != nil:
	case data == nil: // each entry has its number in the feed
		c.s.Committed(c.s.clock.wallTime(), false, nil)
	default:
		err = c.s.follow(index, data, c.own(data))
	}
	if err != nil {
		return fmt.Errorf("entry %d: %w", index, err)
	}
	c.have = index
	c.s.wake()
	c.barrier.reached(index)
	return nil
}

// keep writes an entry to this server's own log. A full disk is none of the record's: it is taken up once there is room.
func (c *cluster) keep(entry []byte) error {
	c.s.hang.start()
	err := c.s.append(entry)
	c.s.hang.stop()
	full := errors.Is(err, filelog.ErrFull)
	if c.s.refused.Store(full); full {
		return fmt.Errorf("%w: %w", order.ErrUnavailable, err)
	}
	return err
}

// own returns the proposal of a record that this server has decided, nil for another one.
func (c *cluster) own(data []byte) *proposal {
	if p := c.proposing; p != nil && bytes.Equal(p.data, data) {
		return p
	}
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
	p := &proposal{record: r, at: at, done: make(chan struct{}), epoch: epoch, index: c.have + 1}
	p.data, p.sum = record.Append(nil, s.at().sum, r)
	c.proposing = p
	return p, nil
}

// commit commits a proposal.
func (c *cluster) commit(p *proposal) error {
	for n, entry := range record.Split(p.data, order.MaxRecord) {
		if err := c.commitEntry(p.epoch, p.index+uint64(n), entry); err != nil {
			p.unknown.Store(true)
			c.depose(p.epoch)
			return err
		}
	}
	return nil
}

// commitEntry appends an entry to the log, and applies it.
func (c *cluster) commitEntry(epoch, index uint64, entry []byte) error {
	if err := c.append(epoch, index, entry); err != nil {
		return err
	}
	err := c.apply(index, entry)
	switch {
	case err == nil:
		return nil
	case !errors.Is(err, order.ErrUnavailable):
		c.s.fail(err)
	}
	return fmt.Errorf("%w: %w", db.ErrOutcomeUnknown, err)
}

// append appends an entry to the log.
func (c *cluster) append(epoch, index uint64, entry []byte) error {
	ctx, cancel := context.WithTimeout(context.Background(), appendTimeout)
	defer cancel()
	err := c.Log.Append(ctx, epoch, index, entry)
	c.answered(err)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, order.ErrDeposed):
		return fmt.Errorf("%w: %w", db.ErrUnavailable, err)
	default:
		return fmt.Errorf("%w: %w", db.ErrOutcomeUnknown, err)
	}
}

// watch looks for a decider, and becomes it if there is none.
func (c *cluster) watch(ctx context.Context) {
	tick := time.NewTicker(clusterTick)
	defer tick.Stop()
	patience := silentTicks + rand.IntN(jitterTicks+1)
	for {
		_, changed := c.decider()
		ticked := false
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			ticked = true
		case <-changed:
		case <-c.wanted:
		}
		if c.lacks(patience, ticked) {
			c.raise(ctx)
			patience = silentTicks + rand.IntN(jitterTicks+1)
		}
	}
}

// lacks counts a tick if there was one, and reports whether this server needs a decider and there is none. A server needs one
// for the calls that wait, and so that leases end.
func (c *cluster) lacks(patience int, ticked bool) bool {
	c.s.mu.RLock()
	live := c.s.state.ShortestTTL() > 0 || c.s.state.Lease < c.s.state.Quarantine
	c.s.mu.RUnlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.mine != 0, !live && c.wanting.Load() == 0, c.s.refused.Load(), c.s.lacksRoom() != nil:
		c.silent = 0
		return false
	case !c.s.HistoryComplete(): // the others know more about claims that have ended
		patience *= incompletePatience
	case len(c.epoch.Decider) == 0:
		return true
	}
	if ticked {
		c.silent++
	}
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
	if err := c.Log.Raise(ctx, after, c.last(), c.Peers.About()); err != nil {
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
	if err := c.Log.Raise(ctx, epoch, c.last(), nil); err != nil {
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
	ctx, cancel := context.WithTimeout(ctx, answerTimeout) // then it is sent again, maybe to another server
	defer cancel()
	return c.Peers.CarryOut(ctx, decider, sent)
}

// transact is Store.Transact.
func (c *cluster) transact(ctx context.Context, batch db.Batch) (db.Outcome, db.Completion, error) {
	if c.decides() != 0 {
		outcome, commit, err := db.Begin(batch, c.s.beginBatch(ctx))
		if !errors.Is(err, ErrNotDecider) {
			return outcome, commit, err
		}
	}
	defer c.want()()
	if err := c.reaches(ctx); err != nil {
		return db.Outcome{}, nil, err
	}
	outcome, err := c.forwarder.Transact(ctx, batch)
	return outcome, nil, err
}

// reaches returns an error if the last question to the log had no answer, and a new one has none either. A batch is not kept
// waiting for that soon after the last question.
func (c *cluster) reaches(ctx context.Context) error {
	switch unanswered := c.unanswered.Load(); {
	case unanswered == nil:
		return nil
	case time.Since(*unanswered) < answerTimeout:
		return db.ErrNoQuorum
	}
	return c.wait(ctx)
}

// answered notes whether a question to the log had an answer.
func (c *cluster) answered(err error) {
	if err == nil || !errors.Is(err, order.ErrUnavailable) {
		c.unanswered.Store(nil)
		return
	}
	c.unanswered.Store(new(time.Now()))
}

// want notes that a call needs a decider, until the returned function is called.
func (c *cluster) want() (got func()) {
	c.wanting.Add(1)
	select {
	case c.wanted <- struct{}{}:
	default: // it is known
	}
	return func() { c.wanting.Add(-1) }
}

// deliver sends a job until it is done. The error is db.ErrUnavailable, or db.ErrOutcomeUnknown.
func (c *cluster) deliver(ctx context.Context, message []byte) ([]byte, error) {
	defer c.want()()
	return c.forwarder.deliver(ctx, message)
}

// ask has the decider do a job: this server, or another one.
func (c *cluster) ask(ctx context.Context, job record.Job) (record.Done, error) {
	var done record.Done
	job.Server = c.s.registeredName()
	if err := ctx.Err(); err != nil {
		return done, fmt.Errorf("%w: %w", db.ErrUnavailable, context.Cause(ctx))
	}
	message, err := record.WriteJob(&job)
	if err != nil {
		return done, err
	}
	outcome, err := c.deliver(ctx, message)
	if err != nil {
		return done, err
	}
	done, err = record.ReadDone(outcome)
	c.mu.Lock() // no epoch begins meanwhile
	defer c.mu.Unlock()
	if err == nil && c.mine == 0 {
		c.s.clock.recorded(done.Now.Lease, time.Now())
	}
	return done, err
}

// do does a job of a server.
func (c *cluster) do(ctx context.Context, job record.Job) (done record.Done, err error) {
	s, epoch := c.s, c.decides()
	switch {
	case epoch == 0:
		return done, ErrNotDecider
	case job.Register:
		return done, s.register(ctx, job.Server)
	}
	if job.Beat && job.Server != "" {
		done.Gone = !c.note(job.Server)
	}
	switch {
	case job.Beat && s.clock.sinceTick() > db.BeatInterval/2:
		if err = c.commitBeat(ctx, epoch); err == nil {
			_, err = s.beat(ctx, false) // its own Beat says that this server is gone
		}
	case job.Detach:
		done.Detached, err = s.detachSilent(ctx, job.Silence, job.Server)
	case job.Prune != nil:
		done.Next, err = s.pruneResources(ctx, job.Prune.After, job.Prune.Before, job.Prune.Limit)
	}
	done.Now = s.clock.instant()
	return done, err
}

// note notes that a server is alive. It returns false for one that was declared gone.
func (c *cluster) note(server string) (registered bool) {
	c.s.mu.RLock()
	registered = c.s.state.Registered(server)
	c.s.mu.RUnlock()
	if registered {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.alive[server] = c.s.clock.now(time.Now())
	}
	return registered
}

// seen returns when a server was last alive, as far as this one knows.
func (c *cluster) seen(name string, recorded claim.Time) claim.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return max(recorded, c.alive[name])
}

// hasOthers reports whether other servers with sessions have been alive in this epoch.
func (c *cluster) hasOthers() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.alive) > 0
}

// others returns the other servers with sessions that have been alive in this epoch.
func (c *cluster) others() (servers []record.Server) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(c.alive)) {
		if !c.s.state.Registered(name) {
			delete(c.alive, name)
			continue
		}
		servers = append(servers, record.Server{Name: name, Seen: c.alive[name]})
	}
	return servers
}

// register has the decider register the name of this server.
func (c *cluster) register(ctx context.Context, name string) error {
	message, err := record.WriteJob(&record.Job{Server: name, Register: true})
	if err == nil {
		_, err = c.deliver(ctx, message)
	}
	return err
}

// beat shows that the log takes commits: the decider commits one, and another server finds the decider alive.
func (c *cluster) beat(ctx context.Context) (decides bool, err error) {
	if err := ctx.Err(); err != nil {
		return false, fmt.Errorf("%w: %w", db.ErrUnavailable, context.Cause(ctx))
	}
	if epoch := c.decides(); epoch != 0 {
		return true, c.commitBeat(ctx, epoch)
	}
	done, err := c.ask(ctx, record.Job{Beat: true})
	if err == nil && done.Gone {
		err = db.ErrServerGone
	}
	return false, err
}

// commitBeat commits a beat in an epoch that this server decides in.
func (c *cluster) commitBeat(ctx context.Context, epoch uint64) error {
	if err := c.s.canWrite(ctx); err != nil { // another server may
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), appendTimeout) // the server that asked may be gone
	defer cancel()
	err := c.Log.Beat(ctx, epoch)
	if err != nil {
		c.depose(epoch)
	}
	return clusterUnavailable(err)
}

// clusterUnavailable returns an error of the log as one of package db.
func clusterUnavailable(err error) error {
	switch {
	case err == nil, errors.Is(err, db.ErrUnavailable):
		return err
	case errors.Is(err, order.ErrUnavailable):
		return fmt.Errorf("%w: %w", db.ErrNoQuorum, err)
	}
	return fmt.Errorf("%w: %w", db.ErrUnavailable, err)
}

// enterCluster makes a new folder one of the cluster's.
func (s *Store) enterCluster() error {
	if !s.folder.fresh {
		return nil
	}
	id, err := s.cluster.id(s.folder.log, 0)
	if err != nil || id == s.folder.log {
		return err
	}
	s.folder.log = id
	return s.folder.note(stateNew)
}

// joinCluster checks that the folder is one of the cluster's. The first server of a cluster may have served by itself before: the
// log of the cluster then follows its own.
func (s *Store) joinCluster() error {
	if s.folder.joins {
		if err := s.snapshotForOthers(); err != nil {
			return err
		}
	}
	proposed := s.folder.log
	if !s.folder.fresh && !s.folder.joins { // its cluster has begun
		proposed = 0
	}
	id, err := s.cluster.id(proposed, s.log.Last())
	switch {
	case err != nil:
		return err
	case id == 0:
		return fmt.Errorf("%w: %s is of a server of a cluster, and the log of the cluster is not there: name the etcd and the prefix as before; if the log is lost, stop all servers, back up the folder whose log is the longest, and restore the backup into a new cluster",
			ErrFolder, s.folder.path)
	case id != s.folder.log:
		return fmt.Errorf("%w: %s is of another cluster, or of a server by itself: its log is %x, and this cluster's is %x", ErrFolder, s.folder.path, s.folder.log, id)
	case s.folder.joins:
		return s.folder.note(stateCluster)
	}
	return nil
}

// snapshotForOthers makes a snapshot of all that a server has that served by itself: other servers join with it.
func (s *Store) snapshotForOthers() error {
	if err := s.openForWriting(); err != nil {
		return err
	}
	return s.onTurn(context.Background(), s.makeSnapshot)
}

// id returns the id of the cluster. If there is none, this server's id and log begin one, unless the id is 0.
func (c *cluster) id(proposed, last uint64) (uint64, error) {
	ctx, cancel := context.WithTimeout(context.Background(), joinTimeout)
	defer cancel()
	id, err := c.Log.Cluster(ctx, proposed, last)
	return id, clusterUnavailable(err)
}

// joinTimeout is how long the start of a server waits for the log of the cluster, and to have everything in it.
const joinTimeout = 30 * time.Second

// catchUp waits until the state has everything that was committed.
func (c *cluster) catchUp() error {
	ctx, cancel := context.WithTimeout(context.Background(), joinTimeout)
	defer cancel()
	for {
		err := c.wait(ctx)
		if failure := c.s.Failure(); failure != nil {
			return failure
		}
		if err == nil || ctx.Err() != nil {
			return err
		}
		pause(ctx, followPause)
	}
}

// startClock begins lease time where the state is, for a server that decides or does not. It begins with the decider's time.
func (s *Store) startClock(decides bool) {
	s.mu.RLock()
	lease := s.state.Lease
	s.mu.RUnlock()
	if lease == 0 && decides {
		lease = s.clock.wallTime()
	}
	s.clock.start(lease)
}
