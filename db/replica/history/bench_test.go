package history_test

import (
	"fmt"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/locket-service/locket/db/replica/history"
	"github.com/locket-service/locket/internal/base/ids"
	"github.com/locket-service/locket/internal/rules/claim"
)

// BenchmarkWrite writes claims that have ended, 4000 in a transaction. cpu-ns/op is the processor time of one.
func BenchmarkWrite(b *testing.B) {
	h, err := history.Open(filepath.Join(b.TempDir(), "history.db"), 1, true)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = h.Close() }()
	const many = 4000
	entry, begin := uint64(0), processorTime(b)
	b.ResetTimer()
	for done := 0; done < b.N; done += many {
		claims := make([]history.Ended, 0, many)
		for i := range many {
			if i%50 == 0 {
				entry++
			}
			at := claim.Time(time.Now().UnixMicro())
			claims = append(claims, history.Ended{Entry: entry, Claim: &claim.Claim{
				ID: ids.NewClaim(), Resource: fmt.Sprint("bench-", i%256, "-", i%100), Owner: fmt.Sprint("owner-", i%256), Units: claim.Shared, Type: 1,
				TTL: 10 * time.Second, Status: claim.Released, Enqueued: entry, Token: entry, Version: entry + 1,
				Created: at, Activated: at, Finished: at + 1000,
			}})
		}
		if err := h.Write(claims, entry, nil); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(processorTime(b)-begin)/float64(max(b.N, many)), "cpu-ns/op")
}

func processorTime(b *testing.B) time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
