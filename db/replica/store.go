// Package replica, for this module only, is the embedded engine: the live state in memory, commits in a log, and the
// claims that have ended in a file that is filled behind.
//
// A transaction carries out commands by the rules on the newest state, and makes a record of their changes (package
// record). The record is committed when the log has it. The state after a start is the last snapshot, and the records
// since.
//
// A server by itself has its log in files (package filelog). The servers of a cluster share one (package order): see Cluster.
package replica

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/db/replica/disk"
	"github.com/locket-service/locket/db/replica/filelog"
	"github.com/locket-service/locket/db/replica/history"
	"github.com/locket-service/locket/db/replica/record"
	"github.com/locket-service/locket/db/replica/snapshot"
	"github.com/locket-service/locket/db/replica/state"
	"github.com/locket-service/locket/internal/rules/claim"
)

// Options are for tests, except Cluster, Witness and Log. A server uses the zero values of the others.
type Options struct {
	// SegmentBytes is how large the files of the log are.
	SegmentBytes int
	// SnapshotBytes is how much of the log is kept at least before it is made into a snapshot; more where the last one is large (logShare).
	SnapshotBytes int
	// Delay is how long the work behind the commits waits for more.
	Delay time.Duration
	// LogBytes is how much of the log is kept for a history that cannot be written, and PendingBytes how much of claims that have ended.
	LogBytes, PendingBytes int
	// Format is the highest format that the server knows, and FormatDelay is for how long all servers must know a new one until they use it.
	Format      uint64
	FormatDelay time.Duration
	// SumEntries is after how many entries of the log the servers of a cluster compare the sums of their states.
	SumEntries uint64
	// OutcomeBytes bounds what is kept of the outcome of a batch of another server.
	OutcomeBytes int
	// Disk is where the log is, in place of a folder below the store's, and Snapshots where the snapshots are.
	Disk, Snapshots disk.Disk
	// Wall is the clock of the wall, which labels what happens and decides nothing; nil: this machine's.
	Wall func() time.Time
	// Copied says that a copy of a folder counts as the original.
	Copied bool
	// Witness is a folder outside the data where the store notes the end of its log, "" for none: see witness.
	Witness string
	// Log gets failures behind the commits; nil: nobody does.
	Log *slog.Logger
	// Cluster is set for a server of a cluster.
	Cluster *Cluster
}

const (
	defaultSnapshotBytes = 64 << 20
	defaultLogBytes      = 2 * defaultSnapshotBytes
	defaultDelay         = 250 * time.Millisecond
	defaultSumEntries    = 1000
	defaultFormatDelay   = 24 * time.Hour
	// slowWork is how long the disk may take for the work behind the commits, or for a part of a snapshot, until that is reported.
	slowWork = time.Minute
	// closeTimeout is how long Close waits for a disk that does not answer, in steps of hangStep.
	closeTimeout = 5 * time.Second
)

func (o *Options) setDefaults() {
	o.SnapshotBytes = cmp.Or(o.SnapshotBytes, defaultSnapshotBytes)
	o.Delay = cmp.Or(o.Delay, defaultDelay)
	o.LogBytes = cmp.Or(o.LogBytes, defaultLogBytes)
	o.PendingBytes = cmp.Or(o.PendingBytes, maxPendingBytes)
	o.OutcomeBytes = cmp.Or(o.OutcomeBytes, maxOutcomeBytes)
	o.Format = cmp.Or(o.Format, record.Format)
	o.FormatDelay = cmp.Or(o.FormatDelay, defaultFormatDelay)
	o.SumEntries = cmp.Or(o.SumEntries, defaultSumEntries)
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	if o.Wall == nil {
		o.Wall = time.Now
	}
}

