package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/db/dbtest"
	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/internal/rules/claim"
	"github.com/locket-service/locket/tests/harness"
)

func TestMain(m *testing.M) { harness.Run(m) }

// hangs is how long tests wait for something that must come.
const hangs = 2 * time.Minute

// open opens a store that waits for the answers of a slow database, and so does the database: most tests are not about how long they take.
func open(t testing.TB, dsn string) *Store {
	t.Helper()
	dsn = patient(t, dsn)
	s := openHasty(t, dsn)
	patiently := reading
	patiently.optional = noLimits
	reconnect(t, &s.reader, dsn, patiently)
	patiently = scanning // with the same connection for as long as the test lasts
	patiently.optional, patiently.idle = noLimits, 0
	reconnect(t, &s.scanner, dsn, patiently)
	s.limits = limits{list: hangs, retry: hangs, outcome: hangs}
	return s
}

// openAmongOthers opens a store that also waits for the locks of others that are slow.
func openAmongOthers(t testing.TB, dsn string) *Store {
	t.Helper()
	s := open(t, dsn)
	reconnect(t, &s.writer, dsn, steady(longLockWait))
	return s
}

// openHasty opens a store with the limits of the product. It awaits the database, as a server does.
func openHasty(t testing.TB, dsn string) *Store {
	t.Helper()
	s, err := awaitOpen(dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func awaitOpen(dsn string, options ...Option) (*Store, error) {
	s, err := Open(context.Background(), dsn, options...)
	for end := time.Now().Add(hangs); errors.Is(err, db.ErrUnavailable) && time.Now().Before(end); {
		time.Sleep(100 * time.Millisecond) // real time: the pause between two attempts
		s, err = Open(context.Background(), dsn, options...)
	}
	return s, err
}

// reconnect gives a store other connections of a role, which waits for the answers of a slow database.
func reconnect(t testing.TB, of **pool, dsn string, r role) {
	t.Helper()
	config, err := parseDSN(patient(t, dsn))
	if err != nil {
		t.Fatal(err)
	}
	if err := (*of).Close(); err != nil {
		t.Fatal(err)
	}
	*of = connect(config, r)
}

// steady is writing on one connection for as long as the test lasts, with further statements at its begin.
func steady(statements ...string) role {
	r := writing
	r.idle = 0
	r.session = slices.Concat(r.session, []string{"SET SESSION wait_timeout = 28800"}, statements)
	return r
}

// longLockWait has the database wait for a row lock for as long as tests wait, and longTableWait for a table.
var (
	longLockWait  = fmt.Sprintf("SET SESSION innodb_lock_wait_timeout = %d", int(hangs.Seconds()))
	longTableWait = fmt.Sprintf("SET SESSION lock_wait_timeout = %d", int(hangs.Seconds()))
)

// eventually waits until something is so. It gives up after so long that something hangs.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(hangs); !is(); time.Sleep(10 * time.Millisecond) { // real time: the pause between two looks
		if time.Now().After(end) {
			t.Fatalf("not within %s: %s", hangs, what)
		}
	}
}

// patient is a DSN of a store that waits for the answers of a slow database.
func patient(t testing.TB, dsn string) string {
	t.Helper()
	config, err := mysql.ParseDSN(dsn)
	if err != nil {
		t.Fatal(err)
	}
	if config.ReadTimeout != 0 {
		return dsn
	}
	return withOptions(dsn, fmt.Sprintf("timeout=%[1]s&readTimeout=%[1]s&writeTimeout=%[1]s", hangs))
}

// withOptions adds options to a DSN.
func withOptions(dsn, options string) string {
	if strings.Contains(dsn, "?") {
		return dsn + "&" + options
	}
	return dsn + "?" + options
}

// waitsForLock reports whether a transaction in a store's database waits for a row that another one has locked.
func waitsForLock(t *testing.T, s *Store) bool {
	t.Helper()
	time.Sleep(150 * time.Millisecond) // real time: the table is rebuilt when nobody has read it for 100 ms
	const query = `SELECT COUNT(*) FROM information_schema.innodb_trx t JOIN information_schema.processlist p ON p.id = t.trx_mysql_thread_id
		WHERE t.trx_state = 'LOCK WAIT' AND p.db = DATABASE()`
	var waiting int
	if err := s.control.QueryRow(query).Scan(&waiting); err != nil {
		t.Fatal(err)
	}
	return waiting > 0
}

