package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/db/mysql"
	"github.com/locket-service/locket/db/sqlite"
)

// retryStart is how long to wait between two tries to reach the database.
const retryStart = time.Second

// openStore opens the database, waiting for it for a while if it is not up.
func openStore(ctx context.Context, c Config, log *slog.Logger) (db.Store, error) {
	deadline := time.Now().Add(c.DatabaseWait)
	for {
		store, err := open(ctx, c)
		if !errors.Is(err, db.ErrUnavailable) || time.Now().After(deadline) {
			return store, err
		}
		log.Warn("waiting for the database", "error", err)
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(retryStart):
		}
	}
}

func open(ctx context.Context, c Config) (db.Store, error) {
	engine, source, _ := strings.Cut(c.Database, ":")
	switch engine {
	case "sqlite":
		if source == "" || source == ":memory:" { // SQLite would serve, and keep nothing
			return nil, fmt.Errorf("--database: %q names no file; give sqlite:FILE", c.Database)
		}
		return sqlite.Open(source)
	case "mysql":
		dsn, err := mysql.WithSecrets(source, mysql.Secrets{
			Password: c.DatabasePassword, PasswordFile: c.DatabasePasswordFile, CA: c.DatabaseCA, AnyName: c.DatabaseAnyName,
		})
		if err != nil {
			return nil, fmt.Errorf("--database: %w", err)
		}
		return mysql.Open(ctx, dsn)
	default:
		return nil, fmt.Errorf("--database: unknown engine %q; use sqlite:FILE or mysql:USER:PASSWORD@tcp(HOST:PORT)/NAME", engine)
	}
}
