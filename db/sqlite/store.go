// Package sqlite is the embedded engine: a store in one file, for one server.
package sqlite

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/claim"
)

// Store is a db.Store in one file. It has one connection that writes, and some that read.
type Store struct {
	*db.LocalFeed

	file    *databaseFile
	readers *sqlitex.Pool
	// scanning is full while as many lists read much as may at once.
	scanning chan struct{}

	// clock and floor are the row of meta. Nobody else writes it, so it is kept here as
	// well.
	clock atomic.Pointer[db.Clock]
	time  leaseClock
	// registeredAs is the name under which this server keeps sessions alive, nil for none.
	registeredAs atomic.Pointer[string]

	members   sync.Mutex // held for announced
	announced map[string]db.Member

	// writing is full while somebody uses the writing connection, and what stands below.
	writing chan struct{}
	closed  chan struct{}
	floor   uint64
	conn    *sqlite.Conn
	writer  *statements
	commit  func() error // runs writer.commit
}

var _ db.Store = (*Store)(nil)

// Open opens the store in a file, and makes the file and its tables if they are not
// there. It returns db.ErrInUse when another server has the file open, under whatever name,
// and db.ErrNewerSchema.
func Open(path string) (_ *Store, err error) {
	s := &Store{
		writing: make(chan struct{}, 1), closed: make(chan struct{}),
		scanning:  make(chan struct{}, max(1, runtime.NumCPU()/2)),
		LocalFeed: db.NewLocalFeed(),
		time:      leaseClock{time.Now()}, announced: make(map[string]db.Member),
	}
	defer func() {
		if err != nil {
			_ = s.Close()
		}
	}()
	if s.file, err = openFile(path); err != nil {
		return nil, err
	}
	if s.conn, err = sqlite.OpenConn(s.file.path, sqlite.OpenReadWrite, sqlite.OpenCreate, sqlite.OpenWAL); err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	if err = s.prepare(); err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	if err = s.file.addLog(); err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	s.readers, err = newReaders(s.file.path)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	return s, nil
}

// The memory that SQLite may use for pages: that of the writing connection, and that of all
// reading connections together.
const (
	writerCache  = 64 << 20
	readersCache = 32 << 20
)

// readerCount is how many connections read.
func readerCount() int { return max(4, runtime.NumCPU()) }

// newReaders returns the connections for reading.
func newReaders(path string) (*sqlitex.Pool, error) {
	size := readerCount()
	return sqlitex.NewPool(path, sqlitex.PoolOptions{
		Flags: sqlite.OpenReadOnly, PoolSize: size,
		PrepareConn: func(conn *sqlite.Conn) error { return pragmas(conn, readersCache/size) },
	})
}

// pragmas prepares a connection that may use a cache of some bytes.
func pragmas(conn *sqlite.Conn, cache int) error {
	conn.SetBusyTimeout(5 * time.Second)
	for _, pragma := range []string{
		"PRAGMA synchronous = FULL", fmt.Sprintf("PRAGMA cache_size = -%d", cache>>10), "PRAGMA wal_autocheckpoint = 4000",
	} {
		if err := sqlitex.ExecuteTransient(conn, pragma, nil); err != nil {
			return err
		}
	}
	return nil
}

// prepare migrates the schema, reads the row of meta, and starts the clock of the leases
// again: there was no server since the last beat.
func (s *Store) prepare() error {
	if err := pragmas(s.conn, writerCache); err != nil {
		return err
	}
	if err := migrate(s.conn); err != nil {
		return err
	}
	if err := s.readMeta(); err != nil {
		return err
	}
	var err error
	if s.writer, err = prepareStatements(s.conn); err != nil {
		return err
	}
	s.commit = func() error { return run(s.writer.commit) }
	s.conn.SetBlockOnBusy() // for as long as the context of a transaction allows
	return s.Resume(context.Background())
}

func (s *Store) readMeta() error {
	return sqlitex.Execute(s.conn, "SELECT seen, outage, floor FROM meta", &sqlitex.ExecOptions{
		ResultFunc: func(row *sqlite.Stmt) error {
			s.clock.Store(&db.Clock{
				Seen:   claim.Time(row.ColumnInt64(0)),
				Outage: time.Duration(row.ColumnInt64(1)) * time.Microsecond,
			})
			s.floor = uint64(row.ColumnInt64(2))
			return nil
		},
	})
}

