package etcdnode_test

import (
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"

	"github.com/locket-service/locket/db/replica/etcdlog"
	"github.com/locket-service/locket/db/replica/etcdnode"
	"github.com/locket-service/locket/db/replica/order"
	"github.com/locket-service/locket/db/replica/order/ordertest"
	"github.com/locket-service/locket/internal/base/follow"
	"github.com/locket-service/locket/tests/harness"
)

// TestContract: the log in a node of this process is as every other.
func TestContract(t *testing.T) {
	o := newCluster(t, "a")[0]
	o.Cert, o.Key, o.CA, o.Prefix, o.Log = "", "", "", etcdlog.DefaultPrefix, slog.New(slog.DiscardHandler)
	o.Exit = func(err error) { t.Error(err) }
	n, err := etcdnode.Start(t.Context(), o)
	harness.Must(t, err)
	t.Cleanup(func() { harness.Must(t, n.Close()) })
	prefixes := atomic.Int64{}
	ordertest.Run(t, func(t *testing.T) func() order.Log {
		prefix := fmt.Sprintf("/test/%d/", prefixes.Add(1))
		return func() order.Log {
			l, err := etcdlog.Open(etcdlog.Options{Local: n, Prefix: prefix, Files: follow.NewSet(o.Log), Log: o.Log})
			harness.Must(t, err)
			t.Cleanup(func() { _ = l.Close() })
			return l
		}
	})
}

// TestOptions: options that are refused before anything is started.
func TestOptions(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "a", "a=", "a=host", "a=host:0", "a=:1", "a=0.0.0.0:1", "a=[::]:1", "=h:1", "a/b=h:1", "a=h:1,a=h:2", "a=h:1,b=h:1", "a=h:1,", "a=h:70000", "a=h/x:1"} {
		if all, err := etcdnode.ParseCluster(text); err == nil {
			t.Errorf("%q is read as %v", text, all)
		}
	}
	all, err := etcdnode.ParseCluster("a=10.0.0.1:8893, b=[::1]:8893")
	harness.Must(t, err)
	for what, o := range map[string]etcdnode.Options{
		"no certificates":    {Name: "a", Cluster: all},
		"no name":            {Cluster: all},
		"not this node":      {Name: "c", Cluster: all, Cert: "c", Key: "k", CA: "a"},
		"some certificates":  {Name: "a", Cluster: all, Cert: "c"},
		"both":               {Name: "a", Cluster: all, Join: "h:1", Cert: "c", Key: "k", CA: "a"},
		"no address to join": {Name: "a", Join: "h"},
		"joins without":      {Name: "a", Join: "h:1"},
	} {
		if o.Check() == nil {
			t.Errorf("%s: no error", what)
		}
	}
	harness.Must(t, etcdnode.Options{Name: "a", Cluster: all, Cert: "c", Key: "k", CA: "a"}.Check())
	harness.Must(t, etcdnode.Options{Name: "a", Join: "localhost:1"}.Check())
}
