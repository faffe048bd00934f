package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/locket-service/locket/claim"
	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/db/dbtest"
	"github.com/locket-service/locket/fixtures"
)

func TestMain(m *testing.M) {
	code := m.Run()
	fixtures.Shutdown()
	os.Exit(code)
}

func open(t testing.TB, dsn string) *Store {
	t.Helper()
	s, err := Open(context.Background(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func TestStore(t *testing.T) {
	dbtest.Run(t, func(t testing.TB) dbtest.Engine {
		dsn := fixtures.MySQL(t)
		s := open(t, dsn)
		return dbtest.Engine{
			Store: s,
			Reopen: func(t testing.TB) db.Store {
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
				s = open(t, dsn)
				return s
			},
			Second: func(t testing.TB) db.Store { return open(t, dsn) },
		}
	})
}

func TestOpenMakesTheDatabase(t *testing.T) {
	config, err := mysql.ParseDSN(fixtures.MySQL(t))
	if err != nil {
		t.Fatal(err)
	}
	config.DBName += "_new"
	s := open(t, config.FormatDSN())
	t.Cleanup(func() { _, _ = s.reader.Exec("DROP DATABASE " + config.DBName) })
	dbtest.Do(t, s, claim.Acquire{ID: "1", Resource: "r", Owner: "o", TTL: time.Hour})
}

func TestOpenRefusesANewerSchema(t *testing.T) {
	dsn := fixtures.MySQL(t)
	s := open(t, dsn)
	if _, err := s.reader.Exec("UPDATE locket_schema SET version = version + 1"); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), dsn); !errors.Is(err, db.ErrNewerSchema) {
		t.Errorf("got %v", err)
	}
}

func TestOpenErrors(t *testing.T) {
	for name, dsn := range map[string]string{"garbage": "no dsn at all", "no database": "root@tcp(127.0.0.1:1)/"} {
		if _, err := Open(t.Context(), dsn); err == nil || errors.Is(err, db.ErrUnavailable) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	if _, err := Open(t.Context(), "root@tcp(127.0.0.1:1)/locket"); !errors.Is(err, db.ErrUnavailable) {
		t.Errorf("nobody listens: got %v", err)
	}
}

// TestServersOpenTogether: the schema is made once.
func TestServersOpenTogether(t *testing.T) {
	dsn := fixtures.MySQL(t)
	var group sync.WaitGroup
	for range 5 {
		group.Go(func() { open(t, dsn) })
	}
	group.Wait()
}

// through returns a store that reaches its database by way of a proxy.
func through(t *testing.T) (*Store, *fixtures.Proxy) {
	t.Helper()
	config, err := mysql.ParseDSN(fixtures.MySQL(t))
	if err != nil {
		t.Fatal(err)
	}
	proxy := fixtures.NewProxy(t, config.Addr)
	config.Addr = proxy.Addr()
	return open(t, config.FormatDSN()), proxy
}

// acquire runs one transaction and returns its error.
func acquire(ctx context.Context, s db.Store, name string) error {
	return s.Transact(ctx, func(tx db.Tx) error {
		queues, err := tx.Load([]string{name}, nil)
		if err != nil {
			return err
		}
		cmd := claim.Acquire{ID: "id-" + name, Resource: name, Owner: "o", TTL: time.Hour}
		if _, err := queues.Resource(name).Do(cmd, queues.Now); err != nil {
			return err
		}
		return tx.Save(queues)
	})
}

// TestConnectionBreaksDuringCommit: whether the COMMIT arrived or not, the caller gets the
// true answer, and the claim is there once.
func TestConnectionBreaksDuringCommit(t *testing.T) {
	for name, cut := range map[string]func(*fixtures.Proxy, []byte) <-chan struct{}{
		"after the COMMIT":  (*fixtures.Proxy).CutOn,
		"before the COMMIT": (*fixtures.Proxy).CutBefore,
	} {
		t.Run(name, func(t *testing.T) {
			s, proxy := through(t)
			done := cut(proxy, []byte("; COMMIT"))
			if err := acquire(t.Context(), s, "r"); err != nil {
				t.Errorf("got %v", err)
			}
			select {
			case <-done:
			default:
				t.Fatal("nothing was cut")
			}
			if holder, err := s.Holder(t.Context(), "r"); err != nil || holder.ID != "id-r" {
				t.Errorf("holder %q, %v", holder.ID, err)
			}
		})
	}
}

// TestOutcomeStaysUnknown: the database is gone for good in the middle of the commit.
func TestOutcomeStaysUnknown(t *testing.T) {
	s, proxy := through(t)
	done := proxy.CutOn([]byte("; COMMIT"))
	go func() {
		<-done
		proxy.Cut()
	}()
	if err := acquire(t.Context(), s, "r"); !errors.Is(err, db.ErrOutcomeUnknown) {
		t.Errorf("got %v", err)
	}
	proxy.Restore()
	if err := acquire(t.Context(), s, "r2"); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

func TestDatabaseGoneAndBack(t *testing.T) {
	s, proxy := through(t)
	proxy.Cut()
	if err := acquire(t.Context(), s, "r"); !errors.Is(err, db.ErrUnavailable) {
		t.Errorf("gone: got %v", err)
	}
	if _, _, err := s.Get(t.Context(), "id-r"); !errors.Is(err, db.ErrUnavailable) {
		t.Errorf("gone, reading: got %v", err)
	}
	proxy.Restore()
	if _, _, err := s.Get(t.Context(), "id-r"); !errors.Is(err, claim.ErrNotFound) {
		t.Errorf("what was refused left something behind: %v", err)
	}
	if err := acquire(t.Context(), s, "r"); err != nil {
		t.Errorf("back: %v", err)
	}
}

func TestDatabaseHangs(t *testing.T) {
	s, proxy := through(t)
	proxy.Hang()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if err := acquire(ctx, s, "r"); !errors.Is(err, db.ErrUnavailable) {
		t.Errorf("got %v", err)
	}
	proxy.Restore()
	if err := acquire(t.Context(), s, "r"); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

// TestDeadlockIsRetried makes a real one: a foreign transaction locks the second resource
// and then wants the first.
func TestDeadlockIsRetried(t *testing.T) {
	dsn := fixtures.MySQL(t)
	s := open(t, dsn)
	dbtest.Do(t, s, claim.Acquire{ID: "a", Resource: "a", Owner: "o", TTL: time.Hour},
		claim.Acquire{ID: "b", Resource: "b", Owner: "o", TTL: time.Hour})
	foreign, err := s.reader.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = foreign.Rollback() }()
	lock := func(name string) {
		var n int
		err := foreign.QueryRow("SELECT 1 FROM resources WHERE name = ? FOR UPDATE", name).Scan(&n)
		if err != nil && !isCode(err, codeDeadlock) {
			t.Error(err)
		}
	}
	lock("b")
	result := make(chan error)
	go func() {
		result <- s.Transact(context.Background(), func(tx db.Tx) error {
			queues, err := tx.Load([]string{"a", "b"}, nil)
			if err != nil {
				return err
			}
			for _, name := range []string{"a", "b"} {
				if _, err := queues.Resource(name).Do(claim.Release{Resource: name, Owner: "o"}, queues.Now); err != nil {
					return err
				}
			}
			return tx.Save(queues)
		})
	}()
	time.Sleep(200 * time.Millisecond) // the store holds "a" and waits for "b"
	lock("a")
	_ = foreign.Rollback()
	if err := <-result; err != nil {
		t.Errorf("got %v", err)
	}
}

// TestLockedRow: somebody sits on a row. The transaction gives up in the end, with nothing
// done.
func TestLockedRow(t *testing.T) {
	s := open(t, fixtures.MySQL(t))
	dbtest.Do(t, s, claim.Acquire{ID: "a", Resource: "a", Owner: "o", TTL: time.Hour})
	foreign, err := s.reader.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = foreign.Rollback() }()
	if _, err := foreign.Exec("UPDATE resources SET waiting = 0 WHERE name = 'a'"); err != nil {
		t.Fatal(err)
	}
	if _, err := foreign.Exec("SELECT 1 FROM resources WHERE name = 'a' FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if err := acquire(ctx, s, "a"); !errors.Is(err, db.ErrUnavailable) {
		t.Errorf("got %v", err)
	}
}

// TestLargeTransaction is larger than what one packet may hold.
func TestLargeTransaction(t *testing.T) {
	s := open(t, fixtures.MySQL(t))
	value := strings.Repeat("x", 64<<10)
	var commands []claim.Command
	for i := range 512 {
		name := fmt.Sprint("r", i)
		commands = append(commands, claim.Create{
			ID: name, Resource: name, Owner: "o", TTL: time.Hour, Value: value, UserData: []byte(`"` + value[:65000] + `"`),
		})
	}
	dbtest.Do(t, s, commands...)
	c, _, err := s.Get(t.Context(), "r511")
	if err != nil || c.Value != value {
		t.Errorf("%d bytes, %v", len(c.Value), err)
	}
}

// TestPlans keeps each statement on its index.
func TestPlans(t *testing.T) {
	s := open(t, fixtures.MySQL(t))
	dbtest.Crowd(t, s)
	if _, err := s.reader.Exec("ANALYZE TABLE claims, resources"); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		sql  string
		want []string // the key of each table, in order
	}{
		"lock":    {fmt.Sprintf(lockSQL, "('r1','r2')"), []string{"PRIMARY"}},
		"claims":  {fmt.Sprintf(claimsSQL, "('1','2')"), []string{"PRIMARY"}},
		"free":    {freeResources + "('r1','r2')", []string{"PRIMARY"}},
		"end":     {endClaims + "('1','2')", []string{"PRIMARY"}},
		"waiters": {waitersSQL, []string{"claims_line"}},
		"shared":  {sharedDueSQL, []string{"claims_sharing"}},
		"get":     {getSQL, []string{"PRIMARY", "PRIMARY"}},
		"holder":  {holderSQL, []string{"PRIMARY", "claims_sharing", "PRIMARY"}},
		"queue":   {queueSQL, []string{"PRIMARY", "PRIMARY", "PRIMARY", "PRIMARY", "claims_sharing", "claims_line", ""}},
		"ahead":   {aheadSQL, []string{"", "claims_line"}},
		"held":    {heldSQL, []string{"claims_phase"}},
		"due":     {dueSQL, []string{"claims_phase", "PRIMARY"}},
		"prune":   {pruneSQL, []string{"claims_phase"}},
		"count":   {countSQL, []string{"claims_phase"}},
		"cutoff":  {cutoffSQL, []string{"claims_phase"}},
	} {
		if keys := plan(t, s.reader, c.sql); strings.Join(keys, " ") != strings.Join(c.want, " ") {
			t.Errorf("%s uses %v, want %v", name, keys, c.want)
		}
	}
}

// plan returns the keys that the database uses for a statement, in the order in which it
// lists its tables.
func plan(t *testing.T, pool *sql.DB, statement string) (keys []string) {
	t.Helper()
	statement = strings.NewReplacer(
		"id = ?", "id = '0-4'", "name = ?", "name = 'shared 0'", "line = ?", "line = 'shared 0'", "sharing = ?", "sharing = 'shared 0'", "?", "1",
	).Replace(statement)
	rows, err := pool.Query("EXPLAIN " + statement)
	if err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
	defer func() { _ = rows.Close() }()
	columns, err := rows.Columns()
	if err != nil {
		t.Fatal(err)
	}
	for rows.Next() {
		values := make([]sql.NullString, len(columns))
		into := make([]any, len(columns))
		for i := range values {
			into[i] = &values[i]
		}
		if err := rows.Scan(into...); err != nil {
			t.Fatal(err)
		}
		for i, column := range columns {
			if column == "key" {
				keys = append(keys, values[i].String)
			}
		}
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return keys
}

func BenchmarkFlat(b *testing.B) {
	dbtest.Benchmark(b, func(t testing.TB) db.Store { return open(t, fixtures.MySQL(t)) })
}

// TestRowsTouched counts what the database touches to hand a resource on: the same in a
// short queue and in a long one.
func TestRowsTouched(t *testing.T) {
	s := open(t, fixtures.MySQL(t))
	short, long := rowsTouched(t, s, "short", 40), rowsTouched(t, s, "long", 2000)
	if long > short {
		t.Errorf("%d rows are touched in a queue of 2,000, and %d in one of 40", long, short)
	}
}

func rowsTouched(t *testing.T, s *Store, resource string, waiters int) int {
	t.Helper()
	var commands []claim.Command
	for i := range waiters {
		commands = append(commands, claim.Create{ID: fmt.Sprint(resource, i), Resource: resource, TTL: time.Hour})
	}
	dbtest.Do(t, s, commands...)
	before := handlerCalls(t, s)
	dbtest.Do(t, s, claim.End{ID: resource + "0", Status: claim.Released})
	return handlerCalls(t, s) - before
}

// TestRowsRead counts what the database touches to show a queue and a place in it: the same
// in a short queue and in a long one.
func TestRowsRead(t *testing.T) {
	s := open(t, fixtures.MySQL(t))
	rows := func(resource string, waiters int) int {
		var commands []claim.Command
		for i := range waiters {
			commands = append(commands, claim.Create{ID: fmt.Sprint(resource, i), Resource: resource, TTL: time.Hour})
		}
		dbtest.Do(t, s, commands...)
		before := handlerCalls(t, s)
		skip := func(*sql.Rows) error { return nil }
		for query, args := range map[string][]any{
			queueSQL: {resource, resource, resource, 20, resource, 20},
			aheadSQL: {resource, uint64(1 << 62), 20},
		} {
			if err := each(t.Context(), s.writer, query, args, skip); err != nil {
				t.Fatal(err)
			}
		}
		return handlerCalls(t, s) - before
	}
	if short, long := rows("short", 40), rows("long", 2000); long > short || short == 0 {
		t.Errorf("%d rows are read in a queue of 2,000, and %d in one of 40", long, short)
	}
}

// handlerCalls is how many rows the connection that writes has read and written so far.
func handlerCalls(t *testing.T, s *Store) (sum int) {
	t.Helper()
	const query = `SHOW SESSION STATUS WHERE Variable_name IN ('Handler_read_key', 'Handler_read_next',
		'Handler_read_first', 'Handler_read_rnd', 'Handler_read_rnd_next', 'Handler_write', 'Handler_update', 'Handler_delete')`
	err := each(t.Context(), s.writer, query, nil, func(rows *sql.Rows) error {
		var name string
		var n int
		err := rows.Scan(&name, &n)
		sum += n
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return sum
}
