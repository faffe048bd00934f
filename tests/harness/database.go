package harness

import (
	"path/filepath"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/locket-service/locket/fixtures"
)

// Raft is the name of the embedded engine.
const Raft = "raft"

// Engines returns, for each engine, a function that makes a new database for a server.
func Engines() map[string]func(*testing.T) string {
	return map[string]func(*testing.T) string{
		Raft:    Embedded,
		"mysql": func(t *testing.T) string { return "mysql:" + fixtures.MySQL(t) },
	}
}

// Embedded returns a new database of the embedded engine.
func Embedded(t *testing.T) string { return Raft + ":" + filepath.Join(t.TempDir(), "locket") }

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