func TestStore(t *testing.T) {
	databases := reused{t: t}
	dbtest.Run(t, func(t testing.TB) dbtest.Engine {
		dsn := databases.take(t)
		s := openAmongOthers(t, dsn)
		return dbtest.Engine{
			Store: s,
			Reopen: func(t testing.TB) db.Store {
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
				s = openAmongOthers(t, dsn)
				return s
			},
			Second: func(t testing.TB) db.Store { return openAmongOthers(t, dsn) },
			Step:   func(by time.Duration) { s.fault.Store(int64(by)) },
		}
	})
}

func TestOpenMakesTheDatabase(t *testing.T) {
	t.Parallel()
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
	t.Parallel()
	dsn := patient(t, fixtures.MySQL(t))
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
	t.Parallel()
	dsn := fixtures.MySQL(t)
	var group sync.WaitGroup
	for range 5 {
		group.Go(func() { open(t, dsn) })
	}
	group.Wait()
}

// plainColumns are claimColumns without the columns that have a default.
const plainColumns = "id, resource, owner, take, units, type, ttl, user_data, value, status, position, token, version, deadline, created, activated, finished, reason"

// halfMigrated makes a database with a queue in it, as a server leaves it that is killed before it notes that it has made the schema. It returns a connection.
func halfMigrated(t *testing.T, dsn string) *sql.Conn {
	t.Helper()
	config, err := mysql.ParseDSN(dsn)
	if err != nil {
		t.Fatal(err)
	}
	pool := connect(config, migrating)
	t.Cleanup(func() { _ = pool.Close() })
	conn, err := pool.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := makeMigrationLease(t.Context(), conn); err != nil {
		t.Fatal(err)
	}
	if err := apply(t.Context(), conn, "schema/0001.sql", 1); err != nil {
		t.Fatal(err)
	}
	for _, statement := range []string{
		"UPDATE locket_schema SET version = 0",
		"INSERT INTO resources (name, version, holder, shared, waiting) VALUES ('r', 3, '', 1, 1)",
		"INSERT INTO claims (" + plainColumns + `) VALUES
			('a', 'r', 'o', 1, 0, 0, 1, NULL, '', 2, 1, 2, 2, 1, 1, 1, 0, ''),
			('b', 'r', 'o', 0, 0, 0, 1, NULL, '', 1, 3, 0, 3, 0, 1, 0, 0, '')`,
	} {
		if _, err := conn.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	return conn
}

// TestInterruptedMigration: when a migration was cut off before its number was written, servers that open the database together repeat it,
// and keep the database's content.
func TestInterruptedMigration(t *testing.T) {
	t.Parallel()
	dsn := fixtures.MySQL(t)
	conn := halfMigrated(t, dsn)
	for range 2 {
		var group sync.WaitGroup
		for range 5 {
			group.Go(func() {
				q, _, err := open(t, dsn).Queue(t.Context(), "r", 10)
				if err != nil || len(q.Holders) != 1 || len(q.Waiters) != 1 || q.Holders[0].ID != "a" || q.Waiters[0].ID != "b" {
					t.Errorf("%+v (%v)", q, err)
				}
			})
		}
		group.Wait()
		var at int
		if err := conn.QueryRowContext(t.Context(), "SELECT version FROM locket_schema").Scan(&at); err != nil || at != 1 {
			t.Errorf("at %d (%v)", at, err)
		}
		if _, err := conn.ExecContext(t.Context(), "UPDATE locket_schema SET version = 0"); err != nil {
			t.Fatal(err)
		}
	}
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

// awaitCut waits until a proxy reports that it has cut a connection; the client may notice first.
func awaitCut(t *testing.T, done <-chan struct{}) {
	t.Helper()
	eventually(t, "a connection is cut", func() bool {
		select {
		case <-done:
			return true
		default:
			return false
		}
	})
}

// acquire runs one transaction and returns its error.
func acquire(ctx context.Context, s db.Store, name string) error {
	cmd := claim.Acquire{ID: "id-" + name, Resource: name, Owner: "o", TTL: time.Hour}
	outcome, err := db.Transact(ctx, s, db.Batch{Requests: []claim.Request{{Command: cmd}}})
	if err != nil {
		return err
	}
	return outcome.Answers[0].Err
}

// TestConnectionBreaksDuringCommit: whether the COMMIT arrived or not, the caller gets the
// true answer, and the claim is there once.
func TestConnectionBreaksDuringCommit(t *testing.T) {
	t.Parallel()
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
			awaitCut(t, done)
			if holder, err := s.Holder(t.Context(), "r"); err != nil || holder.ID != "id-r" {
				t.Errorf("holder %q, %v", holder.ID, err)
			}
		})
	}
}

