package db_test

import (
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/rules/claim"
)

// TestPast: however the clock steps between its readings, no row that is younger than the age counts as old; and
// when the clock does not step, rows that are much older do.
func TestPast(t *testing.T) {
	const age = 10 * time.Minute
	rapid.Check(t, func(rt *rapid.T) {
		synctest.Test(t, func(*testing.T) {
			past, begin := db.NewPast(age), time.Now()
			var step time.Duration
			clock := func() claim.Time { return start.Add(time.Since(begin) + step) }
			type row struct {
				at      claim.Time
				written time.Time
			}
			var rows []row
			for range rapid.IntRange(1, 100).Draw(rt, "readings") {
				time.Sleep(time.Duration(rapid.Int64Range(0, int64(time.Minute)).Draw(rt, "pause")))
				rows = append(rows, row{clock(), time.Now()})
				if rapid.IntRange(0, 9).Draw(rt, "steps") == 0 {
					step += time.Duration(rapid.Int64Range(-int64(30*time.Hour), int64(30*time.Hour)).Draw(rt, "step"))
					rows = append(rows, row{clock(), time.Now()})
				}
				past.Saw(clock())
				for _, r := range rows {
					if old := time.Since(r.written); r.at < past.Before() && old < age {
						rt.Fatalf("what was written %s ago counts as old", old)
					}
				}
			}
			for range 20 {
				time.Sleep(time.Minute)
				past.Saw(clock())
			}
			if least := clock().Add(-age - age/16 - time.Minute - db.MaxSkew); past.Before() < least {
				rt.Fatalf("what is %s old does not count as old", clock().Sub(past.Before()))
			}
		})
	})
}
