package backup

import (
	"context"
	"database/sql"
	"path/filepath"
	"strings"
	"testing"

	_ "github.com/go-sql-driver/mysql"

	"github.com/locket-service/locket/db/backup"
	"github.com/locket-service/locket/internal/rules/claim"
)

// faults are changes of a store, or of its dump, with the problem that a check must report for each.
var faults = []struct {
	name, sql string
	// change does the same to a stream.
	change func(*changing)
	says   string
}{
	{
		"the holder is another", "UPDATE resources SET holder = 'waits-1' WHERE name = 'a'",
		func(c *changing) {
			c.row("a", func(r *backup.Row) { r.Counted, r.Holder, r.Waiting = true, "waits-1", 4 })
		}, `resource "a" says that it is held by "waits-1"`,
	},
	{
		"a waiter is gone", "DELETE FROM claims WHERE id = 'waits-2'",
		func(c *changing) {
			c.drop("waits-2")
			c.row("a", func(r *backup.Row) { r.Counted, r.Holder, r.Waiting = true, "holds", 4 })
		}, `resource "a" says that 4 claims wait, and 3 do`,
	},
	{
		"the counter is wrong", "UPDATE resources SET shared = 3 WHERE shared = 2",
		func(c *changing) {
			c.row("b \x01\xc3\xa9", func(r *backup.Row) { r.Counted, r.Shared, r.Waiting = true, 3, 1 })
		}, `says that it has 3 shared holders, and has 2`,
	},
	{
		"a token is above the version", "UPDATE claims SET token = version + 5 WHERE id = 'lock'",
		func(c *changing) { c.claim("lock", func(x *claim.Claim) { x.Token = x.Version + 5 }) }, `claim "lock" of "c" has the token`,
	},
	{
		"a claim is newer than its resource", "UPDATE resources SET version = 5 WHERE name = 'c'",
		func(c *changing) { c.row("c", func(r *backup.Row) { r.Version = 5 }) }, `resource "c" has version 5, and its claim "lock" has`,
	},
	{
		"two hold", "UPDATE claims SET status = 2, token = version, deadline = created + 1 WHERE id = 'waits-1'",
		func(c *changing) {
			c.claim("waits-1", func(x *claim.Claim) { x.Status, x.Token, x.Deadline = claim.Active, x.Version, x.Created+1 })
		}, `resource "a" has 2 exclusive holders`,
	},
	{
		"nobody holds, and claims wait", "DELETE FROM claims WHERE id = 'holds'",
		func(c *changing) { c.drop("holds") }, `resource "a" is free, and 4 claims wait`,
	},
	{
		"a session is gone", "DELETE FROM sessions WHERE id = 's1'",
		func(c *changing) { c.drop("s1") }, `session "s1" is not there, and 2 claims are bound to it`,
	},
	{
		"a row is gone", "DELETE FROM resources WHERE name = 'c'",
		func(c *changing) { c.drop("c") }, `resource "c" has 1 live claims, and no row`,
	},
	{
		"two have one place in the line", "UPDATE claims SET position = (SELECT p FROM (SELECT position AS p FROM claims WHERE id = 'waits-1') w) WHERE id = 'waits-2'",
		func(c *changing) {
			c.claim("waits-2", func(x *claim.Claim) { x.Enqueued = c.enqueued["waits-1"] })
		}, `resource "a" has claims with the same place`,
	},
	{
		"a lease is too long", "UPDATE claims SET deadline = deadline + 3600000000 WHERE id = 'presence'",
		func(c *changing) { c.claim("presence", func(x *claim.Claim) { x.Deadline += 3600e6 }) }, `claim "presence" of "cell/1" falls due later than its TTL allows`,
	},
}

// changing is a Sink that changes what goes through it.
type changing struct {
	backup.Sink
	enqueued map[string]uint64
	claims   map[string]func(*claim.Claim)
	rows     map[string]func(*backup.Row)
	dropped  map[string]bool
}

func (c *changing) claim(id string, change func(*claim.Claim)) { c.claims[id] = change }
func (c *changing) row(name string, change func(*backup.Row))  { c.rows[name] = change }
func (c *changing) drop(name string)                           { c.dropped[name] = true }

