package lock_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/tedsuo/ifrit"
	"google.golang.org/grpc"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/lock"
	"github.com/locket-service/locket/lock/fencing"
	"github.com/locket-service/locket/models"
)

// counter is a number that a lock protects: a holder reads it, and writes it plus one.
type counter interface {
	// look reads and overwrite writes without a fence.
	look() (int, error)
	overwrite(n int) error
	// read and write return ErrStale for a token lower than the highest that they have seen.
	read(token uint64) (int, error)
	write(token uint64, n int) error
}

// fence has the operations of a counter that pass the fence.
type fence int

const (
	noFence fence = iota
	writesOnly
	readsAndWrites
)

// fences are the names of the fences.
var fences = []string{"no fence", "writes only", "reads and writes"}

// ward is a counter with a fence. It counts the writes and the refusals.
type ward struct {
	counter
	fence
	written, refused int
}

func (w *ward) get(t *testing.T, token uint64) int {
	t.Helper()
	read := w.look
	if w.fence == readsAndWrites {
		read = func() (int, error) { return w.read(token) }
	}
	n, err := read()
	must(t, err)
	return n
}

func (w *ward) put(t *testing.T, token uint64, n int) {
	t.Helper()
	write := w.overwrite
	if w.fence != noFence {
		write = func(n int) error { return w.write(token, n) }
	}
	err := write(n)
	switch {
	case err == nil:
		w.written++
	case errors.Is(err, fencing.ErrStale):
		w.refused++
	default:
		t.Fatal(err)
	}
}

// pausable is the client of a process that can be paused. While it is paused it does not renew.
type pausable struct {
	models.LocketClient
	paused atomic.Bool
}

func (p *pausable) Lock(ctx context.Context, in *models.LockRequest, opts ...grpc.CallOption) (*models.LockResponse, error) {
	if p.paused.Load() {
		return nil, hang(ctx, "Lock")
	}
	return p.LocketClient.Lock(ctx, in, opts...)
}

// holder is a process that held the lock when newHolder returned.
type holder struct {
	client  *pausable
	process ifrit.Process
	token   uint64
}

// newHolder waits until Held reports that the lock is held. On a busy machine a lock may be lost before that; it tries again.
func newHolder(t *testing.T, client models.LocketClient, owner string) *holder {
	t.Helper()
	for {
		h := &holder{client: &pausable{LocketClient: client}}
		r := lock.NewLockRunner(h.client, resource("counters", owner), time.Second, 50*time.Millisecond)
		h.process = ifrit.Invoke(r)
		token, held := r.Held()
		if held {
			h.token = token
			return h
		}
		if err := end(h.process); err != nil && !errors.Is(err, lock.ErrLost) {
			t.Fatal(err)
		}
	}
}

// pausedHolders is Kleppmann's experiment ("How to do distributed locking", 2016), for every fence. In each round a holder reads, asks
// Held, and is paused for longer than its lease before it writes. A second holder takes over, reads and writes. In every other
// round the first one writes after the second; in the others between the read and the write of the second.
func pausedHolders(t *testing.T, client models.LocketClient, rounds int, newCounter func(id string) counter) {
	t.Helper()
	wards := make([]*ward, len(fences))
	for f := range fences {
		wards[f] = &ward{counter: newCounter(fences[f]), fence: fence(f)}
	}
	getAll := func(token uint64) (all []int) {
		for _, w := range wards {
			all = append(all, w.get(t, token))
		}
		return all
	}
	putAll := func(token uint64, all []int) {
		for i, w := range wards {
			w.put(t, token, all[i]+1)
		}
	}
	for round := range rounds {
		first := newHolder(t, client, "first")
		before := getAll(first.token)
		first.client.paused.Store(true)
		second := newHolder(t, client, "second")
		if second.token <= first.token {
			t.Fatalf("token %d after %d", second.token, first.token)
		}
		after := getAll(second.token)
		if round%2 == 0 {
			putAll(second.token, after)
			putAll(first.token, before)
		} else {
			putAll(first.token, before)
			putAll(second.token, after)
		}
		if err := <-first.process.Wait(); !errors.Is(err, lock.ErrLost) {
			t.Errorf("the paused holder ended with %v", err)
		}
		if err := end(second.process); err != nil && !errors.Is(err, lock.ErrLost) {
			t.Error(err)
		}
	}
	lost := []int{noFence: rounds, writesOnly: rounds / 2, readsAndWrites: 0}
	for f, w := range wards {
		n, err := w.look()
		must(t, err)
		t.Logf("%s: %d increments written, %d refused, %d lost", fences[f], w.written, w.refused, w.written-n)
		if w.written-n != lost[f] || w.written+w.refused != 2*rounds || n < rounds {
			t.Errorf("%s: it is %d after %d were written and %d refused; want %d lost", fences[f], n, w.written, w.refused, lost[f])
		}
	}
}

