package replica

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
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
	// newSince is since when all servers have known a newer format, nil if this server does not decide, or there is none.
	newSince atomic.Pointer[time.Time]

	sighted   sync.Mutex // guards sightings; held while the log forgets servers
	sightings map[string]sighting

	applying  turn           // held while a record is decided or applied; guards the following
	proposing *proposal      // is being committed, nil for none
	joiner    *record.Joiner // of the entries
	have      uint64         // the last entry that this server has
	summed    uint64         // the last entry whose state this server has sent the sums of, as the decider

	mu      sync.Mutex // guards the following
	epoch   order.Epoch
	mine    uint64        // the epoch that this server decides in, 0 if it does not decide
	raised  uint64        // the last epoch that this server has raised
	silent  int           // ticks since the last sign of a decider
	changed chan struct{} // closed when epoch or mine changes
	alive   map[string]claim.Time
	// gone are the servers that this decider declares gone: it takes no beats of theirs, since the record may have been decided.
	gone map[string]bool
}

// turn is a lock that is held while the disk is written, so waiting for it may take long. It is full while it is held.
type turn chan struct{}

// Lock waits for the lock.
func (t turn) Lock() { t <- struct{}{} }

// Unlock gives it back.
func (t turn) Unlock() { <-t }

func newCluster(s *Store, c Cluster) *cluster {
	made := &cluster{Cluster: c, s: s, applying: make(turn, 1), changed: make(chan struct{}), wanted: make(chan struct{}, 1), alive: make(map[string]claim.Time), gone: make(map[string]bool)}
	made.forwarder = NewForwarder(rand.Uint64()|1, made.send)
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
	working.Go(func() { c.watchFormats(ctx) })
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
		if !c.beginEpoch(*e.Epoch) {
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
		c.s.Committed(c.s.clock.wallTime(), nil, nil)
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
	p, err := s.propose(decide)
	if err != nil || p == nil {
		return nil, err
	}
	p.record.Sums = c.sums()
	p.epoch, p.index = epoch, c.have+1
	p.data, p.sum = record.Append(nil, s.at().sum, p.record)
	c.proposing = p
	return p, nil
}

// commit commits a proposal.
func (c *cluster) commit(p *proposal) error {
	begin := time.Now()
	for n, entry := range record.Split(p.data, order.MaxRecord) {
		if err := c.commitEntry(p.epoch, p.index+uint64(n), entry); err != nil {
			p.unknown.Store(true)
			c.depose(p.epoch)
			return err
		}
	}
	c.s.queue.committed(time.Since(begin))
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
	if epoch := c.decides(); epoch != 0 {
		w := &waiting{batch: batch}
		switch err := c.s.carryOut(ctx, w); {
		case err == nil && w.p == nil:
			return w.part.Outcome, confirmed{c, epoch, c.barrier.join()}, nil
		case err == nil:
			return w.part.Outcome, under{c.s, w.p}, nil
		case !errors.Is(err, ErrNotDecider):
			return db.Outcome{}, nil, err
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
