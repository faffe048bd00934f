package replica_test

import (
	"fmt"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/db/dbtest"
	"github.com/locket-service/locket/db/replica"
	"github.com/locket-service/locket/internal/base/ids"
	"github.com/locket-service/locket/internal/rules/claim"
)

// BenchmarkMillion makes a million live claims, each of a resource of its own, and reports how much of the heap each one
// takes, how much time of the processor a start takes, from the log and from a snapshot, a collection, and a list of all of them.
func BenchmarkMillion(b *testing.B) {
	const claims, batch = 1_000_000, 500
	folder := filepath.Join(b.TempDir(), "data")
	open := func() *replica.Store {
		s, err := replica.OpenWith(folder, replica.Options{})
		if err != nil {
			b.Fatal(err)
		}
		return s
	}
	heap := func() float64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return float64(m.HeapAlloc)
	}
	empty := heap()
	s := open()
	for from := 0; from < claims; from += batch {
		commands := make([]claim.Command, batch)
		for i := range commands {
			commands[i] = claim.Create{ID: ids.NewClaim(), Resource: fmt.Sprint("service/", from+i), Owner: fmt.Sprint("owner-", (from+i)%1000), TTL: time.Hour}
		}
		dbtest.Do(b, s, commands...)
	}
	b.ReportMetric((heap()-empty)/claims, "B/claim")
	start := func(unit string) {
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
		s = nil
		runtime.GC()
		begin := processorTime(b)
		s = open()
		b.ReportMetric((processorTime(b) - begin).Seconds(), unit)
	}
	start("s/start")
	if err := s.Snapshot(); err != nil {
		b.Fatal(err)
	}
	start("s/start-snapshot")
	b.ReportMetric((heap()-empty)/claims, "B/claim-started")
	begin := processorTime(b)
	runtime.GC()
	b.ReportMetric(float64((processorTime(b) - begin).Milliseconds()), "ms/GC")
	begin = processorTime(b)
	list(b, s)
	b.ReportMetric((processorTime(b) - begin).Seconds(), "s/list")
	if err := s.Close(); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkLongLine reads the first page of the live claims of a resource with 100,000 waiting claims: no commit is
// decided in the meantime.
func BenchmarkLongLine(b *testing.B) {
	const claims, batch = 100_000, 500
	s, err := replica.OpenWith(filepath.Join(b.TempDir(), "data"), replica.Options{})
	if err != nil {
		b.Fatal(err)
	}
	resource := "r"
	for range claims / batch {
		commands := make([]claim.Command, batch)
		for i := range commands {
			commands[i] = claim.Create{ID: ids.NewClaim(), Resource: resource, TTL: time.Hour}
		}
		dbtest.Do(b, s, commands...)
	}
	for b.Loop() {
		if page, err := s.Live(b.Context(), db.LiveOf{Resource: &resource}, db.Page{Limit: 256}); err != nil || len(page) != 256 {
			b.Fatal(len(page), err)
		}
	}
	if err := s.Close(); err != nil {
		b.Fatal(err)
	}
}

// processorTime is the processor time of this process: on a busy machine it says more than elapsed time.
func processorTime(b *testing.B) time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
