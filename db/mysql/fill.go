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
	"github.com/locket-service/locket/internal/claim"
)

// filled are the tables that a restore fills, and some that it only empties.
var filled = []string{"claims", "resources", "sessions", "servers", "session_claims", "owner_waits", "identity_claims", "feed", "members"}

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
	name := uuid.NewString()[:23]
	end, err := takeEmpty(ctx, pool, name)
	if err != nil {
		return translate(ctx, err)
	}
	defer end()
	t := &filling{ctx: ctx, pool: pool, rows: make(map[string]*fillRows), live: make(map[string]liveRow)}
	defer func() {
		if err == nil {
			return
		}
		ctx := context.WithoutCancel(ctx)
		if takeOver(ctx, pool, name) == nil && t.wipe(ctx) == nil {
			_ = setVersion(ctx, pool, len(files)) // it is empty again; else the next restore wipes it
		}
	}()
	if err := t.wipe(ctx); err != nil {
		return translate(ctx, err)
	}
	if err := from(t); err != nil {
		return err
	}
	if !t.ended {
		return errors.New("what it is to be filled with has no end")
	}
	if err := takeOver(ctx, pool, name); err != nil {
		return translate(ctx, err)
	}
	return translate(ctx, setVersion(ctx, pool, len(files)))
}

// takeOver returns nil if this restore has the migration lease. Without it another restore, or a server, may have begun.
func takeOver(ctx context.Context, pool *pool, name string) error {
	mine, err := takeMigrationLease(ctx, pool, name)
	if err == nil && !mine {
		err = errors.New("another restore fills the database; wait until it has ended")
	}
	return err
}

func setVersion(ctx context.Context, pool execer, version int) error {
	return exec(ctx, pool, "UPDATE locket_schema SET version = ? WHERE id = 1", version)
}

