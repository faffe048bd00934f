//go:build soak

package etcdlog_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/locket-service/locket/db/replica/order"
	"github.com/locket-service/locket/fixtures"
)

func init() { fixtures.RunOnDisk() }

// TestSoakSlowDisk: where each sync of etcd's leader takes almost half a second, a record is appended within the two seconds that a decider waits.
func TestSoakSlowDisk(t *testing.T) {
	disks := []*fixtures.Disk{fixtures.NewDisk(t), fixtures.NewDisk(t), fixtures.NewDisk(t)}
	e := fixtures.NewEtcd(t, fixtures.Etcd37, 3, fixtures.WithEtcdDisks(disks))
	leader := rank(t, e)[0]
	l := open(t, first(quietly(e), leader))
	must(t, l.Raise(t.Context(), 0, 0, []byte("a")))
	disks[slices.Index(e.Members, leader)].Turn(fixtures.DiskSlower)
	slowest, index := time.Duration(0), uint64(0)
	for _, bytes := range []int{300, 60_000, order.MaxRecord} {
		for range 10 {
			index++
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			begin := time.Now() // real time: it is printed
			if err := l.Append(ctx, 1, index, []byte(strings.Repeat("r", bytes))); err != nil {
				t.Errorf("append %d bytes: %v", bytes, err)
			}
			cancel()
			slowest = max(slowest, time.Since(begin)) // real time: it is printed
		}
		t.Logf("the slowest append of %d bytes, or fewer, took %v", bytes, slowest.Round(time.Millisecond))
	}
}
