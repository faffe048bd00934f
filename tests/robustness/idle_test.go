package robustness_test

import (
	"database/sql"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/tests/harness"
)

// quietTime is for how long an idle server is watched.
const quietTime = 5 * time.Second

// used starts a server, and takes and releases a lock.
func used(t *testing.T, database string) models.LocketClient {
	t.Helper()
	client := fixtures.StartLocket(t, database).Client(t)
	resource := &models.Resource{Key: "was used", Owner: "o", TypeCode: models.TypeCode_LOCK}
	_, err := client.Lock(t.Context(), &models.LockRequest{Resource: resource, TtlInSeconds: 60})
	harness.Must(t, err)
	_, err = client.Release(t.Context(), &models.ReleaseRequest{Resource: resource})
	harness.Must(t, err)
	return client
}

// TestIdleSQLite: a server on SQLite does not write while there are no leases. While there is one, it
// writes that it is there.
func TestIdleSQLite(t *testing.T) {
	t.Parallel()
	database := harness.SQLiteFile(t)
	path := strings.TrimPrefix(database, "sqlite:")
	files := func() (state string) {
		for _, part := range []string{"", "-wal"} {
			info, err := os.Stat(path + part)
			harness.Must(t, err)
			state += fmt.Sprint(info.Size(), info.ModTime(), " ")
		}
		return state
	}
	client := used(t, database)
	harness.Eventually(t, time.Minute, func() error {
		before := files()
		time.Sleep(quietTime)
		if after := files(); after != before {
			return fmt.Errorf("it writes: %s, before %s", after, before)
		}
		return nil
	})
	resource := &models.Resource{Key: "held", Owner: "o", TypeCode: models.TypeCode_LOCK}
	_, err := client.Lock(t.Context(), &models.LockRequest{Resource: resource, TtlInSeconds: 600})
	harness.Must(t, err)
	before := files()
	harness.Eventually(t, time.Minute, func() error {
		if files() == before {
			return errors.New("nothing is written while a lease is live")
		}
		return nil
	})
}

// TestIdleMySQL: a server on MySQL without leases asks the database five times a second at most.
func TestIdleMySQL(t *testing.T) {
	t.Parallel()
	dsn := fixtures.NewMariaDB(t).CreateDatabase(t) // of its own, to count all statements
	used(t, "mysql:"+dsn)
	pool, err := sql.Open("mysql", dsn)
	harness.Must(t, err)
	t.Cleanup(func() { _ = pool.Close() })
	questions := func() (n int) {
		var name string
		harness.Must(t, pool.QueryRowContext(t.Context(), "SHOW GLOBAL STATUS LIKE 'Questions'").Scan(&name, &n))
		return n
	}
	harness.Eventually(t, time.Minute, func() error {
		const span = 2 * quietTime
		before := questions()
		time.Sleep(span)
		if n := questions() - before - 1; n > 5*int(span/time.Second) {
			return fmt.Errorf("%d statements in %s", n, span)
		}
		return nil
	})
}