// TestPausedHolders: without a fence each pause loses an increment. With a fence for writes every other pause does, and with a
// fence for reads and writes no pause does.
func TestPausedHolders(t *testing.T) {
	for name, newCounter := range map[string]func(t *testing.T, id string) counter{
		"SQLite": func(t *testing.T, id string) counter {
			s, err := openStock(filepath.Join(newFolder(t), "stock.db"), id)
			must(t, err)
			t.Cleanup(func() { must(t, s.db.Close()) })
			return stockCounter{s}
		},
		"guard": func(*testing.T, string) counter { return &guardCounter{} },
		"HTTP":  func(*testing.T, string) counter { return newHTTPCounter() },
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				pausedHolders(t, w.rpc(), 4, func(id string) counter { return newCounter(t, id) })
			})
		})
	}
}

// stockCounter is a row in SQLite, with the fence of the example.
type stockCounter struct{ *stock }

func (c stockCounter) look() (n int, err error) {
	err = sqlitex.Execute(c.db, `SELECT n FROM stock WHERE id = ?`, &sqlitex.ExecOptions{
		Args:       []any{c.id},
		ResultFunc: func(row *sqlite.Stmt) error { n = row.ColumnInt(0); return nil },
	})
	return n, err
}

func (c stockCounter) overwrite(n int) error {
	_, err := c.exec(`UPDATE stock SET n = ? WHERE id = ?`, n, c.id)
	return err
}

// guardCounter is a variable of this process, with a Guard.
type guardCounter struct {
	guard fencing.Guard
	n     int
}

func (c *guardCounter) look() (int, error) { return c.n, nil }

func (c *guardCounter) overwrite(n int) error {
	c.n = n
	return nil
}

func (c *guardCounter) read(token uint64) (n int, err error) {
	err = c.guard.Do(token, func() error { n = c.n; return nil })
	return n, err
}

func (c *guardCounter) write(token uint64, n int) error {
	return c.guard.Do(token, func() error { return c.overwrite(n) })
}

// httpCounter is read and written over HTTP, with the fence of the example.
type httpCounter struct {
	mu           sync.Mutex
	n            string
	plain, guard http.Handler
}

func newHTTPCounter() *httpCounter {
	c := &httpCounter{n: "0"}
	c.plain = http.HandlerFunc(c.serve)
	c.guard = fenced(&fencing.Guard{}, c.plain)
	return c
}

func (c *httpCounter) serve(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	body, err := io.ReadAll(r.Body)
	if err == nil && r.Method == http.MethodPut {
		c.n = string(body)
	}
	io.WriteString(w, c.n)
}

// do sends a request without a network, since a bubble has none.
func (c *httpCounter) do(handler http.Handler, method string, token uint64, body string) (int, error) {
	request := httptest.NewRequest(method, "/", strings.NewReader(body))
	request.Header.Set("Fencing-Token", strconv.FormatUint(token, 10))
	response := httptest.NewRecorder()
	handler.ServeHTTP(response, request)
	switch response.Code {
	case http.StatusOK:
		return strconv.Atoi(response.Body.String())
	case http.StatusPreconditionFailed:
		return 0, fencing.ErrStale
	}
	return 0, fmt.Errorf("%d: %s", response.Code, response.Body)
}

func (c *httpCounter) look() (int, error) { return c.do(c.plain, http.MethodGet, 0, "") }

func (c *httpCounter) overwrite(n int) error {
	_, err := c.do(c.plain, http.MethodPut, 0, strconv.Itoa(n))
	return err
}

func (c *httpCounter) read(token uint64) (int, error) {
	return c.do(c.guard, http.MethodGet, token, "")
}

func (c *httpCounter) write(token uint64, n int) error {
	_, err := c.do(c.guard, http.MethodPut, token, strconv.Itoa(n))
	return err
}

