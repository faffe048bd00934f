package program_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/db/replica"
	"github.com/locket-service/locket/db/replica/etcdlog"
	"github.com/locket-service/locket/db/replica/peer"
	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/internal/program/server"
	"github.com/locket-service/locket/tests/harness"
)

// newerServer is a server of a newer program, which knows format 2. It announces itself until the test ends.
func newerServer(t *testing.T, etcd *fixtures.Etcd) {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	store, err := server.OpenCluster(t.Context(), filepath.Join(t.TempDir(), "data"), replica.Options{Log: log, Format: 2}, func() (*replica.Cluster, error) {
		shared, err := etcdlog.Open(etcdlog.Options{Endpoints: etcd.Endpoints(), Log: log})
		if err != nil {
			return nil, err
		}
		peers, err := peer.Listen("127.0.0.1:0", peer.Options{})
		return &replica.Cluster{Log: shared, Peers: peers}, err
	})
	harness.Must(t, err)
	ctx, stop := context.WithCancel(t.Context())
	announce := func() error { return store.Announce(ctx, db.Member{Name: "newer", Host: "here"}, false) }
	harness.Must(t, announce())
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		for every := time.NewTicker(time.Second); ; {
			select {
			case <-ctx.Done():
				return
			case <-every.C:
				_ = announce() // the next one comes soon
			}
		}
	}()
	t.Cleanup(func() {
		stop()
		<-stopped
		harness.Must(t, store.Close())
	})
}

// TestFinalize: an operator has the servers use a newer format, which is refused while a server with an older program runs. Such a program
// does not start afterwards.
func TestFinalize(t *testing.T) {
	t.Parallel()
	etcd := fixtures.NewEtcd(t, fixtures.Etcd34, 1)
	flag := "--etcd=" + etcd.Endpoints()[0]
	older := fixtures.StartLocket(t, harness.OneServer(t), flag)
	newerServer(t, etcd)
	var format struct {
		Used, Newest uint64
		Servers      []struct{ Name string }
	}
	cluster := func(command string) (complaint string, code int) {
		out, complaint, code := harness.RunLocket(t, nil, "cluster", command, flag, "-o", "json")
		if code == 0 {
			harness.Must(t, json.Unmarshal([]byte(out), &format))
		}
		return complaint, code
	}
	harness.Until(t, "announcement of the older server", func() bool {
		complaint, code := cluster("status")
		return code == 0 && complaint == "" && len(format.Servers) == 2
	})
	if format.Used != 1 || format.Newest != 1 {
		t.Errorf("the formats are %+v", format)
	}
	complaint, code := cluster("finalize")
	if code != 1 || !strings.Contains(complaint, "not all servers know the newest format, 2: server "+format.Servers[0].Name) {
		t.Errorf("status %d: %s", code, complaint)
	}
	if out, _, _ := harness.RunLocket(t, nil, "cluster", "status", flag); !strings.Contains(out, "the log has format 1; some servers know 2, but "+format.Servers[0].Name) {
		t.Error(out)
	}
	if code, err := older.Terminate(); code != 0 {
		t.Fatal(code, err)
	}
	if complaint, code := cluster("finalize"); code != 0 || format.Used != 2 || format.Newest != 2 {
		t.Errorf("status %d, %+v: %s", code, format, complaint)
	}
	harness.Must(t, older.Launch())
	if code, err := older.Wait(harness.HangTimeout); err != nil || code == 0 || !strings.Contains(older.Log(), "the cluster uses a newer format: 2, and this locket knows up to 1") {
		t.Errorf("an older program ends with %d, %v: %s", code, err, older.Log())
	}
}