// wallTime is the database's clock: that of this machine.
func wallTime() claim.Time { return claim.Time(time.Now().UnixMicro()) }

// leaseClock is what lease time comes from: the machine's clock when the store was opened, and the time since
// then, so that no step of the clock counts.
type leaseClock struct{ opened time.Time }

func (c leaseClock) now() claim.Time {
	return claim.Time(c.opened.UnixMicro()).Add(time.Since(c.opened))
}

func (s *Store) instant() claim.Instant {
	now := s.clock.Load().Instant(s.time.now())
	now.Wall = wallTime()
	return now
}

// Now implements db.Reader.
func (s *Store) Now(context.Context) (claim.Instant, error) { return s.instant(), nil }

// ClockState implements db.Clocks. The clock is that of this machine, so there is no offset.
func (s *Store) ClockState() db.ClockState {
	clock := s.clock.Load()
	return db.ClockState{Outage: clock.Outage, Lease: s.instant().Lease, Beaten: clock.Seen.Add(-clock.Outage)}
}

// About implements db.Store.
func (s *Store) About(ctx context.Context) (about db.About, err error) {
	about.Engine = "sqlite"
	err = s.read(ctx, "SELECT sqlite_version()", func(row *sqlite.Stmt) { about.Version = row.ColumnText(0) })
	return about, err
}

// Beat implements db.Pulse.
func (s *Store) Beat(ctx context.Context) error { return s.beat(ctx, db.Clock.Beat) }

// Resume implements db.Pulse.
func (s *Store) Resume(ctx context.Context) error { return s.beat(ctx, db.Clock.Resume) }

// beat also makes sure that the tables of the claims are there. What else keeps renewals from being
// committed keeps all others from it too: there is one file, with one lock.
func (s *Store) beat(ctx context.Context, next func(db.Clock, claim.Time) db.Clock) error {
	var clock db.Clock
	lost := false
	err := s.write(ctx, func() (err error) {
		now := s.time.now()
		clock = next(*s.clock.Load(), now)
		err = errors.Join(run(s.writer.touchResources), run(s.writer.touchClaims))
		if name := s.registeredName(); name != "" {
			err = errors.Join(err, run(s.writer.saveSeen, int64(clock.Instant(now).Lease), name))
			lost = s.conn.Changes() == 0
		}
		return errors.Join(err, run(s.writer.saveClock, int64(clock.Seen), clock.Outage.Microseconds()))
	}, func() { s.clock.Store(&clock) })
	if err == nil && lost {
		s.registeredAs.Store(nil)
		return db.ErrServerGone
	}
	return err
}

// closeTimeout is how long Close waits for a disk that does not answer.
const closeTimeout = 5 * time.Second

// Close implements db.Store. When the disk does not answer it returns db.ErrUnavailable after
// closeTimeout, and leaves the file open and locked until this process ends.
func (s *Store) Close() error {
	close(s.closed)
	ended := make(chan error, 1)
	go func() { ended <- s.close() }()
	select {
	case err := <-ended:
		return err
	case <-time.After(closeTimeout):
		return fmt.Errorf("close: %w: the disk has not answered for %s", db.ErrUnavailable, closeTimeout)
	}
}

func (s *Store) close() error {
	s.writing <- struct{}{} // for good
	var errs []error
	if s.readers != nil {
		errs = append(errs, s.readers.Close())
	}
	if s.writer != nil {
		errs = append(errs, s.writer.finalize())
	}
	if s.conn != nil {
		errs = append(errs, s.conn.Close())
	}
	if s.file != nil {
		s.file.close()
	}
	return errors.Join(errs...)
}

// translate maps the engine's errors to those of package db.
func translate(err error) error {
	switch sqlite.ErrCode(err).ToPrimary() {
	case sqlite.ResultFull, sqlite.ResultIOErr, sqlite.ResultBusy, sqlite.ResultLocked,
		sqlite.ResultReadOnly, sqlite.ResultCantOpen, sqlite.ResultInterrupt:
		return fmt.Errorf("%w: %w", db.ErrUnavailable, err)
	default:
		return err
	}
}
