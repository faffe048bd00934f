package mysql

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/go-sql-driver/mysql"
)

const (
	// silence is how long a statement of a transaction, or one that the server itself needs, may
	// take before its connection counts as dead. readTimeout of the DSN replaces it.
	silence = 1750 * time.Millisecond
	// listTime is how long the database may work on a statement of a caller, and scanTime on
	// one of the janitor that reads a whole index.
	listTime = 2 * time.Second
	scanTime = 30 * time.Second
)

// session sets up every connection, whatever the DSN and the defaults of the server are. A row lock that is not granted
// after lockWait belongs to a stuck transaction: Locket's take milliseconds.
var session = []string{
	"SET NAMES utf8mb4", // otherwise the database may cut a name at a character missing in the DSN's charset
	"SET SESSION autocommit = 1, completion_type = 0, sql_safe_updates = 0, sql_select_limit = 18446744073709551615",
	"SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
	"SET SESSION innodb_lock_wait_timeout = 1",
	"SET SESSION sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION'",
}

// tableWait limits how long a statement waits for a table that others have locked, in seconds. Without it
// the database would carry out what nobody waits for any more, when the table is free again.
const tableWait = "SET SESSION lock_wait_timeout = 1"

// optional are variables that some databases do not have. These continue without them.
var optional = []string{
	// On Galera a read waits for everything that other nodes have acknowledged. Elsewhere this has no effect.
	"SET SESSION wsrep_sync_wait = 1",
	// The same on Group Replication: each transaction waits at its begin until everything ordered before it is applied
	// here. Without this a member reads its own past, and a lock may be refused although it was released before.
	"SET SESSION group_replication_consistency = 'BEFORE'",
	// Do not look up every key of an IN list a second time to estimate its rows.
	"SET SESSION eq_range_index_dive_limit = 1",
}

// groupRowImage leaves out of the binary log what has not changed of values and user data. A group takes no transaction
// of more than 150 MB, and one that grants many claims with much in them would be larger. It needs the right
// SESSION_VARIABLES_ADMIN; without it nothing changes.
const groupRowImage = "SET SESSION binlog_row_image = IF(@@group_replication_group_name = '', @@binlog_row_image, 'NOBLOB')"

// limit sets how long the database may work on a statement: MariaDB in seconds; MySQL in milliseconds, for reads only.
func limit(variable string, value float64) string {
	return fmt.Sprintf("SET SESSION %s = %g", variable, value)
}

// role describes the connections of a pool.
type role struct {
	connections int
	idle        time.Duration // an idle connection is closed after this
	silence     time.Duration // readTimeout, unless the DSN has one; 0 for none, whatever the DSN says
	multi       bool          // several statements in one packet
	session     []string      // further statements, at the begin of each connection
	optional    []string
	look        func(context.Context, driver.QueryerContext) error // checks a new connection's server; nil: no check
}

// writing is for the one connection that carries the transactions. It takes several statements
// in one packet: what a transaction reads costs one round trip, and what it writes, together
// with its COMMIT, another. The database stops at the first statement that fails, so it commits
// when all of them have succeeded, and only then.
//
// The database ends the transaction of a server that is lost, and so frees its row locks, when
// it has heard nothing for the time that is set here; without it that takes 8 hours. A server
// that was only slow finds out that its commit was not done, and repeats it.
var writing = role{
	connections: 1, idle: 3 * time.Second, silence: silence, multi: true,
	session: []string{
		"SET SESSION autocommit = 0", "SET SESSION wait_timeout = 6", tableWait,
		"SET SESSION net_read_timeout = 6", "SET SESSION net_write_timeout = 6",
	},
	optional: []string{groupRowImage},
}

// controlling is for the server's own short statements: the beat, the outcome of a commit, the feed, the leases that
// are due, the deletion of history. Callers' requests never use these connections.
var controlling = role{connections: 6, idle: 10 * time.Second, silence: silence, session: []string{tableWait}}

