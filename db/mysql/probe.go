package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/locket-service/locket/db"
)

// ErrNoRowLocks is returned by Open for a database that does not lock rows, whatever it accepts: two
// transactions would grant one lock.
var ErrNoRowLocks = errors.New("the database does not keep rows locked")

const (
	// probePrefix begins the names of the resources that probes lock: no name of a caller has a NUL.
	probePrefix = "\x00probe "
	serverSQL   = "SELECT CONCAT_WS(' ', @@hostname, @@port, @@datadir)"
)

// probeLocks finds out by two connections what the database does, because some accept FOR UPDATE or
// SKIP LOCKED and lock nothing (TiDB and Dolt the latter). It also finds out whether transactions may
// use SKIP LOCKED: MariaDB before 10.6 and MySQL before 8.0 refuse it.
func (s *Store) probeLocks(ctx context.Context) error {
	holder, other, done, err := s.twoConnections(ctx)
	defer done()
	if err != nil {
		return err
	}
	name := probePrefix + s.name.get()
	if err := exec(ctx, holder, insertResources+"(?, "+nowSQL+", '', 0, 0, 0, 0)", name); err != nil {
		return err
	}
	var skips bool
	err = retry(ctx, func() (err error) { // a migration by another node of a cluster ends transactions here
		skips, err = probe(ctx, holder, other, name)
		return err
	})
	err = errors.Join(err, exec(ctx, other, "DELETE FROM resources WHERE name = ?", name))
	for _, table := range s.locks.all() {
		table.stuck.canSkip = skips
	}
	return err
}

// probe has holder lock the row of a name, and other try to. It reports whether SKIP LOCKED skips.
func probe(ctx context.Context, holder, other *sql.Conn, name string) (skips bool, err error) {
	if _, err := holder.ExecContext(ctx, "START TRANSACTION"); err != nil {
		return false, err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTimeout)
		defer cancel()
		err = errors.Join(err, exec(ctx, holder, "ROLLBACK"))
	}()
	lock := fmt.Sprintf(lockSQL, "(?)")
	switch n, err := countRows(ctx, holder, lock, name); {
	case err != nil:
		return false, err
	case n == 0:
		return false, errNoProbe
	}
	switch n, err := countRows(ctx, other, lock+skipLocked, name); {
	case err == nil && n == 0:
		return true, nil
	case err == nil:
		return false, noRowLocks(ctx, holder, "it accepts SKIP LOCKED, and returns a row that another connection has locked")
	case broken(err) || rolledBack(err) || ctx.Err() != nil:
		return false, err
	}
	n, err := countRows(ctx, other, lock, name) // it does not know SKIP LOCKED, so this waits for a second
	switch {
	case isCode(err, codeLockWait):
		return false, nil
	case err == nil && n > 0:
		return false, noRowLocks(ctx, holder, "FOR UPDATE returns a row that another connection has locked")
	case err == nil:
		return false, errNoProbe
	}
	return false, err
}

// noRowLocks returns ErrNoRowLocks, unless the transaction of holder was ended, on a cluster by another node's change
// of the table.
func noRowLocks(ctx context.Context, holder *sql.Conn, why string) error {
	if _, err := holder.ExecContext(ctx, "SELECT 1 FROM resources LIMIT 1"); err != nil {
		return err
	}
	return fmt.Errorf("%w: %s", ErrNoRowLocks, why)
}

var errNoProbe = fmt.Errorf("%w: it is not known whether the database locks rows", db.ErrUnavailable)

func countRows(ctx context.Context, on *sql.Conn, query, name string) (n int, err error) {
	err = each(ctx, on, query, []any{name}, func(*sql.Rows) error { n++; return nil })
	return n, err
}

// twoConnections returns two connections to the same server, and what closes them. On a cluster rows are
// locked on one node only, and a load balancer may lead each connection to another one.
func (s *Store) twoConnections(ctx context.Context) (one, two *sql.Conn, done func(), err error) {
	var all []*sql.Conn
	done = func() {
		for _, conn := range all {
			_ = conn.Close()
		}
	}
	seen := make(map[string]*sql.Conn)
	for range controlling.connections {
		conn, err := s.control.Conn(ctx)
		if err != nil {
			return nil, nil, done, err
		}
		all = append(all, conn)
		var server string
		if err := conn.QueryRowContext(ctx, serverSQL).Scan(&server); err != nil {
			return nil, nil, done, err
		}
		if first := seen[server]; first != nil {
			return first, conn, done, nil
		}
		seen[server] = conn
	}
	return nil, nil, done, fmt.Errorf("%w: no two of %d connections lead to one server, so that it is not known whether it locks rows", db.ErrUnavailable, len(all))
}
