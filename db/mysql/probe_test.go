package mysql

import (
	"errors"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/locket-service/locket/fixtures"
)

// TestProbe: a database that accepts statements and locks nothing is refused, whatever it takes for a
// lock. One that does not skip, but waits, is used without SKIP LOCKED.
func TestProbe(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		blank   string
		refused bool
		skips   bool
	}{
		"a real one":                      {blank: "", skips: true},
		"no locks at all":                 {blank: "FOR UPDATE", refused: true},
		"no locks, and no SKIP LOCKED":    {blank: "FOR UPDATE SKIP LOCKED", refused: true},
		"it waits for what it is to skip": {blank: "SKIP LOCKED"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config, err := mysql.ParseDSN(fixtures.MySQL(t))
			if err != nil {
				t.Fatal(err)
			}
			proxy := fixtures.NewProxy(t, config.Addr)
			if c.blank != "" {
				proxy.Blank(c.blank)
			}
			config.Addr = proxy.Addr()
			s, err := awaitOpen(patient(t, config.FormatDSN()))
			if errors.Is(err, ErrNoRowLocks) != c.refused || (err != nil) != c.refused {
				t.Fatal(err)
			}
			if err != nil {
				return
			}
			defer func() { _ = s.Close() }()
			for _, table := range s.locks.all() {
				if table.stuck.canSkip != c.skips {
					t.Errorf("it is taken to skip: %v", table.stuck.canSkip)
				}
			}
			left := 0
			if err := s.control.QueryRow("SELECT COUNT(*) FROM resources WHERE name NOT IN (X'FF', X'00')").Scan(&left); err != nil || left > 0 {
				t.Errorf("the probe leaves %d rows: %v", left, err)
			}
		})
	}
}

// TestProbeBesideMigration: on a cluster, a change that another node makes to the tables ends transactions here. The probe then starts again.
func TestProbeBesideMigration(t *testing.T) {
	t.Parallel()
	dsn := fixtures.MySQL(t)
	s := open(t, dsn)
	for _, statement := range []string{
		"CREATE TABLE attempts (n INT AUTO_INCREMENT PRIMARY KEY)", // a rollback does not take a number back
		`CREATE TRIGGER ends BEFORE INSERT ON resources FOR EACH ROW BEGIN
			INSERT INTO attempts VALUES ();
			IF LAST_INSERT_ID() <= 2 THEN SIGNAL SQLSTATE '40001' SET MYSQL_ERRNO = 1213; END IF; END`,
	} {
		_, err := s.scanner.Exec(statement)
		must(t, err)
	}
	open(t, dsn)
	var succeeded int
	if must(t, s.scanner.QueryRow("SELECT MIN(n) FROM attempts").Scan(&succeeded)); succeeded != 3 {
		t.Errorf("the first attempt of the probe that succeeds is number %d", succeeded)
	}
}
