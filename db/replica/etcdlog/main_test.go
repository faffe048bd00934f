package etcdlog_test

import (
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/locket-service/locket/db/replica/etcdlog"
	"github.com/locket-service/locket/db/replica/order"
	"github.com/locket-service/locket/db/replica/order/ordertest"
	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/internal/base/follow"
)

func TestMain(m *testing.M) {
	m.Run()
	fixtures.Shutdown()
}

// The clusters of this package. Each test has a prefix of its own.
var (
	single34 = sync.OnceValues(func() (*fixtures.Etcd, error) { return fixtures.StartEtcd(fixtures.Etcd34, 1) })
	triple37 = sync.OnceValues(func() (*fixtures.Etcd, error) {
		return fixtures.StartEtcd(fixtures.Etcd37, 3, fixtures.WithEtcdArgs("--heartbeat-interval=50", "--election-timeout=500"))
	})
	prefixes atomic.Int64
)

func cluster(t *testing.T, start func() (*fixtures.Etcd, error)) *fixtures.Etcd {
	t.Helper()
	e, err := start()
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// quietly makes options for a log in an etcd, under a new prefix.
func quietly(e *fixtures.Etcd) etcdlog.Options {
	log := slog.New(slog.DiscardHandler)
	return etcdlog.Options{Endpoints: e.Endpoints(), Prefix: fmt.Sprintf("/test/%d/", prefixes.Add(1)), Files: follow.NewSet(log), Log: log}
}

func open(t *testing.T, o etcdlog.Options) *etcdlog.Log {
	t.Helper()
	l, err := etcdlog.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func TestContract34(t *testing.T) { contract(t, single34) }

func TestContract37(t *testing.T) { contract(t, triple37) }

func contract(t *testing.T, start func() (*fixtures.Etcd, error)) {
	e := cluster(t, start)
	ordertest.Run(t, func(t *testing.T) func() order.Log {
		o := quietly(e)
		return func() order.Log { return open(t, o) }
	})
}