func (c *changing) Claim(x *claim.Claim) error {
	c.enqueued[x.ID] = x.Enqueued
	if c.dropped[x.ID] {
		return nil
	}
	changed := *x
	if change := c.claims[x.ID]; change != nil {
		change(&changed)
	}
	return c.Sink.Claim(&changed)
}

func (c *changing) Session(s *claim.Session) error {
	if c.dropped[s.ID] {
		return nil
	}
	return c.Sink.Session(s)
}

func (c *changing) Row(r backup.Row) error {
	if c.dropped[r.Resource] {
		return nil
	}
	if change := c.rows[r.Resource]; change != nil {
		change(&r)
	}
	return c.Sink.Row(r)
}

// changed returns a dump with a fault.
func changed(dump func(backup.Sink) error, how func(*changing)) func(backup.Sink) error {
	return func(to backup.Sink) error {
		c := &changing{Sink: to, enqueued: map[string]uint64{}, claims: map[string]func(*claim.Claim){}, rows: map[string]func(*backup.Row){}, dropped: map[string]bool{}}
		how(c)
		return dump(c)
	}
}

func finds(t *testing.T, what string, k *backup.Checker, says string) {
	t.Helper()
	if k.Found == 0 || !strings.Contains(strings.Join(k.Problems, "\n"), says) {
		t.Errorf("%s: the check says %q, and not %q", what, k.Problems, says)
	}
}

// A check finds each fault of a backup.
func TestCheckOfBackup(t *testing.T) {
	t.Parallel()
	p := filled(t, "embedded")
	for _, fault := range faults {
		file := filepath.Join(t.TempDir(), "backup")
		must(t, backup.Write(file, changed(p.dump, fault.change), unchecked))
		finds(t, fault.name, check(t, inFile(file)), fault.says)
	}
}

// A check finds each fault of a database, and of the tables that are used as indexes.
func TestCheckOfMySQL(t *testing.T) {
	t.Parallel()
	more := map[string]string{
		"DELETE FROM session_claims WHERE claim = 'in-session'": `the claim "in-session" is bound to the session "s1", and not in session_claims`,
		"DELETE FROM owner_waits WHERE claim = 'waits-1'":       `the claim "waits-1" of "owner of waits-1" waits, and is not in owner_waits`,
	}
	for _, fault := range faults {
		more[fault.sql] = fault.says
	}
	p := filled(t, "mysql")
	pool, err := sql.Open("mysql", strings.TrimPrefix(p.database, "mysql:"))
	must(t, err)
	defer pool.Close()
	tables := []string{"claims", "resources", "sessions", "session_claims", "owner_waits"}
	ctx := context.Background()
	for fault, says := range more {
		conn, err := pool.Conn(ctx)
		must(t, err)
		undo := make([]string, 0, len(tables))
		for _, table := range tables {
			_, err := conn.ExecContext(ctx, "CREATE TABLE kept_"+table+" LIKE "+table)
			must(t, err)
			undo = append(undo, table)
		}
		columns := map[string]string{"claims": "id, resource, owner, take, units, type, ttl, user_data, value, status, position, token, version, deadline, created, activated, finished, reason, session, wait_ttl, identity, ended_by"}
		for _, table := range undo {
			of := columns[table]
			list := "(" + of + ")"
			if of == "" {
				of, list = "*", ""
			}
			_, err := conn.ExecContext(ctx, "INSERT INTO kept_"+table+list+" SELECT "+of+" FROM "+table)
			must(t, err)
		}
		_, err = conn.ExecContext(ctx, fault)
		must(t, err)
		finds(t, fault, check(t, p.dump), says)
		for _, table := range undo {
			_, err := conn.ExecContext(ctx, "DROP TABLE "+table)
			must(t, err)
			_, err = conn.ExecContext(ctx, "RENAME TABLE kept_"+table+" TO "+table)
			must(t, err)
		}
		must(t, conn.Close())
	}
	if k := check(t, p.dump); k.Found != 0 {
		t.Error(k.Problems)
	}
}