// Store is a db.Store in one folder.
type Store struct {
	*db.LocalFeed

	options   Options
	cluster   *cluster // nil for a server by itself
	folder    *folder
	log       *filelog.Log
	witness   witness
	unseen    unseen
	history   *history.History
	snapshots disk.Disk
	clock     leaseClock
	announced announced
	scanning  chan struct{} // full while as many lists read much as may at once
	// registeredAs is the name that this server keeps sessions alive under, nil for none.
	registeredAs atomic.Pointer[string]

	mu       sync.RWMutex // guards the following: held while the state changes
	state    *state.State // with all proposals
	applied  position     // of the last entry that is committed
	wall     claim.Time   // the latest time of a record that this server has found when it started
	pending  pending
	ahead    ahead
	proposed []*proposal   // not committed yet, in order
	last     *proposal     // the last one that this server by itself has decided, nil before the first
	workDone chan struct{} // closed when the work behind the commits has been done once more

	// writing is full while somebody decides, and uses what follows.
	writing chan struct{}
	started bool // the run has begun: see beginRun

	queue     queue          // of batches
	proposals chan struct{}  // has as many as there are proposals
	commits   chan *proposal // to be written
	refused   atomic.Bool    // the disk was full when the last record was decided
	noRoom    problem        // why the store takes no commits yet, see startWriting

	failure     problem       // why nothing is written any more
	broken      chan struct{} // closed when there is a failure
	hang        *hangTimer    // runs while the log is written
	trouble     problem       // of the work behind the commits the last time; the locks do not need it
	slow        *time.Timer   // runs while the work behind the commits is done
	closed      chan struct{}
	working     sync.WaitGroup
	work        chan struct{} // there is something for the work behind the commits
	hurry       chan struct{} // and it is not to wait for more
	behind      chan struct{} // is full while somebody writes the history, or a snapshot, and uses what follows
	merged      int           // how much of the log there was after the last snapshot
	rested      time.Time     // when the snapshot that is being made had its last rest
	size        int           // of the last snapshot, 0 for none
	refusing    atomic.Bool   // the history could not be written the last time
	snapshotted atomic.Uint64 // the last entry in the last snapshot, 0 for none
}

// position is how far a state has got.
type position struct {
	index uint64
	sum   uint32 // of the last record
}

// problem is an error that lasts until another one, or nil, takes its place.
type problem struct{ atomic.Pointer[error] }

func (p *problem) err() error {
	if err := p.Load(); err != nil {
		return *err
	}
	return nil
}

func (p *problem) set(err error) (before error) {
	if before := p.Swap(&err); before != nil {
		return *before
	}
	return nil
}

var _ db.Store = (*Store)(nil)

// Open opens the store in a folder, and makes the folder and its files if they do not exist. It returns db.ErrInUse
// when another server uses it, and names the file if something is missing or has changed since it was written.
func Open(path string) (*Store, error) { return OpenWith(path, Options{}) }

