package lock_test

import (
	"fmt"
	"log"
	"os"
	"time"

	"github.com/tedsuo/ifrit"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/locket-service/locket/lock"
	"github.com/locket-service/locket/lock/fencing"
	"github.com/locket-service/locket/models"
)

// The protected data is in a database: the token is in a column beside it.
func ExampleRunner_Held() {
	address, stopServer := startServer() // yours runs elsewhere
	defer stopServer()
	conn, err := lock.Dial([]string{address})
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	client := models.NewLocketClient(conn)
	stock, err := openStock(":memory:", "apples")
	if err != nil {
		log.Fatal(err)
	}
	defer stock.db.Close()

	// The first holder reads, and is paused.
	first := lock.NewLockRunner(client, &models.Resource{Key: "apples", Owner: "first"}, lock.DefaultTTL, time.Second)
	process := ifrit.Invoke(first)
	token, held := first.Held()
	if !held {
		log.Fatal("not held") // the runner ends
	}
	n, err := stock.read(token)
	if err != nil {
		log.Fatal(err)
	}
	process.Signal(os.Interrupt)
	if err := <-process.Wait(); err != nil {
		log.Fatal(err)
	}

	// The second holder takes over, reads and writes.
	second := lock.NewLockRunner(client, &models.Resource{Key: "apples", Owner: "second"}, lock.DefaultTTL, time.Second)
	process = ifrit.Invoke(second)
	newer, held := second.Held()
	if !held {
		log.Fatal("not held")
	}
	m, err := stock.read(newer)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("the second:", stock.write(newer, m+10))

	// The first one continues. It would overwrite the second one's data.
	fmt.Println("the first:", stock.write(token, n+1))

	m, err = stock.read(newer)
	fmt.Println("in stock:", m, err)
	process.Signal(os.Interrupt)
	if err := <-process.Wait(); err != nil {
		log.Fatal(err)
	}

	// Output:
	// the second: <nil>
	// the first: the fencing token is stale
	// in stock: 10 <nil>
}

// stock is a row of a table that a lock protects.
type stock struct {
	db *sqlite.Conn
	id string
}

func openStock(file, id string) (*stock, error) {
	db, err := sqlite.OpenConn(file)
	if err != nil {
		return nil, err
	}
	s := &stock{db: db, id: id}
	err = sqlitex.ExecuteScript(db, `CREATE TABLE IF NOT EXISTS stock (id TEXT PRIMARY KEY, n INTEGER NOT NULL, token INTEGER NOT NULL)`, nil)
	if err == nil {
		_, err = s.exec(`INSERT INTO stock (id, n, token) VALUES (?, 0, 0) ON CONFLICT DO NOTHING`, id)
	}
	if err != nil {
		db.Close()
		return nil, err
	}
	return s, nil
}

// read shuts out all earlier holders, then returns the stock. The value stays true until this holder, or a later one,
// writes.
func (s *stock) read(token uint64) (n int, err error) {
	if err := s.fenced(`UPDATE stock SET token = ? WHERE id = ? AND token <= ?`, token, s.id, token); err != nil {
		return 0, err
	}
	err = sqlitex.Execute(s.db, `SELECT n FROM stock WHERE id = ?`, &sqlitex.ExecOptions{
		Args:       []any{s.id},
		ResultFunc: func(row *sqlite.Stmt) error { n = row.ColumnInt(0); return nil },
	})
	return n, err
}

func (s *stock) write(token uint64, n int) error {
	return s.fenced(`UPDATE stock SET n = ?, token = ? WHERE id = ? AND token <= ?`, n, token, s.id, token)
}

// fenced executes a statement that finds no row if the token is stale.
func (s *stock) fenced(statement string, args ...any) error {
	found, err := s.exec(statement, args...)
	if err == nil && found == 0 {
		err = fencing.ErrStale
	}
	return err
}

func (s *stock) exec(statement string, args ...any) (found int, err error) {
	err = sqlitex.Execute(s.db, statement, &sqlitex.ExecOptions{Args: args})
	return s.db.Changes(), err
}
