// Package mysql, for this module only, is the engine for databases that speak the MySQL protocol. Any number of
// servers may share one database.
//
// Every transaction locks the rows of its resources first, in the order of their names; all
// that it reads before is which resources its claims belong to. Claims are therefore safe without
// locks of their own, and two servers cannot wait for each other except for locks
// inside an index; the engine then runs the transaction again.
package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/rules/claim"
)

// Store is a db.Store on a database that may have other servers.
type Store struct {
	pools
	timeline   db.Timeline
	clock      atomic.Pointer[db.Clock] // when last read
	quarantine atomic.Int64             // likewise
	fault      atomic.Int64             // for tests: what the database's clock is wrong by

	scans  chan struct{} // has an entry for each list that may read everything and runs
	limits limits        // constants, or what tests say

	name     feedName    // of this server in the feed
	cluster  atomic.Bool // whether the database is a node of a cluster: see look
	about    db.About
	barriers barriers

	// What follows belongs to the one goroutine that transacts and beats …
	holders holders
	locks   lockTables
	// refused are resources.
	refused, refusedSessions refusedRows
	// registeredAs is the name that this server keeps sessions alive under, nil for none. Others read it.
	registeredAs atomic.Pointer[string]
	// otherBeat is whether beats write in the second of beatNames.
	otherBeat atomic.Bool
	// … and to the pruning goroutine.
	feedSwept time.Time
	feedPast  *db.Past
}

var _ db.Store = (*Store)(nil)

// limits are for how long callers wait for a list that may read everything, may new attempts at a transaction start, and is the outcome of a
// commit asked for.
type limits struct{ list, retry, outcome time.Duration }

// Open connects to the database that a DSN of go-sql-driver/mysql names, and makes the
// database and its tables if they are not there. It returns db.ErrUnavailable when the
// database does not answer, db.ErrNewerSchema, and ErrNoRowLocks.
func Open(ctx context.Context, dsn string, options ...Option) (*Store, error) {
	config, err := configure(dsn, options)
	if err != nil {
		return nil, err
	}
	if err := createDatabase(ctx, config); err != nil {
		return nil, atStart(err)
	}
	s := newStore(config)
	if err := s.start(ctx, config); err != nil {
		return nil, errors.Join(atStart(err), s.Close())
	}
	return s, nil
}

// newStore returns a store that has not connected yet: see start.
func newStore(config *mysql.Config) *Store {
	s := &Store{
		scans:    make(chan struct{}, maxScans),
		limits:   limits{list: listTime, retry: retryTime, outcome: outcomeTimeout},
		holders:  make(holders),
		locks:    newLockTables(),
		refused:  make(refusedRows),
		feedPast: db.NewPast(2 * db.FeedAge),
		barriers: barriers{durable: make(db.Position)},
	}
	s.pools = newPools(config, s.look)
	s.refusedSessions = make(refusedRows)
	s.name.change()
	return s
}

func (s *Store) start(ctx context.Context, config *mysql.Config) error {
	migrator := connect(config, migrating)
	defer func() { _ = migrator.Close() }()
	if err := migrate(ctx, migrator.DB, s.name.get()); err != nil {
		return translate(ctx, err)
	}
	if err := s.probeLocks(ctx); err != nil {
		return translate(ctx, err)
	}
	if err := s.checkPackets(ctx); err != nil {
		return translate(ctx, err)
	}
	if err := s.detectRisks(ctx); err != nil {
		return translate(ctx, err)
	}
	if err := retry(ctx, func() error { return s.makeBeatRows(ctx) }); err != nil {
		return translate(ctx, err)
	}
	return s.startClock(ctx)
}

// checkPackets checks that the database takes the largest packets of a Store.
func (s *Store) checkPackets(ctx context.Context) error {
	var limit int
	err := s.control.QueryRowContext(ctx, "SELECT @@max_allowed_packet").Scan(&limit)
	if err == nil && limit < minPacket {
		err = fmt.Errorf("max_allowed_packet of the database is %d; set it to %d or more", limit, minPacket)
	}
	return err
}

// createDatabase makes the database if the server has none of its name, and may.
func createDatabase(ctx context.Context, config *mysql.Config) error {
	bare := config.Clone()
	bare.DBName = ""
	server := connect(bare, controlling)
	defer func() { _ = server.Close() }()
	name := "`" + strings.ReplaceAll(config.DBName, "`", "``") + "`"
	if _, err := server.ExecContext(ctx, "USE "+name); !isCode(err, codeUnknownDatabase) {
		return translate(ctx, err)
	}
	return translate(ctx, exec(ctx, server, "CREATE DATABASE IF NOT EXISTS "+name))
}

