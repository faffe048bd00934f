package mysql

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/db/backup"
	"github.com/locket-service/locket/internal/base/periodic"
	"github.com/locket-service/locket/internal/rules/claim"
)

// filled are the tables that a restore fills, and some that it only empties.
var filled = []string{"claims", "resources", "sessions", "servers", "session_claims", "owner_waits", "feed", "members"}

// Fill has a database hold what from gives its sink. It makes the database and its tables if they are not there. The database must hold nothing, and
// no server may use it. While it is filled its schema has a version that no server serves, so that a restore that was interrupted leaves a database
// that can only be filled again. While another restore fills it, Fill waits. It returns backup.ErrNotEmpty.
func Fill(ctx context.Context, dsn string, from func(backup.Sink) error, options ...Option) (err error) {
	config, err := configure(dsn, options)
	if err != nil {
		return err
	}
	if err := createDatabase(ctx, config); err != nil {
		return atStart(err)
	}
	pool := connect(config, migrating)
	defer func() { _ = pool.Close() }()
	files, err := fs.Glob(migrations, "schema/*.sql")
	if err != nil {
		return err
	}
	f := fence{pool, uuid.NewString()[:23]}
	end, err := f.takeEmpty(ctx)
	if err != nil {
		return translate(ctx, err)
	}
	defer end()
	t := &filling{ctx: ctx, fence: f, live: make(map[string]claim.Row)}
	t.writer = newWriter(&t.script, t.send)
	defer func() {
		if err == nil {
			return
		}
		ctx := context.WithoutCancel(ctx)
		if f.wipe(ctx) == nil {
			_ = f.setVersion(ctx, len(files)) // it is empty again; otherwise the next restore wipes it
		}
	}()
	if err := f.wipe(ctx); err != nil {
		return translate(ctx, err)
	}
	if err := from(t); err != nil {
		return err
	}
	if !t.ended {
		return errors.New("the contents to restore are incomplete")
	}
	return translate(ctx, f.setVersion(ctx, len(files)))
}

// fence is the migration lease of a restore. Others may have it once this process has stood still for long.
type fence struct {
	pool *pool
	name string // of the restore
}

// errOtherRestore is returned when another restore, or a server that migrates, has the migration lease, or has had it meanwhile.
var errOtherRestore = errors.New("another restore fills the database; wait until it has ended")

// exec carries out a statement that may be repeated, and returns how many rows it has changed. It is carried out in one transaction with a renewal
// of the lease: without the lease nothing is changed, on whichever node of a cluster.
func (f fence) exec(ctx context.Context, statement string, args ...any) (changed int64, err error) {
	err = retry(ctx, func() error {
		tx, err := f.pool.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }() // no effect after Commit
		mine, err := tryRenewMigrationLease(ctx, tx, f.name)
		if err != nil {
			return err
		}
		if !mine {
			return errOtherRestore
		}
		result, err := tx.ExecContext(ctx, statement, args...)
		if err != nil {
			return err
		}
		if changed, err = result.RowsAffected(); err != nil {
			return err
		}
		return tx.Commit()
	})
	return changed, err
}

func (f fence) setVersion(ctx context.Context, version int) error {
	_, err := f.exec(ctx, "UPDATE locket_schema SET version = ? WHERE id = 1", version)
	return err
}

// wipe deletes all rows, no more at once than a transaction may change.
func (f fence) wipe(ctx context.Context) error {
	for _, table := range filled {
		for changed := int64(maxKeys); changed == maxKeys; {
			var err error
			if changed, err = f.exec(ctx, fmt.Sprintf("DELETE FROM %s LIMIT %d", table, maxKeys)); err != nil {
				return err
			}
		}
	}
	return nil
}

// takeEmpty keeps servers and other restores from a database, which must be empty, or left by a restore that was interrupted. end must be
// called after all else.
func (f fence) takeEmpty(ctx context.Context) (end func(), err error) {
	if at, err := schemaVersion(ctx, f.pool); err != nil {
		return nil, err
	} else if at != schemaRestoring {
		if err := migrate(ctx, f.pool.DB, f.name); err != nil && !errors.Is(err, backup.ErrHalfRestored) {
			return nil, err
		}
	}
	for lastTry := time.Now().Add(migrateTimeout); ; {
		mine, err := takeMigrationLease(ctx, f.pool, f.name)
		switch {
		case mine && err == nil:
			end = keepMigrationLease(ctx, f.pool.DB, f.name)
			if err := f.noteRestoring(ctx); err != nil {
				end()
				return nil, err
			}
			return end, nil
		case err == nil:
			err = errOtherRestore
		}
		if time.Now().After(lastTry) {
			return nil, err
		}
		if periodic.Pause(ctx, 100*time.Millisecond) != nil {
			return nil, context.Cause(ctx)
		}
	}
}

