package mysql

import (
	"context"
	"database/sql"
	"sync"
	"testing"

	"github.com/locket-service/locket/fixtures"
)

// reused are databases for the cases of a test. To empty one takes far less time than to make all of its tables.
type reused struct {
	t    *testing.T
	mu   sync.Mutex
	free []string
}

// take returns the data source name of a database without tables, or with the tables of the migrations and no rows of
// others. It is free again when the case has ended; if the case failed, it is not used again.
func (r *reused) take(t testing.TB) (dsn string) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if last := len(r.free) - 1; last >= 0 {
		dsn, r.free = r.free[last], r.free[:last]
	} else {
		dsn = fixtures.MySQL(r.t)
	}
	t.Cleanup(func() {
		if t.Failed() {
			return
		}
		empty(t, dsn)
		r.mu.Lock()
		defer r.mu.Unlock()
		r.free = append(r.free, dsn)
	})
	return dsn
}

// empty removes all rows, except rows made by migrations.
func empty(t testing.TB, dsn string) {
	t.Helper()
	pool, err := sql.Open("mysql", dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	rows, err := pool.QueryContext(context.Background(), "SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name NOT LIKE 'locket%'")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var statements []string
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			t.Fatal(err)
		}
		statements = append(statements, "DELETE FROM "+name)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	statements = append(statements, "INSERT INTO meta (one, seen, outage, floor) VALUES (1, 0, 0, 0)", "UPDATE locket_turn SET server = '', until = 0")
	for _, statement := range statements {
		if _, err := pool.ExecContext(context.Background(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
}
