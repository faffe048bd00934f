package mysql

import (
	"context"
	"database/sql"
	"embed"
	"fmt"
	"io/fs"
	"strings"

	"github.com/locket-service/locket/db"
)

// migrations are numbered from 1 and only added to. The table locket_schema holds the
// number of the last one that was applied. DDL commits by itself in MySQL, so a migration
// that is cut off is finished by hand; the number is written last.
//
//go:embed schema/*.sql
var migrations embed.FS

// migrate brings the schema up to date. Servers that start together take turns.
func migrate(ctx context.Context, pool *sql.DB) error {
	conn, err := pool.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	unlock, err := lockSchema(ctx, conn)
	if err != nil {
		return err
	}
	defer unlock()
	at, err := schemaVersion(ctx, conn)
	if err != nil {
		return err
	}
	files, err := fs.Glob(migrations, "schema/*.sql")
	if err != nil {
		return err
	}
	if at > len(files) {
		return fmt.Errorf("%w: it is at %d, and this locket knows %d", db.ErrNewerSchema, at, len(files))
	}
	for n, file := range files[at:] {
		if err := apply(ctx, conn, file, at+n+1); err != nil {
			return fmt.Errorf("migration %s: %w", file, err)
		}
	}
	return nil
}

// lockSchema keeps other servers from migrating at the same time. The lock is the
// connection's, and is named after the database.
func lockSchema(ctx context.Context, conn *sql.Conn) (unlock func(), err error) {
	var got sql.NullInt64
	const name = "CONCAT('locket:', LEFT(DATABASE(), 50))"
	if err := conn.QueryRowContext(ctx, "SELECT GET_LOCK("+name+", 30)").Scan(&got); err != nil {
		return nil, err
	}
	if got.Int64 != 1 {
		return nil, fmt.Errorf("%w: another server is migrating it", db.ErrUnavailable)
	}
	return func() {
		_, _ = conn.ExecContext(context.WithoutCancel(ctx), "DO RELEASE_LOCK("+name+")")
	}, nil
}

func schemaVersion(ctx context.Context, conn *sql.Conn) (at int, err error) {
	err = conn.QueryRowContext(ctx, "SELECT version FROM locket_schema").Scan(&at)
	if !isCode(err, codeNoSuchTable) {
		return at, err
	}
	for _, statement := range []string{
		"CREATE TABLE locket_schema (id TINYINT NOT NULL PRIMARY KEY, version INT NOT NULL) ENGINE = InnoDB",
		"INSERT INTO locket_schema (id, version) VALUES (1, 0)",
	} {
		if _, err := conn.ExecContext(ctx, statement); err != nil {
			return 0, err
		}
	}
	return 0, nil
}

func apply(ctx context.Context, conn *sql.Conn, file string, number int) error {
	script, err := migrations.ReadFile(file)
	if err != nil {
		return err
	}
	for statement := range strings.SplitSeq(stripComments(string(script)), ";") {
		if strings.TrimSpace(statement) == "" {
			continue
		}
		if _, err := conn.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	_, err = conn.ExecContext(ctx, "UPDATE locket_schema SET version = ?", number)
	return err
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