// TestFencedHandler: the statuses of the fenced handler, over a real connection.
func TestFencedHandler(t *testing.T) {
	var got []string
	server := httptest.NewServer(fenced(&fencing.Guard{}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if string(body) == "panic" {
			panic(http.ErrAbortHandler)
		}
		got = append(got, string(body))
		w.WriteHeader(http.StatusCreated)
	})))
	defer server.Close()
	for i, step := range []struct {
		token []string
		body  string
		want  int // 0 for a connection that breaks
	}{
		{nil, "none", http.StatusBadRequest},
		{[]string{""}, "empty", http.StatusBadRequest},
		{[]string{"0"}, "no token", http.StatusBadRequest},
		{[]string{"-1"}, "negative", http.StatusBadRequest},
		{[]string{"1e3"}, "garbage", http.StatusBadRequest},
		{[]string{"18446744073709551616"}, "too large", http.StatusBadRequest},
		{[]string{"33"}, "a", http.StatusCreated},
		{[]string{"33"}, "b", http.StatusCreated},
		{[]string{"34"}, "c", http.StatusCreated},
		{[]string{"33"}, "stale", http.StatusPreconditionFailed},
		{[]string{"36"}, strings.Repeat("x", 1<<20+1), http.StatusRequestEntityTooLarge},
		{[]string{"35"}, "panic", 0},
		{[]string{"34"}, "stale", http.StatusPreconditionFailed},
		{[]string{"18446744073709551615"}, "d", http.StatusCreated},
	} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPut, server.URL, strings.NewReader(step.body))
		must(t, err)
		request.Header["Fencing-Token"] = step.token
		response, err := server.Client().Do(request)
		code := 0
		if err == nil {
			code = response.StatusCode
			response.Body.Close()
		}
		if code != step.want {
			t.Errorf("%d: token %q: %d, %v; want %d", i, step.token, code, err, step.want)
		}
	}
	if want := []string{"a", "b", "c", "d"}; !slices.Equal(got, want) {
		t.Errorf("written: %q, want %q", got, want)
	}
}

// TestFencedHandlerSlowSender: a sender that is paused in the middle of its request does not delay others.
func TestFencedHandlerSlowSender(t *testing.T) {
	handler := fenced(&fencing.Guard{}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(w, r.Body)
	}))
	send := func(token string, body io.Reader) int {
		request := httptest.NewRequest(http.MethodPut, "/", body)
		request.Header.Set("Fencing-Token", token)
		response := httptest.NewRecorder()
		handler.ServeHTTP(response, request)
		return response.Code
	}
	body, rest := io.Pipe()
	slow := make(chan int)
	go func() { slow <- send("33", body) }()
	_, err := io.WriteString(rest, "half of it ")
	must(t, err)
	if code := send("34", strings.NewReader("all of it")); code != http.StatusOK {
		t.Errorf("the successor: %d", code)
	}
	must(t, rest.Close())
	if code := <-slow; code != http.StatusPreconditionFailed {
		t.Errorf("the slow one: %d", code)
	}
}

// database is an *sql.DB or an *sql.Tx.
type database interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// shelf is a row that a lock protects, of a table with a column for the token.
type shelf struct {
	db database
	id string
}

// create makes the row unless it is there.
func (s *shelf) create(ctx context.Context) error {
	_, err := s.db.ExecContext(ctx, `INSERT INTO stock (id, n, token) VALUES (?, 0, 0) ON DUPLICATE KEY UPDATE id = id`, s.id)
	return err
}

// read shuts out all earlier holders, and returns the value that they left.
func (s *shelf) read(ctx context.Context, token uint64) (n int, err error) {
	if err := s.update(ctx, `UPDATE stock SET token = ? WHERE id = ? AND token <= ?`, token, s.id, token); err != nil {
		return 0, err
	}
	err = s.db.QueryRowContext(ctx, `SELECT n FROM stock WHERE id = ?`, s.id).Scan(&n)
	return n, err
}

func (s *shelf) write(ctx context.Context, token uint64, n int) error {
	return s.update(ctx, `UPDATE stock SET n = ?, token = ? WHERE id = ? AND token <= ?`, n, token, s.id, token)
}

// update executes a statement that finds no row when the token is stale.
func (s *shelf) update(ctx context.Context, statement string, args ...any) error {
	result, err := s.db.ExecContext(ctx, statement, args...)
	if err != nil {
		return err
	}
	found, err := result.RowsAffected()
	if err == nil && found == 0 {
		err = fencing.ErrStale
	}
	return err
}

// shelfCounter is a row in MariaDB.
type shelfCounter struct{ *shelf }

func (c shelfCounter) look() (n int, err error) {
	err = c.db.QueryRowContext(context.Background(), `SELECT n FROM stock WHERE id = ?`, c.id).Scan(&n)
	return n, err
}

func (c shelfCounter) overwrite(n int) error {
	_, err := c.db.ExecContext(context.Background(), `UPDATE stock SET n = ? WHERE id = ?`, n, c.id)
	return err
}

func (c shelfCounter) read(token uint64) (int, error) {
	return c.shelf.read(context.Background(), token)
}

func (c shelfCounter) write(token uint64, n int) error {
	return c.shelf.write(context.Background(), token, n)
}

