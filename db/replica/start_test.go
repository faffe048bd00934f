package replica_test

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/db/backup"
	"github.com/locket-service/locket/db/replica"
	"github.com/locket-service/locket/internal/base/ids"
	"github.com/locket-service/locket/internal/rules/claim"
)

// BenchmarkStart reports what a start with a million live claims takes, each of a resource of its own: time of the processor, and time; how much
// memory the process has then, and had at most; and how much more it has had at most when all of them have been listed, page by page.
func BenchmarkStart(b *testing.B) {
	const claims = 1_000_000
	folder := filepath.Join(b.TempDir(), "data")
	if err := replica.Fill(folder, func(to backup.Sink) error { return giveClaims(to, claims) }); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		debug.FreeOSMemory()
		before := memory(b, "VmRSS")
		resetPeak(b)
		begin, used := time.Now(), processorTime(b)
		s, err := replica.OpenWith(folder, replica.Options{})
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric((processorTime(b) - used).Seconds(), "processor-s/start")
		b.ReportMetric(time.Since(begin).Seconds(), "s/start") // real time: what is measured
		b.ReportMetric(memory(b, "VmHWM")-before, "MB/peak")
		debug.FreeOSMemory()
		started := memory(b, "VmRSS")
		b.ReportMetric(started-before, "MB/started")
		resetPeak(b)
		if n := list(b, s); n != claims {
			b.Fatalf("%d claims are listed, want %d", n, claims)
		}
		b.ReportMetric(memory(b, "VmHWM")-started, "MB/list")
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

// TestMemoryOfFill: what a folder is filled with is not kept in memory, however large the claims are that have ended.
func TestMemoryOfFill(t *testing.T) {
	const claims, bytes = 400, 128 << 10
	inUse := func() int {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int(m.HeapAlloc)
	}
	took := 0
	err := replica.Fill(filepath.Join(t.TempDir(), "data"), func(to backup.Sink) error {
		if err := to.Begin(backup.Head{Lease: 1}); err != nil {
			return err
		}
		before := inUse()
		for n := range claims {
			err := to.Ended(&claim.Claim{ID: fmt.Sprint(n), Resource: "r", Status: claim.Released, Value: strings.Repeat("v", bytes), Finished: 1})
			if err != nil {
				return err
			}
		}
		took = inUse() - before
		return to.End(backup.Head{Lease: 1})
	})
	if err != nil {
		t.Fatal(err)
	}
	if took > claims*bytes/2 {
		t.Errorf("%d bytes are kept of %d", took, claims*bytes)
	}
}

// giveClaims gives a sink a number of active claims.
func giveClaims(to backup.Sink, claims int) error {
	wall := claim.Time(time.Now().UnixMicro())
	head := backup.Head{Engine: "embedded", Taken: wall, Lease: wall, Floor: uint64(wall)}
	if err := to.Begin(head); err != nil {
		return err
	}
	for i := range claims {
		version := uint64(wall) + uint64(i)
		err := to.Claim(&claim.Claim{
			ID: ids.NewClaim(), Resource: service(i), Owner: fmt.Sprint("owner-", i%1000), TTL: time.Hour, Status: claim.Active,
			Enqueued: version, Token: version, Version: version, Created: claim.Time(version), Activated: claim.Time(version), Deadline: wall.Add(time.Hour) + claim.Time(i*7919%claims),
		})
		if err != nil {
			return err
		}
	}
	for i := range claims {
		if err := to.Row(backup.Row{Row: claim.Row{Resource: service(i), Version: uint64(wall) + uint64(i)}}); err != nil {
			return err
		}
	}
	return to.End(head)
}

func service(i int) string { return fmt.Sprintf("service/%07d", i) } // in the order of names

// list reads all live claims, a page at a time, and returns how many there are.
func list(b *testing.B, s *replica.Store) (n int) {
	b.Helper()
	for page := (db.Page{Limit: 1000}); ; {
		found, err := s.Live(b.Context(), db.LiveOf{}, page)
		if err != nil {
			b.Fatal(err)
		}
		if len(found) == 0 {
			return n
		}
		n += len(found)
		page.After = found[len(found)-1].ID
	}
}

// memory returns a figure of this process's memory from Linux, in MB.
func memory(b *testing.B, what string) (mb float64) {
	b.Helper()
	f, err := os.Open("/proc/self/status")
	if err != nil {
		b.Fatal("the memory of a process is known on Linux alone: ", err)
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if value, is := strings.CutPrefix(lines.Text(), what+":"); is {
			var kb float64
			if _, err := fmt.Sscan(value, &kb); err != nil {
				b.Fatal(value, err)
			}
			return kb / 1000
		}
	}
	b.Fatal("unknown: ", what)
	return 0
}

// resetPeak resets the process's peak memory to its current memory.
func resetPeak(b *testing.B) {
	b.Helper()
	if err := os.WriteFile("/proc/self/clear_refs", []byte("5"), 0); err != nil {
		b.Fatal(err)
	}
}
