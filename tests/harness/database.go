package harness

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/locket-service/locket/fixtures"
)

// EngineEmbedded is the name of the embedded engine.
const EngineEmbedded = "embedded"

// Engines returns, for each engine, a function that makes a new database for a server.
func Engines() map[string]func(*testing.T) string {
	return map[string]func(*testing.T) string{
		EngineEmbedded: Embedded,
		"mysql":        func(t *testing.T) string { return "mysql:" + MySQL(t) },
	}
}

// MySQL returns the data source name of a fresh database, for servers that wait for slow statements.
func MySQL(t testing.TB) string {
	t.Helper()
	return Unhurried(t, fixtures.MySQL(t))
}

// Unhurried returns a data source name that makes a server wait for the database until the deadline of the transaction. Without it
// a connection counts as dead after 1.75 s, which is for connections that are dead, and too short for a statement on a busy machine.
func Unhurried(t testing.TB, dsn string) string {
	t.Helper()
	config, err := mysql.ParseDSN(dsn)
	Must(t, err)
	config.Timeout, config.ReadTimeout, config.WriteTimeout = HangTimeout, HangTimeout, HangTimeout
	return config.FormatDSN()
}

// OnCluster says that Embedded returns a database of three servers: the environment variable LOCKET_TEST_CLUSTER is set. It is removed, since
// a command that a test runs in this process warns of variables that have no effect.
var OnCluster = func() bool {
	const name = "LOCKET_TEST_CLUSTER"
	_, set := os.LookupEnv(name)
	return set && os.Unsetenv(name) == nil
}()

// Embedded returns a new database of the embedded engine.
func Embedded(t *testing.T) string {
	if OnCluster {
		return ThreeNodes(t)
	}
	return OneServer(t)
}

// OneServer is Embedded for a test that does not fit a cluster.
func OneServer(t *testing.T) string {
	return EngineEmbedded + ":" + filepath.Join(t.TempDir(), "locket")
}

// ThreeNodes returns a new database of three servers, each with a node of etcd.
func ThreeNodes(t *testing.T) string { return "cluster:" + t.TempDir() }

// OnEachEngine runs a test on a fresh database of each engine.
func OnEachEngine(t *testing.T, test func(t *testing.T, database string)) {
	for name, database := range Engines() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, database(t))
		})
	}
}

// OnBothLogs runs a test on one server with the log in a file, and on a cluster of three with the log in etcd. It is for a few tests:
// `make soak` runs all on a cluster.
func OnBothLogs(t *testing.T, test func(t *testing.T, database string)) {
	for name, database := range map[string]func(*testing.T) string{"one server": OneServer, "three nodes": ThreeNodes} {
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