// TestFenceInMariaDB: the fence of docs/fencing.md in MariaDB, by the real clock.
func TestFenceInMariaDB(t *testing.T) {
	ctx := t.Context()
	db, config := newStockTable(t)
	wantStale := func(t *testing.T, err error) {
		t.Helper()
		if !errors.Is(err, fencing.ErrStale) {
			t.Errorf("got %v, want ErrStale", err)
		}
	}

	t.Run("paused holders", func(t *testing.T) {
		pausedHolders(t, newWorld(t).own(), 4, func(id string) counter {
			s := &shelf{db, id}
			must(t, s.create(ctx))
			return shelfCounter{s}
		})
	})

	t.Run("the same again", func(t *testing.T) {
		s := &shelf{db, "same"}
		must(t, s.create(ctx))
		for range 2 {
			_, err := s.read(ctx, 33)
			must(t, err)
			must(t, s.write(ctx, 33, 7))
		}
		must(t, s.create(ctx))
		if n, err := s.read(ctx, 33); n != 7 || err != nil {
			t.Errorf("%d, %v", n, err)
		}
		wantStale(t, s.write(ctx, 32, 8))
		wantStale(t, (&shelf{db, "no row"}).write(ctx, 33, 8))
	})

	// Without ClientFoundRows an update that changes nothing looks stale.
	t.Run("changed rows", func(t *testing.T) {
		config := config.Clone()
		config.ClientFoundRows = false
		other := openMySQL(t, config)
		s := &shelf{other, "changed"}
		must(t, s.create(ctx))
		must(t, s.write(ctx, 33, 7))
		wantStale(t, s.write(ctx, 33, 7))
	})

	t.Run("the first at once", func(t *testing.T) {
		var all sync.WaitGroup
		for token := range uint64(8) {
			all.Go(func() {
				s := &shelf{db, "first"}
				err := s.create(ctx)
				if err == nil {
					err = s.write(ctx, token+1, int(token))
				}
				if err != nil && !errors.Is(err, fencing.ErrStale) {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if n, err := (&shelf{db, "first"}).read(ctx, 8); n != 7 || err != nil {
			t.Errorf("it is %d, %v; want that of the highest token", n, err)
		}
	})

	// A transaction that has started and read before its successor writes.
	for _, level := range []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead} {
		t.Run(level.String(), func(t *testing.T) {
			id := level.String()
			must(t, (&shelf{db, id}).create(ctx))
			late, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: level})
			must(t, err)
			defer late.Rollback()
			_, err = shelfCounter{&shelf{late, id}}.look()
			must(t, err)
			newer, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: level})
			must(t, err)
			defer newer.Rollback()
			must(t, (&shelf{newer, id}).write(ctx, 34, 1))

			result := make(chan error)
			go func() { result <- (&shelf{late, id}).write(ctx, 33, 2) }()
			time.Sleep(50 * time.Millisecond) // real time: usually it waits for the row; in any case it must not be written
			must(t, newer.Commit())
			if err := <-result; err == nil {
				t.Error("the late one was written")
			} else if level == sql.LevelReadCommitted {
				wantStale(t, err)
			}
		})
	}
}

// newStockTable returns a new database with the table, in MariaDB.
func newStockTable(t *testing.T) (*sql.DB, *mysql.Config) {
	t.Helper()
	config, err := mysql.ParseDSN(fixtures.MySQL(t))
	must(t, err)
	config.ClientFoundRows = true
	db := openMySQL(t, config)
	_, err = db.ExecContext(t.Context(), `CREATE TABLE stock (id VARBINARY(64) PRIMARY KEY, n INT NOT NULL, token BIGINT NOT NULL) ENGINE = InnoDB`)
	must(t, err)
	return db, config
}

func openMySQL(t *testing.T, config *mysql.Config) *sql.DB {
	t.Helper()
	connector, err := mysql.NewConnector(config)
	must(t, err)
	db := sql.OpenDB(connector)
	t.Cleanup(func() { must(t, db.Close()) })
	return db
}

// TestDocuments: code in the documents is copied from tests and examples.
func TestDocuments(t *testing.T) {
	sources, err := filepath.Glob("*_test.go")
	must(t, err)
	var code strings.Builder
	for _, source := range append(sources, "fencing/example_test.go") {
		text, err := os.ReadFile(source)
		must(t, err)
		code.Write(text)
	}
	for document, count := range map[string]int{"fencing.md": 3, "migrating.md": 2} {
		text, err := os.ReadFile("../docs/" + document)
		must(t, err)
		blocks := strings.Split(string(text), "```")
		for i := 1; i < len(blocks); i += 2 {
			block, isGo := strings.CutPrefix(blocks[i], "go\n")
			if !isGo || !strings.Contains(code.String(), block) {
				t.Errorf("this is in %s, and not in lock/*_test.go:\n%s", document, block)
			}
		}
		if len(blocks) != 2*count+1 {
			t.Errorf("%s: %d pieces of text and code, want %d blocks of code", document, len(blocks), count)
		}
	}
}