// noteRestoring notes that a restore fills the database, if that is empty.
func (f fence) noteRestoring(ctx context.Context) error {
	if at, err := schemaVersion(ctx, f.pool); err != nil || at == schemaRestoring {
		return err
	}
	var holds, serves bool
	err := f.pool.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM claims WHERE id"+notBeats+") OR EXISTS (SELECT 1 FROM resources WHERE name"+notBeats+
		") OR EXISTS (SELECT 1 FROM sessions), EXISTS (SELECT 1 FROM members WHERE seen > "+nowSQL+" - ?)", (3*db.AnnounceInterval).Microseconds()).Scan(&holds, &serves)
	switch {
	case err != nil:
		return err
	case holds:
		return backup.ErrNotEmpty
	case serves:
		return errors.New("a server uses the database; stop it first")
	}
	return f.setVersion(ctx, schemaRestoring)
}

// filling is a Sink that writes rows.
type filling struct {
	ctx    context.Context
	fence  fence
	lease  claim.Time
	script script
	writer *writer
	live   map[string]claim.Row // by resource
	ended  bool
}

// add adds a row, by an INSERT up to VALUES, and sends when there are many.
func (t *filling) add(begin string, values ...any) error {
	t.writer.row(begin, "", values...)
	return t.writer.err
}

// send sends the script, each statement as a transaction of its own.
func (t *filling) send() error {
	for _, s := range t.script {
		if _, err := t.fence.exec(t.ctx, s.text, s.args...); err != nil {
			return translate(t.ctx, err)
		}
	}
	t.script = nil
	return nil
}

// Begin implements backup.Sink.
func (t *filling) Begin(h backup.Head) error {
	t.lease = h.Lease
	return nil
}

func (t *filling) Claim(c *claim.Claim) error {
	row := t.live[c.Resource]
	if c.Status == claim.Waiting {
		row.Waiting++
	} else {
		row.Take(c)
		row.Holder = strings.Clone(row.Holder)
	}
	t.live[strings.Clone(c.Resource)] = row
	err := t.add(insertClaims, values(c)...)
	if err == nil && c.Session != "" {
		err = t.add(insertSessionClaims, c.ID, c.Session)
	}
	if err == nil && c.Session == "" && c.Status == claim.Waiting && c.Owner != "" {
		err = t.add(insertOwnerWaits, c.Owner, c.ID)
	}
	return err
}

func (t *filling) Session(s *claim.Session) error { return t.add(insertSessions, sessionValues(s)...) }

func (t *filling) Server(s backup.Server) error {
	return t.add("INSERT INTO servers (name, seen) VALUES ", s.Name, int64(s.Seen))
}

// Row implements backup.Sink. Its claims have come before.
func (t *filling) Row(r backup.Row) error {
	live := t.live[r.Resource]
	delete(t.live, r.Resource)
	return t.add(insertResources, append([]any{r.Resource, r.Version}, rowValues(&live)...)...)
}

func (t *filling) Ended(c *claim.Claim) error { return t.add(insertClaims, values(c)...) }

const (
	fillMeta = "UPDATE meta SET seen = " + nowSQL + ", outage = " + nowSQL + " - ?, floor = ?, quarantine = ? WHERE one = 1"
	// gapSQL adds a commit that follows one that nobody has: no cursor of before the restore knows it, so none goes on.
	gapSQL = "INSERT INTO feed (server, n, at, changes) VALUES (?, 2, " + nowSQL + ", '')"
)

func (t *filling) End(h backup.Head) error {
	if err := t.writer.flush(); err != nil {
		return err
	}
	t.script.add(fillMeta, int64(t.lease), h.Floor, int64(h.Quarantine))
	t.script.add(gapSQL, fmt.Sprint("restored ", time.Now().UnixMicro()))
	err := t.send()
	t.ended = err == nil
	return err
}
