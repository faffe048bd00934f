package harness

import (
	"cmp"
	"os"
	"path/filepath"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/locket-service/locket/fixtures"
)

// EnvEmbedded names the embedded engine that the tests of the whole program use: sqlite, which is the default, or raft.
const EnvEmbedded = "LOCKET_TEST_EMBEDDED"

// The embedded engines.
const (
	SQLite = "sqlite"
	Raft   = "raft"
)

// EmbeddedEngine returns the name of the embedded engine under test.
func EmbeddedEngine() string { return cmp.Or(os.Getenv(EnvEmbedded), SQLite) }

// Engines returns, for each engine, what makes a fresh database for a server.
func Engines() map[string]func(*testing.T) string {
	return map[string]func(*testing.T) string{
		EmbeddedEngine(): Embedded,
		"mysql":          func(t *testing.T) string { return "mysql:" + fixtures.MySQL(t) },
	}
}

// Embedded returns a database of the test's own, of the embedded engine under test.
func Embedded(t *testing.T) string {
	t.Helper()
	switch engine := EmbeddedEngine(); engine {
	case SQLite:
		return SQLiteFile(t)
	case Raft:
		return Raft + ":" + filepath.Join(t.TempDir(), "locket")
	default:
		t.Fatalf("%s=%s: want %s or %s", EnvEmbedded, engine, SQLite, Raft)
		return ""
	}
}

// SQLiteFile returns a database in a file of the test's own.
func SQLiteFile(t *testing.T) string { return SQLite + ":" + filepath.Join(t.TempDir(), "locket.db") }

// OnEachEngine runs a test on a fresh database of each engine.
func OnEachEngine(t *testing.T, test func(t *testing.T, database string)) {
	for name, database := range Engines() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, database(t))
		})
	}
}

// Proxied returns a fresh database behind a proxy.
func Proxied(t *testing.T) (database string, proxy *fixtures.Proxy) {
	t.Helper()
	config, err := mysql.ParseDSN(fixtures.MySQL(t))
	Must(t, err)
	proxy = fixtures.NewProxy(t, config.Addr)
	config.Addr = proxy.Addr()
	return "mysql:" + config.FormatDSN(), proxy
}