// TestOutcomeAskedAgain: a commit that was not done is not taken for one that was, if the answer to the question about it is lost, and it is asked
// again.
func TestOutcomeAskedAgain(t *testing.T) {
	s, proxy := through(t)
	cut := proxy.CutOn([]byte(nowSQL + ", '')")) // the question
	attempts := 0
	err := s.Update(t.Context(), func(started db.Tx) error {
		_, err := db.Execute(started, acquires("r"), func(queues *claim.Queues) { _, _ = queues.Do(acquires("r")[0]) })
		if attempts++; attempts > 1 || err != nil {
			return err
		}
		var id int
		if err := started.(*tx).QueryRowContext(t.Context(), "SELECT CONNECTION_ID()").Scan(&id); err != nil {
			return err
		}
		_, err = s.reader.ExecContext(t.Context(), fmt.Sprint("KILL ", id))
		return err
	})
	awaitCut(t, cut)
	if holder, found := s.Holder(t.Context(), "r"); err != nil || found != nil || holder.ID != "id-r" {
		t.Errorf("after %d attempts and %v it is held by %q (%v)", attempts, err, holder.ID, found)
	}
}

// TestDone: a commit that was done is found to be done, and a commit that was not done never will be.
func TestDone(t *testing.T) {
	t.Parallel()
	s := open(t, fixtures.MySQL(t))
	must(t, acquire(t.Context(), s, "r"))
	server, next := s.name.next()
	for n, want := range map[uint64]bool{next - 1: true, next: false} {
		for range 2 {
			if done, err := s.done(t.Context(), &tx{server: server, n: n}); err != nil || done != want {
				t.Errorf("commit %d, where %d is the next one: done %t (%v)", n, next, done, err)
			}
		}
	}
}

// TestOutcomeStaysUnknown: the database is gone for good in the middle of the commit.
func TestOutcomeStaysUnknown(t *testing.T) {
	t.Parallel()
	s, proxy := through(t)
	s.limits.outcome = time.Second
	proxy.CutAllOn([]byte("; COMMIT"))
	if err := acquire(t.Context(), s, "r"); !errors.Is(err, db.ErrOutcomeUnknown) {
		t.Errorf("got %v", err)
	}
	proxy.Restore()
	if err := acquire(t.Context(), s, "r2"); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

func TestDatabaseGoneAndBack(t *testing.T) {
	t.Parallel()
	s, proxy := through(t)
	proxy.Cut()
	if err := acquire(t.Context(), s, "r"); !errors.Is(err, db.ErrUnavailable) {
		t.Errorf("gone: got %v", err)
	}
	if _, _, _, err := s.Get(t.Context(), "id-r", 0); !errors.Is(err, db.ErrUnavailable) {
		t.Errorf("gone, reading: got %v", err)
	}
	proxy.Restore()
	if _, _, _, err := s.Get(t.Context(), "id-r", 0); !errors.Is(err, claim.ErrNotFound) {
		t.Errorf("what was refused left something behind: %v", err)
	}
	if err := acquire(t.Context(), s, "r"); err != nil {
		t.Errorf("back: %v", err)
	}
}

func TestDatabaseHangs(t *testing.T) {
	t.Parallel()
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
	s := openAmongOthers(t, dsn)
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
		result <- s.Update(context.Background(), func(tx db.Tx) error {
			queues, err := tx.Load(db.Wanted{Resources: []string{"a", "b"}})
			if err != nil {
				return err
			}
			for _, name := range []string{"a", "b"} {
				if _, err := queues.Do(claim.Release{Resource: name, Owner: "o"}); err != nil {
					return err
				}
			}
			return tx.Save(queues)
		})
	}()
	eventually(t, `it holds "a" and waits for "b"`, func() bool { return waitsForLock(t, s) })
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

// TestLargeTransaction exceeds the 16 MiB limit of one packet. TestSoakLargeTransaction is larger.
func TestLargeTransaction(t *testing.T) { largeTransaction(t, 192) }

func largeTransaction(t *testing.T, claims int) {
	t.Helper()
	s := open(t, fixtures.MySQL(t))
	value := strings.Repeat("x", 64<<10)
	var commands []claim.Command
	for i := range claims {
		name := fmt.Sprint("r", i)
		commands = append(commands, claim.Create{
			ID: name, Resource: name, Owner: "o", TTL: time.Hour, Value: value, UserData: []byte(`"` + value[:65000] + `"`),
		})
	}
	dbtest.Do(t, s, commands...)
	c, _, _, err := s.Get(t.Context(), fmt.Sprint("r", claims-1), 0)
	if err != nil || c.Value != value {
		t.Errorf("%d bytes, %v", len(c.Value), err)
	}
}

func BenchmarkFlat(b *testing.B) {
	dbtest.Benchmark(b, func(t testing.TB) db.Store { return open(t, fixtures.MySQL(t)) })
}
