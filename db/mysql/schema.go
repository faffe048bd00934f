package mysql

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync"
	"time"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/db/backup"
)

// migrations are numbered from 1 and only added to. The table locket_schema holds the number
// of the last one that was applied; it is written last, because DDL commits by itself in
// MySQL. So each is safe to apply twice: after an attempt that was interrupted, or when
// another server takes over from a slow one.
//
//go:embed schema/*.sql
var migrations embed.FS

const (
	// migrateTimeout is how long a server waits for another one that migrates, and migrateLease how long the other's
	// migration lease lasts without renewal.
	migrateTimeout = 30 * time.Second
	migrateLease   = 10 * time.Second
)

// schemaRestoring replaces the schema's version while a restore fills the database: no server serves it.
const schemaRestoring = 1 << 30

// execer is a pool or a connection.
type execer interface {
	querier
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// migrate brings the schema up to date. One server migrates at a time, on whichever
// node of a cluster it is: the migration lease is a row, which a cluster lets one server have.
// GET_LOCK would do on one node only.
func migrate(ctx context.Context, pool *sql.DB, server string) error {
	files, err := fs.Glob(migrations, "schema/*.sql")
	if err != nil {
		return err
	}
	if done, err := upToDate(ctx, pool, len(files)); done || err != nil {
		return err
	}
	if err := makeMigrationLease(ctx, pool); err != nil {
		return err
	}
	for lastTry := time.Now().Add(migrateTimeout); time.Now().Before(lastTry); time.Sleep(100 * time.Millisecond) {
		mine, err := takeMigrationLease(ctx, pool, server)
		switch {
		case err != nil:
			return err
		case mine:
			return migrateAlone(ctx, pool, server, files)
		}
		if done, err := upToDate(ctx, pool, len(files)); done || err != nil {
			return err
		}
	}
	return fmt.Errorf("%w: another server is migrating it", db.ErrUnavailable)
}

func upToDate(ctx context.Context, pool execer, newest int) (bool, error) {
	at, err := schemaVersion(ctx, pool)
	if at == schemaRestoring {
		return false, backup.ErrHalfRestored
	}
	if err == nil && at > newest {
		err = fmt.Errorf("%w: it is at %d, and this locket knows %d", db.ErrNewerSchema, at, newest)
	}
	return at == newest, err
}

// migrateAlone applies what is not applied yet.
func migrateAlone(ctx context.Context, pool *sql.DB, server string, files []string) error {
	defer keepMigrationLease(ctx, pool, server)()
	at, err := schemaVersion(ctx, pool)
	if err != nil {
		return err
	}
	for n := at; n < len(files); n++ {
		if err := apply(ctx, pool, files[n], n+1); err != nil {
			return fmt.Errorf("migration %s: %w", files[n], err)
		}
	}
	return nil
}

// keepMigrationLease renews the migration lease, which this server has, until end is called.
func keepMigrationLease(ctx context.Context, pool *sql.DB, server string) (end func()) {
	done := make(chan struct{})
	var keeper sync.WaitGroup
	keeper.Go(func() {
		for {
			select {
			case <-done:
				return
			case <-time.After(migrateLease / 4):
				_, _ = renewMigrationLease(ctx, pool, server) // the next one may succeed
			}
		}
	})
	return func() {
		close(done)
		keeper.Wait()
		endMigrationLease(context.WithoutCancel(ctx), pool, server)
	}
}

// takeMigrationLease takes or renews the migration lease, and reports whether this server has it.
func takeMigrationLease(ctx context.Context, pool execer, server string) (mine bool, err error) {
	const query = "UPDATE locket_turn SET server = ? WHERE id = 1 AND until < " + nowSQL
	if err := exec(ctx, pool, query, server); err != nil {
		return false, err
	}
	return renewMigrationLease(ctx, pool, server)
}

// renewMigrationLease renews the migration lease, and reports whether this server has it. If another server has taken
// it, it is lost, even if the other has released it since.
func renewMigrationLease(ctx context.Context, pool execer, server string) (mine bool, err error) {
	err = retry(ctx, func() error {
		mine, err = tryRenewMigrationLease(ctx, pool, server)
		return err
	})
	return mine, err
}

// tryRenewMigrationLease is renewMigrationLease without another attempt, for a transaction.
func tryRenewMigrationLease(ctx context.Context, pool execer, server string) (mine bool, err error) {
	const query = "UPDATE locket_turn SET until = " + nowSQL + " + ? WHERE id = 1 AND server = ?"
	if _, err := pool.ExecContext(ctx, query, migrateLease.Microseconds(), server); err != nil {
		return false, err
	}
	return mine, pool.QueryRowContext(ctx, "SELECT server = ? FROM locket_turn WHERE id = 1", server).Scan(&mine)
}

// endMigrationLease lets the next server have the migration lease at once.
func endMigrationLease(ctx context.Context, pool execer, server string) {
	ctx, cancel := context.WithTimeout(ctx, migrateLease)
	defer cancel()
	_ = exec(ctx, pool, "UPDATE locket_turn SET until = 0 WHERE id = 1 AND server = ?", server)
}

// schemaVersion returns the number of the last migration, 0 where there was none.
func schemaVersion(ctx context.Context, pool execer) (at int, err error) {
	err = readRow(ctx, pool, "SELECT version FROM locket_schema WHERE id = 1", nil, &at)
	if isCode(err, codeNoSuchTable) || errors.Is(err, sql.ErrNoRows) {
		return 0, nil
	}
	return at, err
}

// makeMigrationLease makes the tables that migrations themselves need. Servers may call it at the same time, even on
// several nodes of a cluster.
func makeMigrationLease(ctx context.Context, pool execer) error {
	for _, statement := range []string{
		"CREATE TABLE IF NOT EXISTS locket_schema (id TINYINT NOT NULL PRIMARY KEY, version INT NOT NULL) ENGINE = InnoDB",
		"CREATE TABLE IF NOT EXISTS locket_turn (id TINYINT NOT NULL PRIMARY KEY, server VARBINARY(32) NOT NULL, until BIGINT NOT NULL) ENGINE = InnoDB",
		"INSERT IGNORE INTO locket_schema (id, version) VALUES (1, 0)",
		"INSERT IGNORE INTO locket_turn (id, server, until) VALUES (1, '', 0)",
	} {
		if err := exec(ctx, pool, statement); err != nil {
			return err
		}
	}
	return nil
}

func apply(ctx context.Context, pool execer, file string, number int) error {
	script, err := migrations.ReadFile(file)
	if err != nil {
		return err
	}
	if err := applyScript(ctx, pool, string(script)); err != nil {
		return err
	}
	return exec(ctx, pool, "UPDATE locket_schema SET version = GREATEST(version, ?)", number)
}

// applyScript carries out the statements of a migration. A column that is there already was added by an earlier attempt.
func applyScript(ctx context.Context, pool execer, script string) error {
	for statement := range strings.SplitSeq(stripComments(script), ";") {
		if strings.TrimSpace(statement) == "" {
			continue
		}
		if err := exec(ctx, pool, statement); err != nil && !isCode(err, codeDuplicateColumn) {
			return err
		}
	}
	return nil
}

// readRow reads a row, however often a change of its table by another node of a cluster ends that.
func readRow(ctx context.Context, pool execer, query string, args []any, values ...any) error {
	return retry(ctx, func() error { return pool.QueryRowContext(ctx, query, args...).Scan(values...) })
}

// exec carries out a statement that may be repeated, however often it is rolled back.
func exec(ctx context.Context, pool execer, statement string, args ...any) error {
	return retry(ctx, func() error {
		_, err := pool.ExecContext(ctx, statement, args...)
		return err
	})
}

// stripComments takes the comments out, which may hold semicolons.
func stripComments(script string) string {
	var kept strings.Builder
	for line := range strings.Lines(script) {
		code, _, _ := strings.Cut(line, "--")
		kept.WriteString(code + "\n")
	}
	return kept.String()
}
