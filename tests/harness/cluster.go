package harness

import (
	"strings"
	"testing"

	"github.com/locket-service/locket/fixtures"
)

// Cluster starts some servers whose log is in an etcd of their own.
func Cluster(t *testing.T, servers int, args ...string) (cluster []*fixtures.Locket) {
	t.Helper()
	etcd := fixtures.NewEtcd(t, fixtures.Etcd34, 1)
	args = append([]string{"--etcd", strings.Join(etcd.Endpoints(), ",")}, args...)
	for range servers {
		cluster = append(cluster, fixtures.StartLocket(t, Embedded(t), args...))
	}
	return cluster
}
