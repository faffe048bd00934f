package sqlite

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/claim"
)

// BenchmarkBesideLists commits while 48 callers list claims of a rare status in a history of
// 300,000. It reports how long commits and lists take at worst but for one in a hundred.
func BenchmarkBesideLists(b *testing.B) {
	const history, callers = 300_000, 48
	s, _ := openNew(b)
	defer func() { _ = s.Close() }()
	fill := fmt.Sprintf(`WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT %d)
		INSERT INTO claims (id, resource, owner, mode, type, ttl, user_data, value, status, position, token,
			version, deadline, created, activated, finished, reason) SELECT hex(randomblob(16)), 'r' || i, 'o', 0, 0, 1, NULL, '', 3, i, i, i, i, i, i, i, '' FROM n`, history)
	if err := sqlitex.ExecuteTransient(s.conn, fill, nil); err != nil {
		b.Fatal(err)
	}
	for name, f := range map[string]db.Filter{
		"status":   {Statuses: []claim.Status{claim.Aborted}, Limit: 11},
		"duration": {MinActive: new(time.Duration), Mode: ptr(claim.Shared), Limit: 11},
	} {
		b.Run(name, func(b *testing.B) {
			ctx, cancel := context.WithCancel(b.Context())
			var (
				group sync.WaitGroup
				mu    sync.Mutex
				lists []time.Duration
			)
			for range callers {
				group.Go(func() {
					for ctx.Err() == nil {
						begin := time.Now()
						_, _, _ = s.List(ctx, f)
						mu.Lock()
						lists = append(lists, time.Since(begin)) // real time: a benchmark
						mu.Unlock()
					}
				})
			}
			time.Sleep(500 * time.Millisecond) // real time: a benchmark
			var commits, reads []time.Duration
			n := 0
			for b.Loop() {
				n++
				begin := time.Now()
				if err := s.create(int(time.Now().UnixNano())); err != nil {
					b.Fatal(err)
				}
				commits = append(commits, time.Since(begin)) // real time: a benchmark
				begin = time.Now()
				if _, _, err := s.Get(ctx, "none"); !errors.Is(err, claim.ErrNotFound) {
					b.Fatal(err)
				}
				reads = append(reads, time.Since(begin)) // real time: a benchmark
			}
			cancel()
			group.Wait()
			b.ReportMetric(worst(commits), "commit-ms")
			b.ReportMetric(worst(reads), "get-ms")
			b.ReportMetric(worst(lists), "list-ms")
			b.ReportMetric(float64(len(lists)), "lists")
		})
	}
}

func ptr[V any](v V) *V { return &v }

// worst returns the 99th percentile in milliseconds.
func worst(times []time.Duration) float64 {
	slices.Sort(times)
	return float64(times[len(times)*99/100].Microseconds()) / 1000
}
