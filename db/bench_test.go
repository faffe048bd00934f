package db_test

import (
	"testing"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/rules/claim"
)

// BenchmarkRecord encodes the record of a commit of 512 commands, half of them locks and half of them
// releases. The result is for each transition.
func BenchmarkRecord(b *testing.B) {
	var transitions []claim.Transition
	for range 256 {
		held, released := recordClaim("06hn3v5k8m2q7w9x1y3z5a7b9c", claim.Active), recordClaim("06hn3v5k8m2q7w9x1y3z5a7b9c", claim.Released)
		made := recordClaim("06hn3v5k8m2q7w9x1y3z5a7b9c", claim.Waiting)
		transitions = append(transitions, claim.Transition{After: made}, claim.Transition{Before: made, After: held}, claim.Transition{Before: held, After: released})
	}
	record := db.AppendRecord(nil, recordTime, transitions)
	b.Run("write", func(b *testing.B) {
		for b.Loop() {
			db.AppendRecord(nil, recordTime, transitions)
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/512, "ns/transition")
		b.ReportMetric(float64(len(record))/512, "bytes/transition")
	})
	b.Run("read", func(b *testing.B) {
		for b.Loop() {
			if _, _, err := db.ReadRecord(record); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/512, "ns/transition")
	})
}
