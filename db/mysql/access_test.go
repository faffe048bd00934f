package mysql

import (
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/db/dbtest"
	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/internal/rules/claim"
)

// TestAccessLost: while the database rejects the server, or its tables are missing, it is unavailable; that ends by
// itself. At a start it is a configuration error, and waiting would not help.
func TestAccessLost(t *testing.T) {
	t.Parallel()
	config, err := mysql.ParseDSN(patient(t, fixtures.MySQL(t)))
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(err)
	admin, err := sql.Open("mysql", config.FormatDSN())
	must(err)
	defer admin.Close()
	do := func(statement string) {
		t.Helper()
		_, err := admin.ExecContext(t.Context(), statement)
		must(err)
	}
	user := "u_" + config.DBName + "@'%'"
	do("CREATE USER " + user + " IDENTIFIED BY 'first'")
	defer admin.Exec("DROP USER " + user)
	do("GRANT ALL ON " + config.DBName + ".* TO " + user)
	config.User, config.Passwd = "u_"+config.DBName, "first"
	s := open(t, config.FormatDSN())
	acquire := claim.Acquire{ID: "1", Resource: "r", Owner: "o", TTL: time.Hour}
	for name, c := range map[string]struct{ lose, restore string }{
		"password":   {"ALTER USER " + user + " IDENTIFIED BY 'second'", "ALTER USER " + user + " IDENTIFIED BY 'first'"},
		"locked":     {"ALTER USER " + user + " ACCOUNT LOCK", "ALTER USER " + user + " ACCOUNT UNLOCK"},
		"privileges": {"REVOKE ALL ON " + config.DBName + ".* FROM " + user, "GRANT ALL ON " + config.DBName + ".* TO " + user},
		"tables":     {"RENAME TABLE resources TO elsewhere, meta TO elsewhere2", "RENAME TABLE elsewhere TO resources, elsewhere2 TO meta"},
	} {
		do(c.lose)
		s.renew() // as the database does, or an idle timeout
		err := s.Update(t.Context(), func(tx db.Tx) error {
			_, err := db.Execute(tx, []claim.Command{acquire}, func(*claim.Queues) {})
			return err
		})
		if _, listed := s.Now(t.Context()); !errors.Is(err, db.ErrUnavailable) || !errors.Is(listed, db.ErrUnavailable) {
			t.Errorf("%s: %v; %v", name, err, listed)
		}
		if name == "password" || name == "locked" {
			if again, err := Open(t.Context(), config.FormatDSN()); err == nil || errors.Is(err, db.ErrUnavailable) {
				t.Errorf("%s, at a start: %v, %v", name, again, err)
			}
		}
		do(c.restore)
		s.renew()
		dbtest.Do(t, s, acquire)
	}
}