// reading is for callers' requests. A statement whose caller has left still runs at the database, until the limit that
// is set here.
var reading = role{
	connections: 16, idle: 10 * time.Second, silence: listTime + time.Second/2,
	optional: []string{limit("max_statement_time", listTime.Seconds()), limit("max_execution_time", float64(listTime.Milliseconds()))},
}

// scanning is for the janitor's counts.
var scanning = role{
	connections: 1, idle: 10 * time.Second, silence: scanTime + time.Second,
	optional: []string{limit("max_statement_time", scanTime.Seconds()), limit("max_execution_time", float64(scanTime.Milliseconds()))},
}

// migrating has no limits: a change of a large table takes long. If it were given up, it would start again and again.
var migrating = role{connections: 4, idle: time.Minute, optional: noLimits}

// noLimits lets a statement take any time.
var noLimits = []string{limit("max_statement_time", 0), limit("max_execution_time", 0)}

// pool is the connections of one role.
type pool struct {
	*sql.DB
	connections int
}

// connect returns a pool. It connects when it is first used.
func connect(config *mysql.Config, r role) *pool {
	config = config.Clone()
	config.InterpolateParams = true // one round trip for a statement, however many rows it has
	config.Collation = ""           // see session
	config.MaxAllowedPacket = 0     // ask the server
	config.RejectReadOnly = false   // it would take an answer for a broken connection
	config.MultiStatements = r.multi
	config.Logger = &mysql.NopLogger{}
	if config.Timeout == 0 {
		config.Timeout = silence
	}
	var opening time.Duration
	if r.silence == 0 {
		opening = config.ReadTimeout
	}
	if config.ReadTimeout == 0 || r.silence == 0 {
		config.ReadTimeout = r.silence
	}
	if config.WriteTimeout == 0 || r.silence == 0 {
		config.WriteTimeout = r.silence
	}
	base, err := mysql.NewConnector(config)
	if err != nil {
		panic(err) // a config that ParseDSN has returned
	}
	p := &pool{sql.OpenDB(connector{base, r, opening}), r.connections}
	p.SetMaxOpenConns(r.connections)
	p.SetMaxIdleConns(r.connections)
	p.SetConnMaxIdleTime(r.idle)
	return p
}

// pools are the connections of a store, a pool for each role.
type pools struct {
	writer, control, reader, scanner *pool

	group *atomic.Bool // whether the database is a member of a group: see confirm
}

func newPools(config *mysql.Config, look func(context.Context, driver.QueryerContext) error) pools {
	open := func(r role) *pool {
		r.look = look
		return connect(config, r)
	}
	return pools{writer: open(writing), control: open(controlling), reader: open(reading), scanner: open(scanning), group: new(atomic.Bool)}
}

func (p pools) all() []*pool { return []*pool{p.writer, p.control, p.reader, p.scanner} }

// renew closes all idle connections. Where one turns out to be dead, the others of its age may
// be dead too, and each would take its timeout to find out.
func (p pools) renew() {
	for _, pool := range p.all() {
		pool.SetMaxIdleConns(0)
		pool.SetMaxIdleConns(pool.connections)
	}
}

// withRetry runs do, which must be safe to repeat, on a connection of a pool. It repeats do while the database rolls it back, and once over
// a new connection when the first one is dead, or leads to a server that takes no writes. On a member of a group, what do has read counts
// only if withRetry returns no error.
func (p pools) withRetry(ctx context.Context, from *pool, do func(*sql.Conn) error) error {
	return retry(ctx, func() error {
		err := p.once(ctx, from, do)
		if useless(err) && ctx.Err() == nil {
			p.renew()
			err = p.once(ctx, from, do)
		}
		return err
	})
}

func (p pools) once(ctx context.Context, from *pool, do func(*sql.Conn) error) error {
	conn, err := from.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	err = do(conn)
	if p.group.Load() && (err == nil || errors.Is(err, sql.ErrNoRows)) { // nothing is an answer too
		if gone := confirm(ctx, conn); gone != nil {
			return gone
		}
	}
	return err
}
