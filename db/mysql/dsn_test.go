package mysql

import (
	"crypto/x509"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/internal/base/follow"
	"github.com/locket-service/locket/internal/rules/claim"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestSecrets: a user with a password who must use TLS comes in with the secrets beside the DSN,
// and the database's certificate is verified.
func TestSecrets(t *testing.T) {
	t.Parallel()
	ca, other := fixtures.NewCA(t), fixtures.NewCA(t)
	cert, key := ca.Issue(t, "db", func(c *x509.Certificate) { c.IPAddresses, c.DNSNames = nil, []string{"elsewhere.example"} })
	database := fixtures.NewMariaDB(t, fixtures.WithServerArgs("--ssl-ca="+ca.File, "--ssl-cert="+cert, "--ssl-key="+key))
	const password = "p@ss/w:rd?#'"
	admin, err := sql.Open("mysql", database.DSN(""))
	must(t, err)
	defer admin.Close()
	for _, statement := range []string{
		"CREATE DATABASE locket", `CREATE USER safe@'127.0.0.1' IDENTIFIED BY "` + password + `" REQUIRE SSL`, "GRANT ALL ON locket.* TO safe@'127.0.0.1'",
	} {
		_, err := admin.ExecContext(t.Context(), statement)
		must(t, err)
	}
	file := filepath.Join(t.TempDir(), "password")
	must(t, os.WriteFile(file, []byte(password+"\nmore\n"), 0o600))
	dsn := patient(t, "safe@tcp("+database.Addr()+")/locket")
	for _, test := range []struct {
		name, dsn string
		secrets   Secrets
		wrong     string // "" if it is to work
	}{
		{"a password and authorities", dsn, Secrets{Password: password, CA: ca.File, AnyName: true}, ""},
		{"a file and authorities", dsn, Secrets{PasswordFile: file, CA: ca.File, AnyName: true}, ""},
		{"a password in the DSN", "safe:" + password + strings.TrimPrefix(dsn, "safe"), Secrets{CA: ca.File, AnyName: true}, ""},
		{"another host's certificate", dsn, Secrets{Password: password, CA: ca.File}, "certificate"},
		{"other authorities", dsn, Secrets{Password: password, CA: other.File, AnyName: true}, "certificate"},
		{"no TLS", dsn, Secrets{Password: password}, "Access denied"},
		{"another password", dsn, Secrets{Password: "x", CA: ca.File, AnyName: true}, "Access denied"},
		{"two passwords", "safe:x@tcp(127.0.0.1:1)/locket", Secrets{Password: password}, "another one"},
		{"TLS twice", withOptions(dsn, "tls=true"), Secrets{CA: ca.File}, "authorities"},
		{"no such file of a password", dsn, Secrets{PasswordFile: "/nosuch"}, "/nosuch"},
		{"a file without a password", dsn, Secrets{PasswordFile: os.DevNull}, "empty"},
		{"no such authorities", dsn, Secrets{CA: "/nosuch"}, "/nosuch"},
		{"authorities that are none", dsn, Secrets{CA: file}, file},
		{"not a DSN", "nonsense", Secrets{Password: password}, "DSN"},
	} {
		option, err := test.secrets.Follow(follow.NewSet(slog.New(slog.DiscardHandler)))
		if err == nil {
			var store *Store
			if store, err = awaitOpen(test.dsn, option); err == nil {
				must(t, store.Close())
			}
		}
		switch {
		case test.wrong == "" && err != nil:
			t.Errorf("%s: %v", test.name, err)
		case test.wrong != "" && (err == nil || !strings.Contains(err.Error(), test.wrong)):
			t.Errorf("%s: got %v, want %q", test.name, err, test.wrong)
		case err != nil && strings.Contains(err.Error(), password):
			t.Errorf("%s: the error contains the password", test.name)
		}
	}
}

// TestHalfOfTheAuthorities: a file of authorities that has lost its end is invalid, and what was valid last stays in use.
func TestHalfOfTheAuthorities(t *testing.T) {
	t.Parallel()
	one, err := os.ReadFile(fixtures.NewCA(t).File)
	must(t, err)
	other, err := os.ReadFile(fixtures.NewCA(t).File)
	must(t, err)
	both := append(one, other...)
	file := filepath.Join(t.TempDir(), "ca")
	for content, valid := range map[string]bool{string(both): true, string(both[:len(both)-len(other)/2]): false} {
		must(t, os.WriteFile(file, []byte(content), 0o600))
		if _, err := (Secrets{CA: file}).Follow(follow.NewSet(slog.New(slog.DiscardHandler))); (err == nil) != valid {
			t.Errorf("%d bytes of authorities: %v", len(content), err)
		}
	}
}

// TestPasswordThatChanges: connections are made with the password that the file has then.
func TestPasswordThatChanges(t *testing.T) {
	t.Parallel()
	config, err := mysql.ParseDSN(patient(t, fixtures.MySQL(t)))
	must(t, err)
	admin, err := sql.Open("mysql", config.FormatDSN())
	must(t, err)
	defer admin.Close()
	user := "u_" + config.DBName + "@'%'"
	do := func(statement string) {
		t.Helper()
		_, err := admin.ExecContext(t.Context(), statement)
		must(t, err)
	}
	do("CREATE USER " + user + " IDENTIFIED BY 'first'")
	defer admin.Exec("DROP USER " + user)
	do("GRANT ALL ON " + config.DBName + ".* TO " + user)
	config.User, config.Passwd = "u_"+config.DBName, ""
	file := filepath.Join(t.TempDir(), "password")
	must(t, os.WriteFile(file, []byte("first\n"), 0o600))
	set := follow.NewSet(slog.New(slog.DiscardHandler))
	option, err := Secrets{PasswordFile: file}.Follow(set)
	must(t, err)
	s, err := awaitOpen(config.FormatDSN(), option)
	must(t, err)
	defer s.Close()
	do("ALTER USER " + user + " IDENTIFIED BY 'second'")
	s.renew()
	if _, err := s.Now(t.Context()); !errors.Is(err, db.ErrUnavailable) {
		t.Fatal(err)
	}
	must(t, os.WriteFile(file, []byte("second\n"), 0o600))
	eventually(t, "the new password is used", func() bool {
		set.Look(t.Context())
		return now(t, s)
	})
}

func now(t *testing.T, s *Store) bool {
	_, err := s.Now(t.Context())
	return err == nil
}

// TestOptionsOfTheDSN: whatever a DSN says of how connections are set up, names are bytes, what is done is committed, and answers are whole.
func TestOptionsOfTheDSN(t *testing.T) {
	t.Parallel()
	for _, options := range []string{
		"charset=utf8", "charset=latin1", "charset=gbk", "collation=gbk_chinese_ci", "autocommit=0", "completion_type=2", "sql_safe_updates=1", "sql_select_limit=1",
		"rejectReadOnly=true", "clientFoundRows=true&parseTime=true&multiStatements=true&columnsWithAlias=true",
	} {
		t.Run(options, func(t *testing.T) {
			s := open(t, withOptions(fixtures.MySQL(t), options))
			names := []string{"n\U0001f600a", "n\U0001f600b", "\u4f60'a", "\u00c9", "\u00e9", "a\\'"}
			for i, err := range results(t, s, acquires(names...)...) {
				if err != nil {
					t.Errorf("%q: %v", names[i], err)
				}
			}
			for _, name := range names {
				if c, err := s.Holder(t.Context(), name); err != nil || c.ID != "id-"+name || c.Resource != name {
					t.Errorf("%q is held by %+v (%v)", name, c, err)
				}
			}
			if held, err := s.Live(t.Context(), db.LiveOf{Held: new(claim.Untyped)}, db.Page{}); err != nil || len(held) != len(names) {
				t.Errorf("%d are held (%v)", len(held), err)
			}
			must(t, s.Beat(t.Context(), false))
		})
	}
}

// TestLongStatements: readTimeout of the DSN, which is for servers, does not cut off what migrations, restores and backups do with large tables.
func TestLongStatements(t *testing.T) {
	t.Parallel()
	config, err := mysql.ParseDSN(fixtures.MySQL(t))
	must(t, err)
	config.ReadTimeout = time.Second
	for what, r := range map[string]role{"a migration": migrating, "a backup": dumping} {
		pool := connect(config, r)
		defer pool.Close()
		eventually(t, what+" waits for its statement", func() bool { // it may take longer to open a connection
			_, err := pool.Exec("DO SLEEP(1.5)")
			return err == nil
		})
	}
}

// TestReadOnlyConnection: a connection to a server that takes no writes any more is given up at once: the next one may lead to the server that does.
func TestReadOnlyConnection(t *testing.T) {
	t.Parallel()
	s := open(t, fixtures.MySQL(t))
	for what, do := range map[string]func() error{
		"a transaction": func() error { return acquire(t.Context(), s, "r") },
		"a beat":        func() error { return s.Beat(t.Context(), false) },
	} {
		conn, err := s.writer.Conn(t.Context())
		must(t, err)
		_, err = conn.ExecContext(t.Context(), "SET SESSION TRANSACTION READ ONLY")
		must(t, errors.Join(err, conn.Close()))
		if err := do(); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestConnectionToNodeWithoutCluster: a connection to a node of Galera that is cut off from its cluster is given up at once: a load balancer leads the next
// one to a node that is not.
func TestConnectionToNodeWithoutCluster(t *testing.T) {
	t.Parallel()
	s := open(t, fixtures.MySQL(t))
	must(t, acquire(t.Context(), s, "r"))
	for what, do := range map[string]func() error{
		"a transaction": func() error { return acquire(t.Context(), s, "q") },
		"a beat":        func() error { return s.Beat(t.Context(), false) },
	} {
		conn, err := s.writer.Conn(t.Context())
		must(t, err)
		var id int
		must(t, conn.QueryRowContext(t.Context(), "SELECT CONNECTION_ID()").Scan(&id))
		must(t, conn.Close())
		_, err = s.scanner.Exec("DROP TRIGGER IF EXISTS cut_off")
		must(t, err)
		_, err = s.scanner.Exec(fmt.Sprintf(`CREATE TRIGGER cut_off BEFORE INSERT ON feed FOR EACH ROW
			IF CONNECTION_ID() <= %d THEN SIGNAL SQLSTATE '08S01' SET MYSQL_ERRNO = 1047; END IF`, id))
		must(t, err)
		if err := do(); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
}