// OpenWith is Open with options.
func OpenWith(path string, options Options) (_ *Store, err error) {
	defer func() {
		if c := options.Cluster; c != nil && err != nil {
			c.Peers.Close()
			err = errors.Join(err, c.Log.Close())
		}
	}()
	options.setDefaults()
	proposals := maxProposals
	if options.Cluster != nil {
		proposals = 1 // the state has it when it is committed
	}
	s := &Store{
		options: options, state: state.New(), clock: leaseClock{wall: options.Wall}, LocalFeed: db.NewLocalFeed(options.Wall),
		scanning: make(chan struct{}, max(1, runtime.NumCPU()/2)), writing: make(chan struct{}, 1), behind: make(chan struct{}, 1),
		proposals: make(chan struct{}, proposals), commits: make(chan *proposal, proposals), closed: make(chan struct{}), work: make(chan struct{}, 1), hurry: make(chan struct{}, 1), workDone: make(chan struct{}), broken: make(chan struct{}),
	}
	s.state.Known = options.Format
	s.hang = newHangTimer(s.hung)
	s.slow = time.AfterFunc(slowWork, func() { s.report(errSlow) })
	s.slow.Stop()
	if s.folder, err = openFolder(path, options.Copied, options.Cluster != nil); err != nil {
		return nil, err
	}
	if exposed := s.folder.exposed(); exposed != "" {
		options.Log.Warn(exposed)
	}
	closeAll := s.closeFiles
	defer func() {
		if err != nil {
			err = fmt.Errorf("open %s: %w", path, errors.Join(err, closeAll()))
		}
	}()
	if err = s.open(); err != nil {
		return nil, err
	}
	closeAll = s.Close
	s.working.Go(s.commitAll)
	s.working.Go(s.workBehind)
	s.working.Go(s.watchFolder)
	if s.cluster != nil {
		s.cluster.Peers.Serve(s)
		s.working.Go(s.cluster.run)
		if err := s.cluster.catchUp(); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// open reads the folder, and begins the run.
func (s *Store) open() error {
	if s.options.Cluster != nil {
		s.cluster = newCluster(s, *s.options.Cluster)
		if err := s.enterCluster(); err != nil {
			return err
		}
	}
	if err := s.openDisks(); err != nil {
		return err
	}
	if err := s.openHistory(); err != nil {
		return err
	}
	if err := s.readSnapshot(); err != nil {
		return err
	}
	if err := s.openLog(); err != nil {
		return err
	}
	s.compareWitness()
	if err := s.replay(); err != nil {
		return err
	}
	if s.cluster != nil {
		if err := s.joinCluster(); err != nil {
			return err
		}
	}
	err := s.startWriting()
	if err == nil || s.folder.fresh || !s.waitsForRoom(err) {
		return err
	}
	s.options.Log.Error("the disk is full: reads are served, and nothing is written until there is room", "error", err)
	return nil
}

// openDisks opens the folders of the snapshots and of the log.
func (s *Store) openDisks() error {
	if s.snapshots = s.options.Snapshots; s.snapshots == nil {
		held, err := s.folder.hold(snapshotsName)
		if err != nil {
			return err
		}
		s.snapshots = held
	}
	if s.options.Disk == nil {
		held, err := s.folder.hold(logName)
		if err != nil {
			return err
		}
		s.options.Disk = held
	}
	return nil
}

func (s *Store) openHistory() (err error) {
	if s.history, err = history.Open(s.folder.file(historyName), s.folder.log, s.folder.fresh); err != nil {
		return err
	}
	s.history.OnDamage = func(problem string) {
		s.options.Log.Error("a claim of the history is damaged; the locks go on", "problem", problem)
	}
	s.ahead.names = make(map[string]*named)
	s.pending = newPending(s.history.Entry(), s.options.PendingBytes, s.ahead.left)
	return nil
}

// readSnapshot restores the state from the newest snapshot.
func (s *Store) readSnapshot() error {
	index, err := snapshot.Latest(s.snapshots)
	if err != nil || index == 0 {
		return err
	}
	var m snapshot.Meta
	err = s.state.Restore(func(apply func(*record.Decoded) error) (err error) {
		m, err = snapshot.Load(s.snapshots, index, apply)
		return err
	})
	if err != nil {
		return err
	}
	if m.Log != s.folder.log {
		return fmt.Errorf("%w: %s holds a snapshot of another server", ErrFolder, s.folder.file(snapshotsName))
	}
	switch had := s.history.Entry(); {
	case had >= m.Index:
	case had >= m.History, s.folder.state == stateCluster: // it could not be written, or the snapshot is another server's
		s.pending.gap = &history.Gap{After: had, Entry: m.Index, Claims: int(m.Missing)}
	case had != 0: // a newly made one is empty
		return fmt.Errorf("%w: %s is one of before: it ends at entry %d of the log, and the snapshot is of entry %d; bring it back, with all files whose names begin so",
			ErrFolder, s.folder.file(historyName), had, m.Index)
	}
	s.cut(s.state.Cuts())
	s.applied = position{m.Index, m.Sum}
	s.noteSnapshot(m)
	return nil
}

func (s *Store) noteSnapshot(m snapshot.Meta) {
	s.size = int(m.Bytes)
	s.snapshotted.Store(m.Index)
}

func (s *Store) openLog() (err error) {
	options := filelog.Options{SegmentBytes: s.options.SegmentBytes, Copy: s.cluster != nil}
	if s.folder.fresh {
		s.log, err = filelog.Create(s.options.Disk, s.folder.log, 0, options)
		return err
	}
	least := s.applied.index
	if s.cluster == nil {
		least = max(least, s.history.Entry())
	}
	s.log, err = filelog.Open(s.options.Disk, s.folder.log, least, options)
	if errors.Is(err, filelog.ErrMissing) && s.folder.state == stateCluster && s.applied.index != 0 { // the cluster has the rest
		s.options.Log.Info("the log of this server ends before its snapshot, and begins anew behind it", "entry", s.applied.index, "reason", err)
		s.log, err = beginLog(s.options.Disk, s.folder.log, s.applied.index, options)
	}
	if err != nil {
		return err
	}
	if first := s.log.First(); first > s.applied.index+1 {
		return fmt.Errorf("%w: the log begins at entry %d, and there is no snapshot with those before in %s; restore a backup",
			ErrFolder, first, s.folder.file(snapshotsName))
	}
	return nil
}

// replay applies what the log has since the snapshot.
func (s *Store) replay() error {
	joiner := new(record.Joiner)
	err := records(s.log, joiner, s.applied.index+1, s.log.Last(), func(index uint64, data []byte) error { return s.follow(index, data, nil) })
	if err != nil {
		return err
	}
	if s.cluster != nil {
		s.Share(fmt.Sprintf("%x", s.folder.log), s.log.Last())
		s.cluster.joiner, s.cluster.have = joiner, s.log.Last()
	}
	s.clock.start(s.state.Lease)
	return nil
}

// fail ends all writing: what the disk has of the last write is not known.
func (s *Store) fail(err error) {
	failure := fmt.Errorf("%w; nothing is written until the server is started again", err)
	if s.failure.CompareAndSwap(nil, &failure) {
		close(s.broken)
	}
}

// Failure returns why nothing is written any more, nil while it is.
func (s *Store) Failure() error { return s.failure.err() }

// LastChange returns the time of the last record that the store has read since it was opened, zero for none.
func (s *Store) LastChange() time.Time {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.wall == 0 {
		return time.Time{}
	}
	return s.wall.Std()
}

// About implements db.Store. It is broken when nothing is written any more, because the disk has failed to write the
// log, or has taken too long: what it has of the last write is not known.
func (s *Store) About() db.About {
	s.mu.RLock()
	version := fmt.Sprint("record format ", s.state.Format())
	s.mu.RUnlock()
	return db.About{Engine: "embedded", Version: version, Warnings: s.warnings(), Broken: s.broken, Failure: s.Failure()}
}

// Close implements db.Store. When the disk does not answer it returns db.ErrUnavailable after closeTimeout, and leaves
// the folder locked until this process ends.
func (s *Store) Close() error {
	close(s.closed)
	ended := make(chan error, 1)
	go func() { ended <- s.close() }()
	for range closeTimeout / hangStep { // a pause of this process counts as one of them
		select {
		case err := <-ended:
			return err
		case <-time.After(hangStep):
		}
	}
	return fmt.Errorf("close: %w: the disk has not answered for %s", db.ErrUnavailable, closeTimeout)
}

func (s *Store) close() error {
	s.writing <- struct{}{} // for good
	for range cap(s.proposals) {
		s.proposals <- struct{}{}
	}
	if s.cluster != nil {
		s.cluster.resign()
		s.cluster.Peers.Close()
	}
	close(s.commits)
	s.working.Wait()
	err := errors.Join(s.writeHistory(), s.closeFiles())
	if s.cluster != nil {
		err = errors.Join(err, s.cluster.Log.Close())
	}
	return err
}

func (s *Store) closeFiles() error {
	var errs []error
	moved := s.folder.stays()
	if s.history != nil && moved == nil { // SQLite deletes files by their names: these may be another server's by now
		errs = append(errs, s.history.Close())
	}
	if s.log != nil {
		if s.Failure() == nil {
			errs = append(errs, s.log.Close())
		}
	}
	s.witness.close()
	s.folder.close()
	return errors.Join(errs...)
}
