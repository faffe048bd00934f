package etcdlog_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	etcd "go.etcd.io/etcd/client/v3"

	"github.com/locket-service/locket/db/replica/etcdlog"
	"github.com/locket-service/locket/db/replica/order"
	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/tests/harness"
)

// fill begins the first epoch and appends records.
func fill(t *testing.T, l *etcdlog.Log, first, last uint64) {
	t.Helper()
	if first == 1 {
		must(t, l.Raise(t.Context(), 0, 0, []byte("a")))
	}
	for index := first; index <= last; index++ {
		must(t, l.Append(t.Context(), 1, index, content(index)))
	}
}

// Trim deletes in steps. It compacts etcd, but never one with other data.
func TestTrimCompacts(t *testing.T) {
	t.Parallel()
	e := fixtures.NewEtcd(t, fixtures.Etcd37, 1, fixtures.WithEtcdArgs("--quota-backend-bytes=16777216"))
	o, client := quietly(e), admin(t, e, "", "")
	l := open(t, o)
	compacted := func() bool {
		_, err := client.Get(t.Context(), "x", etcd.WithRev(2))
		return errors.Is(err, rpctypes.ErrCompacted)
	}
	fill(t, l, 1, 1203)
	must(t, errOf(client.Put(t.Context(), "another's", "")), l.Trim(t.Context(), 2))
	if compacted() {
		t.Error("an etcd with other data was compacted")
	}
	l = open(t, o) // that has not seen it
	must(t, errOf(client.Delete(t.Context(), "another's")), l.Trim(t.Context(), 1200))
	if !compacted() {
		t.Error("an etcd with no other data was not compacted")
	}
	if last, err := l.Last(t.Context(), 1200); err != nil || last != 1203 {
		t.Errorf("after the trim the last record is %d, %v", last, err)
	}
	if _, err := l.Last(t.Context(), 1199); !errors.Is(err, order.ErrTrimmed) {
		t.Errorf("after the trim: %v", err)
	}
	testNoSpace(t, l, client)
}

// testNoSpace appends until etcd is full. Then only appends fail, and Check says why.
func testNoSpace(t *testing.T, l *etcdlog.Log, client *etcd.Client) {
	t.Helper()
	ctx, large, last := t.Context(), bytes.Repeat([]byte("x"), order.MaxRecord), uint64(1203)
	report, err := l.Check(ctx)
	if err != nil || !report.Compacts || len(report.Warnings) > 0 {
		t.Errorf("check: %+v, %v", report, err)
	}
	for err == nil {
		if err = l.Append(ctx, 1, last+1, large); err == nil {
			last++
		}
	}
	if !errors.Is(err, order.ErrUnavailable) || !strings.Contains(err.Error(), "etcdctl alarm disarm") || last < 1210 {
		t.Errorf("record %d: %v", last+1, err)
	}
	if index, err := l.Last(ctx, 1203); err != nil || index != last {
		t.Errorf("the last record is %d, %v, want %d", index, err, last)
	}
	if err := l.Beat(ctx, 1); !errors.Is(err, order.ErrUnavailable) {
		t.Errorf("a beat: %v", err)
	}
	must(t, l.Trim(ctx, last))
	report, err = l.Check(ctx)
	if text := strings.Join(report.Warnings, "\n"); err != nil || !strings.Contains(text, "four fifths of its quota, 16 MiB") || !strings.Contains(text, "NOSPACE") {
		t.Errorf("check of a full etcd: %q, %v", report.Warnings, err)
	}
	harness.Eventually(t, func() error { // etcd compacts in the background
		must(t, errOf(client.Defragment(ctx, client.Endpoints()[0])))
		status, err := client.Status(ctx, client.Endpoints()[0])
		if err == nil && status.DbSize > 4<<20 {
			err = fmt.Errorf("etcd still has %d bytes", status.DbSize)
		}
		return err
	})
	must(t, errOf(client.AlarmDisarm(ctx, &etcd.AlarmMember{})), l.Append(ctx, 1, last+1, large))
}
