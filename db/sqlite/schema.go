package sqlite

import (
	"embed"
	"fmt"
	"io/fs"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/locket-service/locket/db"
)

// migrations are numbered from 1 and only added to. PRAGMA user_version holds the number
// of the last one that was applied.
//
//go:embed schema/*.sql
var migrations embed.FS

func migrate(conn *sqlite.Conn) (err error) {
	files, err := fs.Glob(migrations, "schema/*.sql")
	if err != nil {
		return err
	}
	end, err := sqlitex.ImmediateTransaction(conn)
	if err != nil {
		return err
	}
	defer end(&err)
	at, err := sqlitex.ResultInt(conn.Prep("PRAGMA user_version"))
	if err != nil {
		return err
	}
	if at > len(files) {
		return fmt.Errorf("%w: it is at %d, and this locket knows %d", db.ErrNewerSchema, at, len(files))
	}
	for n, file := range files[at:] {
		if err := sqlitex.ExecuteScriptFS(conn, migrations, file, nil); err != nil {
			return fmt.Errorf("migration %s: %w", file, err)
		}
		if err := sqlitex.ExecuteTransient(conn, fmt.Sprintf("PRAGMA user_version = %d", at+n+1), nil); err != nil {
			return err
		}
	}
	return nil
}