func (s *Store) Close() (err error) {
	for _, pool := range s.all() {
		err = errors.Join(err, pool.Close())
	}
	return err
}

// nowSQL is the database's time in microseconds, at the begin of the statement.
const nowSQL = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))"

// meta is the row of the same name, with the time of the read.
type meta struct {
	now   claim.Time
	at    claim.Time // the same on the timeline; 0 where that is not asked for
	skew  time.Duration
	clock db.Clock
	floor uint64
	// quarantine is the lease time before the first grant.
	quarantine claim.Time
}

const (
	metaColumns = nowSQL + ", seen, outage, floor, quarantine"
	metaSQL     = "SELECT " + metaColumns + " FROM meta WHERE one = 1"
)

type querier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

type scanner interface{ Scan(into ...any) error }

func (s *Store) readMeta(ctx context.Context, q querier) (m meta, err error) {
	sent := time.Now()
	m, err = scanMeta(q.QueryRowContext(ctx, metaSQL))
	if err == nil {
		s.correct(&m, sent)
	}
	return m, err
}

// correct puts what was just read on the timeline.
func (s *Store) correct(m *meta, sent time.Time) {
	if m.now == 0 { // nothing was read
		return
	}
	m.now = m.now.Add(time.Duration(s.fault.Load()))
	m.at = s.timeline.Read(m.now, m.clock.Seen, sent, time.Now())
	m.skew = s.timeline.Skew(s.cluster.Load())
	clock := m.clock
	s.clock.Store(&clock)
	s.quarantine.Store(int64(m.quarantine))
}

// shown is the time of a read, as callers see it.
func (s *Store) shown(m meta) claim.Instant {
	m.now = m.now.Add(time.Duration(s.fault.Load()))
	offset, _ := s.timeline.Shift()
	m.at = m.now.Add(offset)
	return m.instant()
}

// ClockState implements db.Clocks.
func (s *Store) ClockState() (state db.ClockState) {
	state.Offset, state.Steps = s.timeline.Shift()
	state.Cluster = s.cluster.Load()
	state.Skew = s.timeline.Skew(state.Cluster)
	state.Quarantine = claim.Time(s.quarantine.Load())
	if clock := s.clock.Load(); clock != nil {
		state.Outage, state.Lease = clock.Outage, clock.Seen.Add(-clock.Outage)
		state.Beaten = state.Lease
	}
	return state
}

// About implements db.Store. Its warnings are which settings of the database may lose what was acknowledged, or stop the
// database, and when.
func (s *Store) About() db.About { return s.about }

// scanMeta reads a row that ends in metaColumns; before takes what comes before them.
func scanMeta(row scanner, before ...any) (m meta, err error) {
	var outage int64
	err = row.Scan(append(before, &m.now, &m.clock.Seen, &outage, &m.floor, &m.quarantine)...)
	m.clock.Outage = time.Duration(outage) * time.Microsecond
	return m, err
}

func (m meta) instant() claim.Instant {
	i := m.clock.Instant(m.at)
	i.Wall, i.Skew, i.Quarantine = m.now, m.skew, m.quarantine
	return i
}

func (s *Store) Now(ctx context.Context) (claim.Instant, error) {
	var m meta
	err := s.withRetry(ctx, s.control, func(conn *sql.Conn) (err error) {
		m, err = s.readMeta(ctx, conn)
		return err
	})
	return m.instant(), translate(ctx, err)
}

// startClock begins service. It first finds out whether there are other servers, and takes up
// their timeline: if nobody beats for MaxSilence, there is none.
func (s *Store) startClock(ctx context.Context) error {
	first, err := s.readMeta(ctx, s.control)
	seen := first.clock.Seen
	begin := time.Now()
	for before := first; err == nil && first.now.Sub(seen).Abs() <= db.MaxSkew && time.Since(begin) <= db.MaxSilence; {
		time.Sleep(db.BeatInterval / 5)
		var m meta
		if m, err = s.readMeta(ctx, s.control); m.clock.Seen != seen {
			s.timeline.Join(m.clock.Seen, before.now, m.now)
			return errors.Join(translate(ctx, err), s.Beat(ctx, true))
		}
		before = m
	}
	if err != nil {
		return translate(ctx, err)
	}
	s.timeline.Start()
	return s.Beat(ctx, true)
}
