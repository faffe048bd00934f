package mysql

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/locket-service/locket/db"
)

// connector makes connections that are set up for a role.
type connector struct {
	driver.Connector
	role    role
	opening time.Duration // bounds the opening of a connection; 0 for none
}

func (c connector) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.open(ctx)
	if err != nil {
		return nil, err
	}
	if err := c.setUp(ctx, conn.(driver.ExecerContext)); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

func (c connector) open(ctx context.Context) (driver.Conn, error) {
	if c.opening > 0 {
		within, cancel := context.WithTimeout(ctx, c.opening)
		defer cancel()
		ctx = within
	}
	return c.Connector.Connect(ctx)
}

func (c connector) setUp(ctx context.Context, conn driver.ExecerContext) error {
	for _, statement := range slices.Concat(session, c.role.session) {
		if _, err := conn.ExecContext(ctx, statement, nil); err != nil {
			return fmt.Errorf("%s: %w", statement, err)
		}
	}
	for _, statement := range slices.Concat(optional, c.role.optional) {
		_, err := conn.ExecContext(ctx, statement, nil)
		if err != nil && !isCode(err, codeUnknownVariable) && (statement != groupRowImage || !isCode(err, codeRightDenied)) {
			return fmt.Errorf("%s: %w", statement, err)
		}
	}
	if c.role.look != nil {
		if err := c.role.look(ctx, conn.(driver.QueryerContext)); err != nil {
			return err
		}
	}
	return serves(ctx, conn)
}

// Error codes of the server, by their names in its manual.
const (
	codeDatabaseDenied    = 1044
	codeAccessDenied      = 1045
	codeNotReady          = 1047 // Galera: the node is not part of its cluster
	codeUnknownDatabase   = 1049
	codeShutdown          = 1053
	codeDuplicateColumn   = 1060
	codeDuplicate         = 1062
	codeTableDenied       = 1142
	codeNoSuchTable       = 1146
	codeErrorDuringCommit = 1180 // also: on a group, at any statement that meets another member's transaction
	codeUnknownVariable   = 1193
	codeLockWait          = 1205
	codeDeadlock          = 1213 // also: on Galera another node's transaction came first
	codeRightDenied       = 1227
	codeInterrupted       = 1317
	codeKilled            = 1927
	codeStatementTime     = 1969 // MariaDB's max_statement_time
	codeGone              = 2006 // of a proxy: it has no connection to the database any more
	codeLost              = 2013 // the same, in the middle of a statement
	codeQueryTime         = 3024 // MySQL's max_execution_time
	codeHook              = 3100 // a member of a group cannot do what a commit or a begin needs
	codeRollbackAtCommit  = 3101 // the group's order put another member's transaction first
	codeInactive          = 4031 // MySQL has ended the connection, which was silent for wait_timeout
)

// unavailableCodes mean that a server answers but cannot serve: too many connections, also of this user, shutting down,
// out of memory or disk, leaving its cluster, killed. 3781 to 3783 and 3796 to 3799 mean that a member cannot find out
// what its group has done.
var unavailableCodes = []uint16{
	1021, 1037, 1040, 1041, codeShutdown, 1114, 1129, 1135, 1158, 1159, 1160, 1161, 1203, 1226, codeInterrupted, codeKilled,
	3032, codeHook, 3781, 3782, 3783, 3796, 3797, 3798, 3799,
}

// behindCodes are the error codes of a group member that waited for wait_timeout to catch up with its group and did not begin the transaction.
var behindCodes = []uint16{3781, 3797, 3798}

// readOnlyCodes mean that a server takes no writes. It may have been the primary, and the database's name or address
// may now lead to another server, which only a new connection reaches.
var readOnlyCodes = []uint16{1036, 1290, 1792, 1836, 1874}

// refusingCodes mean that a server no longer accepts this user: its password was changed or has expired; it was locked,
// blocked or dropped; its rights were taken away; the database or a table is gone. When a server of ours starts, they
// are errors in its settings.
var refusingCodes = []uint16{
	codeDatabaseDenied, codeAccessDenied, codeUnknownDatabase, 1130, codeTableDenied, 1143, codeNoSuchTable, 1698, 1820, 1862, 3118, 3955, 4150, 4151,
}

func isCode(err error, codes ...uint16) bool {
	var failure *mysql.MySQLError
	return errors.As(err, &failure) && slices.Contains(codes, failure.Number)
}

// broken reports whether an error is one of the connection rather than of the statement.
func broken(err error) bool {
	var network net.Error
	return errors.Is(err, mysql.ErrInvalidConn) || errors.Is(err, driver.ErrBadConn) || errors.Is(err, sql.ErrConnDone) ||
		isCode(err, codeGone, codeLost, codeInactive) || errors.As(err, &network)
}

// useless reports whether what has failed over a connection may succeed over a new one. A node that is cut off from its cluster
// keeps its connections, and a load balancer leads new ones to another node.
func useless(err error) bool {
	return broken(err) || isCode(err, codeNotReady) || isCode(err, readOnlyCodes...)
}

// translate maps the engine's errors to package db's.
func translate(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, db.ErrUnavailable), errors.Is(err, db.ErrOutcomeUnknown), errors.Is(err, db.ErrListTooLong):
		return err
	case errors.Is(err, mysql.ErrInvalidConn): // the driver keeps the cause to itself
		return fmt.Errorf("%w: %w: it broke, or the database was silent for too long (readTimeout of the DSN)", db.ErrUnavailable, err)
	case useless(err), errors.Is(err, errNotServing), overdue(err), isCode(err, unavailableCodes...), isCode(err, refusingCodes...), ctx.Err() != nil,
		errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return fmt.Errorf("%w: %w", db.ErrUnavailable, err)
	case conflict(err):
		return fmt.Errorf("%w: %w", db.ErrConflict, err)
	default:
		return err
	}
}

// overdue reports whether the database has ended a statement because that took too long: see reading.
func overdue(err error) bool { return isCode(err, codeStatementTime, codeQueryTime) }

// atStart returns the errors of a start without db.ErrUnavailable where waiting does not help.
func atStart(err error) error {
	var failure *mysql.MySQLError
	if isCode(err, refusingCodes...) && errors.As(err, &failure) {
		return failure
	}
	return err
}

// errUndone is returned when the connection broke during a commit that was not done.
var errUndone = errors.New("the commit was not done")

// conflict reports whether a transaction failed because of another one, and may run again.
func conflict(err error) bool {
	return errors.Is(err, errUndone) || rolledBack(err) || isCode(err, codeLockWait, codeDuplicate) || len(heldBy(err)) > 0
}

// rolledBack reports whether the database has rolled back a transaction, or a statement that
// is one, in favor of others, or has not started it. For a COMMIT these codes say less: outcomeOpen comes first there.
func rolledBack(err error) bool {
	return isCode(err, codeDeadlock, codeRollbackAtCommit, codeErrorDuringCommit) || isCode(err, behindCodes...)
}

// retry repeats what is safe to repeat while it is rolled back, for retryTime at most.
func retry(ctx context.Context, do func() error) error {
	lastStart := time.Now().Add(retryTime)
	for attempt := 1; ; attempt++ {
		err := do()
		if !rolledBack(err) || ctx.Err() != nil || time.Now().After(lastStart) {
			return err
		}
		pause(attempt)
	}
}

// pause waits for a random time, so that others finish before the next attempt.
func pause(attempt int) {
	time.Sleep(rand.N(min(time.Duration(attempt)*time.Millisecond, longestPause)))
}
