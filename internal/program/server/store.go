package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/tedsuo/ifrit"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/db/mysql"
	"github.com/locket-service/locket/db/replica"
	"github.com/locket-service/locket/internal/base/follow"
	"github.com/locket-service/locket/internal/base/periodic"
)

// The engines of --database.
const (
	engineMySQL    = "mysql"
	engineEmbedded = "embedded"
)

// retryStart is the pause between two attempts to reach the database.
const retryStart = time.Second

// openStore opens the database, and waits up to DatabaseWait while it is unavailable. It returns the error of ctx if
// that ends first.
func openStore(ctx context.Context, c Config, files *follow.Set, log *slog.Logger) (db.Store, error) {
	open, err := opener(c, files, log)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.storeFlag(), err)
	}
	deadline := time.Now().Add(c.DatabaseWait)
	for {
		store, err := open(ctx)
		switch {
		case err == nil:
			return store, nil
		case !errors.Is(err, db.ErrUnavailable) || time.Now().After(deadline):
			return nil, fmt.Errorf("%s: %w", c.storeFlag(), err)
		}
		log.Warn("waiting for the database", "error", err)
		if err := periodic.Pause(ctx, retryStart); err != nil {
			return nil, err
		}
	}
}

// storeFlag is the flag that says where the server keeps its data, for errors.
func (c Config) storeFlag() string {
	switch {
	case len(c.Etcd) > 0:
		return "--etcd"
	case c.Node != "":
		return "--node"
	case c.Database != "":
		return "--database"
	}
	return "--data"
}

// opener returns a function that tries to open the database. It reads the files of the secrets.
func opener(c Config, files *follow.Set, log *slog.Logger) (func(context.Context) (db.Store, error), error) {
	engine, source, _ := strings.Cut(c.database(), ":")
	if engine == engineEmbedded && c.hasCluster() {
		return clusterOpener(c, source, files, log)
	}
	if engine == engineEmbedded {
		return func(context.Context) (db.Store, error) {
			return replica.OpenWith(source, replica.Options{Log: log, Witness: c.DataWitness})
		}, nil
	}
	secrets, err := c.secrets(files)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) (db.Store, error) {
		store, err := mysql.Open(ctx, source, secrets)
		if err != nil { // a nil *mysql.Store is not a nil db.Store
			return nil, err
		}
		for _, warning := range store.About().Warnings {
			log.Warn("the database may lose what was acknowledged", "reason", warning)
		}
		return store, nil
	}, nil
}

// untilFailed returns a runner that ends with an error when something has failed that the server needs.
func untilFailed[T any](failed <-chan T, why func(T) error) ifrit.Runner {
	return ifrit.RunFunc(func(signals <-chan os.Signal, ready chan<- struct{}) error {
		close(ready)
		select {
		case <-signals:
			return nil
		case failure := <-failed:
			return why(failure)
		}
	})
}

// secrets returns the secrets of a connection to the database that are not in its DSN. Their files are followed.
func (c Config) secrets(files *follow.Set) (mysql.Option, error) {
	return mysql.Secrets{
		Password: c.DatabasePassword, PasswordFile: c.DatabasePasswordFile, CA: c.DatabaseCA, AnyName: c.DatabaseAnyName,
	}.Follow(files)
}

func wrongStore(database string) error {
	engine, source, _ := strings.Cut(database, ":")
	switch {
	case engine == engineMySQL:
		return mysql.CheckDSN(source)
	case engine != engineEmbedded:
		return fmt.Errorf("unknown engine %q; use mysql:USER:PASSWORD@tcp(HOST:PORT)/NAME, or --data FOLDER", engine)
	case source == "":
		return fmt.Errorf("%q names no folder; give embedded:FOLDER", database)
	}
	return nil
}