// takeEmpty keeps servers and other restores from a database, which must be empty, or left by a restore that was interrupted. end must be
// called after all else.
func takeEmpty(ctx context.Context, pool *pool, name string) (end func(), err error) {
	if at, err := schemaVersion(ctx, pool); err != nil {
		return nil, err
	} else if at != schemaRestoring {
		if err := migrate(ctx, pool.DB, name); err != nil && !errors.Is(err, backup.ErrHalfRestored) {
			return nil, err
		}
	}
	for lastTry := time.Now().Add(migrateTimeout); ; {
		err := takeOver(ctx, pool, name)
		if err == nil {
			break
		}
		if time.Now().After(lastTry) {
			return nil, err
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	end = keepMigrationLease(ctx, pool.DB, name)
	if err := noteRestoring(ctx, pool); err != nil {
		end()
		return nil, err
	}
	return end, nil
}

// noteRestoring notes that a restore fills the database, if that is empty.
func noteRestoring(ctx context.Context, pool *pool) error {
	if at, err := schemaVersion(ctx, pool); err != nil || at == schemaRestoring {
		return err
	}
	var holds, serves bool
	err := pool.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM claims WHERE id"+notBeats+") OR EXISTS (SELECT 1 FROM resources WHERE name"+notBeats+
		") OR EXISTS (SELECT 1 FROM sessions), EXISTS (SELECT 1 FROM members WHERE seen > "+nowSQL+" - ?)", (3*db.AnnounceInterval).Microseconds()).Scan(&holds, &serves)
	switch {
	case err != nil:
		return err
	case holds:
		return backup.ErrNotEmpty
	case serves:
		return errors.New("a server uses the database; stop it first")
	}
	return setVersion(ctx, pool, schemaRestoring)
}

// filling is a Sink that writes rows.
type filling struct {
	ctx   context.Context
	pool  *pool
	lease claim.Time
	rows  map[string]*fillRows
	live  map[string]liveRow // by resource
	ended bool
}

// liveRow is what the live claims of a resource say of its row.
type liveRow struct {
	holder          string
	shared, waiting int
}

// fillRows are rows of a table on their way.
type fillRows struct {
	n, bytes int
	row      string
	args     []any
}

func (t *filling) wipe(ctx context.Context) error {
	for _, table := range filled {
		if err := exec(ctx, t.pool, "TRUNCATE TABLE "+table); err != nil {
			return err
		}
	}
	return nil
}

// add adds a row, by an INSERT up to VALUES, and writes when there are many.
func (t *filling) add(begin string, values ...any) error {
	r := t.rows[begin]
	if r == nil {
		r = &fillRows{row: marks(len(values))}
		t.rows[begin] = r
	}
	r.n, r.bytes, r.args = r.n+1, r.bytes+argBytes(values), append(r.args, values...)
	if r.n < maxKeys && r.bytes < packetBytes/2 {
		return nil
	}
	return t.write(begin)
}

func (t *filling) write(begin string) error {
	r := t.rows[begin]
	delete(t.rows, begin)
	return translate(t.ctx, exec(t.ctx, t.pool, begin+strings.TrimSuffix(strings.Repeat(r.row+",", r.n), ","), r.args...))
}

// Begin implements backup.Sink.
func (t *filling) Begin(h backup.Head) error {
	t.lease = h.Lease
	return nil
}

// Claim implements backup.Sink.
func (t *filling) Claim(c *claim.Claim) error {
	row := t.live[c.Resource]
	switch {
	case c.Status == claim.Waiting:
		row.waiting++
	case c.Mode == claim.Exclusive:
		row.holder = strings.Clone(c.ID)
	default:
		row.shared++
	}
	t.live[strings.Clone(c.Resource)] = row
	err := t.add(insertClaims, values(c)...)
	if err == nil && c.Session != "" {
		err = t.add(insertSessionClaims, c.ID, c.Session)
	}
	if err == nil && c.Session == "" && c.Status == claim.Waiting && c.Owner != "" {
		err = t.add(insertOwnerWaits, c.Owner, c.ID)
	}
	if err == nil && c.Identity != "" {
		err = t.add(insertIdentityClaims, c.Identity, c.ID)
	}
	return err
}

// Session implements backup.Sink.
func (t *filling) Session(s *claim.Session) error { return t.add(insertSessions, sessionValues(s)...) }

// Server implements backup.Sink.
func (t *filling) Server(s backup.Server) error {
	return t.add("INSERT INTO servers (name, seen) VALUES ", s.Name, int64(s.Seen))
}

// Row implements backup.Sink. Its claims have come before.
func (t *filling) Row(r backup.Row) error {
	live := t.live[r.Resource]
	delete(t.live, r.Resource)
	return t.add(insertResources, r.Resource, r.Version, live.holder, live.shared, live.waiting)
}

// Ended implements backup.Sink.
func (t *filling) Ended(c *claim.Claim) error { return t.add(insertClaims, values(c)...) }

const (
	fillMeta = "UPDATE meta SET seen = " + nowSQL + ", outage = " + nowSQL + " - ?, floor = ?, quarantine = ? WHERE one = 1"
	// gapSQL adds a commit that follows one that nobody has: no cursor of before the restore knows it, so none goes on.
	gapSQL = "INSERT INTO feed (server, n, at, ids, changes) VALUES (?, 2, " + nowSQL + ", '', '')"
)

// End implements backup.Sink.
func (t *filling) End(h backup.Head) error {
	for begin := range t.rows {
		if err := t.write(begin); err != nil {
			return err
		}
	}
	name := "restored " + fmt.Sprint(time.Now().UnixMicro())
	for _, s := range (script{
		{fillMeta, []any{int64(t.lease), h.Floor, int64(h.Quarantine)}}, {gapSQL, []any{name}},
	}) {
		if err := exec(t.ctx, t.pool, s.text, s.args...); err != nil {
			return translate(t.ctx, err)
		}
	}
	t.ended = true
	return nil
}
