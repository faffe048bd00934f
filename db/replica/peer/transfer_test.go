package peer_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/db/backup"
	"github.com/locket-service/locket/db/replica"
	"github.com/locket-service/locket/db/replica/disk/disktest"
	"github.com/locket-service/locket/db/replica/order/ordertest"
	"github.com/locket-service/locket/db/replica/snapshot"
	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/internal/rules/claim"
	"github.com/locket-service/locket/tests/harness"
)

// source returns a store that was filled with live claims and claims that have ended, and its folder.
func source(t *testing.T, live, ended int) (s *replica.Store, folder string) {
	t.Helper()
	folder = filepath.Join(t.TempDir(), "data")
	value := strings.Repeat("v", 8<<10)
	made := func(n int, status claim.Status) *claim.Claim {
		id := fmt.Sprintf("%05d", n)
		return &claim.Claim{
			ID: id, Resource: id, TTL: time.Hour, Value: value, Status: status,
			Enqueued: 1, Token: 1, Version: 1, Created: 1, Activated: 1, Deadline: claim.Time(time.Hour.Microseconds()),
		}
	}
	harness.Must(t, replica.Fill(folder, func(to backup.Sink) error {
		head := backup.Head{Lease: 1, Floor: 10}
		err := to.Begin(head)
		for n := range live {
			err = errors.Join(err, to.Claim(made(n, claim.Active)))
		}
		for n := range live {
			err = errors.Join(err, to.Row(backup.Row{Row: claim.Row{Resource: made(n, claim.Active).Resource, Version: 1}}))
		}
		for n := range ended {
			err = errors.Join(err, to.Ended(made(live+n, claim.Released)))
		}
		return errors.Join(err, to.End(head))
	}))
	s, err := replica.OpenWith(folder, replica.Options{Copied: true})
	harness.Must(t, err)
	t.Cleanup(func() { harness.Must(t, s.Close()) })
	return s, folder
}

// logOf returns the id of the log of a folder.
func logOf(t *testing.T, folder string) (id uint64) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(folder, "node"))
	harness.Must(t, err)
	_, hex, _ := strings.Cut(string(text), "\nlog ")
	_, err = fmt.Sscanf(hex, "%x", &id)
	harness.Must(t, err)
	return id
}

// newMember makes the folder of a server of a cluster that has nothing yet.
func newMember(t *testing.T, folder string, log uint64) {
	t.Helper()
	shared := ordertest.New()
	_, err := shared.Open().Cluster(t.Context(), log, 0)
	harness.Must(t, err)
	s, err := replica.OpenWith(folder, replica.Options{Cluster: &replica.Cluster{Log: shared.Open(), Peers: caller(t)}})
	harness.Must(t, err)
	harness.Must(t, s.Close())
}

// contents returns a text that is the same for folders with the same contents.
func contents(t *testing.T, folder string) string {
	t.Helper()
	k := backup.NewChecker()
	harness.Must(t, replica.Dump(folder, k))
	if k.Found > 0 {
		t.Errorf("%s: %v", folder, k.Problems)
	}
	return fmt.Sprint(k.State(), " ", k.Active, " active, ", k.History, " ended")
}

// TestTransfer: a server gets the snapshot and the history of another one over connections that are lost after each part.
// In the end both have the same.
func TestTransfer(t *testing.T) {
	s, folder := source(t, 150, 500)
	served, p := serve(t, s), caller(t)
	proxy := fixtures.NewProxy(t, served.Address())
	about, to, log := behind(t, served.About(), proxy.Addr()), filepath.Join(t.TempDir(), "to"), logOf(t, folder)
	newMember(t, to, log)
	parts := 0
	cut := func(part func([]byte) error) func([]byte) error {
		return func(data []byte) error {
			if err := part(data); err != nil {
				return err
			}
			parts++
			proxy.Cut()
			proxy.Restore()
			return nil
		}
	}
	again := func(receive func() error) {
		t.Helper()
		for parts = 0; ; {
			err := receive()
			if err == nil {
				return
			}
			if parts > 100 || !errors.Is(err, db.ErrOutcomeUnknown) && !errors.Is(err, db.ErrUnavailable) {
				t.Fatal(err)
			}
		}
	}
	again(func() error {
		return replica.ReceiveSnapshot(to, log, 0, func(request []byte, part func([]byte) error) error {
			return p.Snapshot(t.Context(), about, request, cut(part))
		})
	})
	if parts < 3 {
		t.Errorf("the snapshot had only %d parts", parts)
	}
	received, err := replica.OpenWith(to, replica.Options{Copied: true})
	harness.Must(t, err)
	again(func() error {
		return received.ReceiveHistory(t.Context(), func(request []byte, part func([]byte) error) error {
			return p.History(t.Context(), about, request, cut(part))
		})
	})
	if parts < 3 || !received.HistoryComplete() {
		t.Errorf("the history had only %d parts", parts)
	}
	harness.Must(t, received.Close())
	if got, want := contents(t, to), contents(t, folder); got != want {
		t.Errorf("the folder has %s, and the other one %s", got, want)
	}
}

// TestMemoryOfTransfer: a large snapshot passes through little memory.
func TestMemoryOfTransfer(t *testing.T) {
	from, to := disktest.Folder(t.TempDir()), disktest.Folder(t.TempDir())
	w, err := snapshot.NewWriter(from, snapshot.Meta{Log: 1 << 40, Index: 7}, 1)
	harness.Must(t, err)
	value := strings.Repeat("v", 64<<10)
	for n := range large / len(value) {
		harness.Must(t, w.Claim(&claim.Claim{ID: fmt.Sprintf("%09d", n), Resource: fmt.Sprint(n), Status: claim.Active, Value: value}))
	}
	harness.Must(t, w.End(1, 0))
	h := &handler{parts: func(_ context.Context, request []byte, send func([]byte) error) error {
		return snapshot.Send(from, request, send)
	}}
	about, p := serve(t, h).About(), caller(t)
	inUse := func() uint64 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	runtime.GC()
	before, most, parts := inUse(), uint64(0), 0
	m, err := snapshot.Receive(to, 0, func(request []byte, part func([]byte) error) error {
		return p.Snapshot(t.Context(), about, request, func(data []byte) error {
			if parts++; parts%16 == 0 {
				most = max(most, inUse())
			}
			return part(data)
		})
	})
	if err != nil || m.Index != 7 {
		t.Fatal(err)
	}
	took := int(most) - int(before)
	if t.Logf("%d bytes for a snapshot of %d", took, m.Bytes); took > large/3 {
		t.Errorf("%d bytes for a snapshot of %d", took, m.Bytes)
	}
}
