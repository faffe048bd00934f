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

	"github.com/locket-service/locket/claim"
	"github.com/locket-service/locket/db"
)

// Store is a db.Store in one file. It has one connection that writes, and some that read.
type Store struct {
	file    *databaseFile
	readers *sqlitex.Pool

	// clock and floor are the row of meta. Nobody else writes it, so it is kept here as
	// well.
	clock atomic.Pointer[db.Clock]

	mu     sync.Mutex // guards all below
	floor  uint64
	conn   *sqlite.Conn
	writer *statements
}

var _ db.Store = (*Store)(nil)

// Open opens the store in a file, and makes the file and its tables if they are not
// there. It returns db.ErrInUse when another server has the file open, under whatever name,
// and db.ErrNewerSchema.
func Open(path string) (_ *Store, err error) {
	s := &Store{}
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
	s.readers, err = sqlitex.NewPool(s.file.path, sqlitex.PoolOptions{
		Flags:       sqlite.OpenReadOnly,
		PoolSize:    max(4, runtime.NumCPU()),
		PrepareConn: func(conn *sqlite.Conn) error { return pragmas(conn) },
	})
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	return s, nil
}

func pragmas(conn *sqlite.Conn) error {
	conn.SetBusyTimeout(5 * time.Second)
	for _, pragma := range []string{
		"PRAGMA synchronous = FULL", "PRAGMA cache_size = -65536", "PRAGMA wal_autocheckpoint = 4000",
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
	if err := pragmas(s.conn); err != nil {
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
	return s.saveClock(s.clock.Load().Resume(wallTime()))
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

func (s *Store) saveClock(clock db.Clock) error {
	if err := s.file.check(); err != nil {
		return err
	}
	err := run(s.writer.saveClock, int64(clock.Seen), clock.Outage.Microseconds())
	if err == nil {
		s.clock.Store(&clock)
	}
	return translate(err)
}

// wallTime is the database's time: that of this machine.
func wallTime() claim.Time { return claim.Time(time.Now().UnixMicro()) }

func (s *Store) instant() claim.Instant { return s.clock.Load().Instant(wallTime()) }

// Now implements db.Reader.
func (s *Store) Now(context.Context) (claim.Instant, error) { return s.instant(), nil }

// Beat implements db.Store.
func (s *Store) Beat(_ context.Context, inService time.Duration) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.saveClock(s.clock.Load().Beat(wallTime(), inService))
}

// Resume implements db.Store.
func (s *Store) Resume(context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.saveClock(s.clock.Load().Resume(wallTime()))
}

// Changes implements db.Store. There are no other servers.
func (s *Store) Changes(context.Context) ([]string, error) { return nil, nil }

// Close implements db.Store.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
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
