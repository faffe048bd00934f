package codec_test

import (
	"testing"
	"time"

	"github.com/locket-service/locket/db/codec"
	"github.com/locket-service/locket/internal/rules/claim"
)

// BenchmarkClaim codes an uncontended lock.
func BenchmarkClaim(b *testing.B) {
	x := claim.Claim{
		ID: "06hn3v5k8m2q7w9x1y3z5a7b9c", Resource: "service/123456", Owner: "owner-123", TTL: time.Hour, Status: claim.Active,
		Enqueued: uint64(wall) + 5, Token: uint64(wall) + 5, Version: uint64(wall) + 5, Deadline: lease + 3600e6, Created: wall, Activated: wall,
	}
	w := writer(nil)
	w.Claim(&x)
	data := w.Buffer()
	b.Run("write", func(b *testing.B) {
		buf := make([]byte, 0, 1000)
		for b.Loop() {
			w := writer(buf)
			w.Claim(&x)
		}
		b.ReportMetric(float64(len(data)), "bytes")
	})
	b.Run("read", func(b *testing.B) {
		var got claim.Claim
		for b.Loop() {
			r := reader(data)
			r.Sharing(true)
			r.Claim(&got)
		}
	})
	rest := codec.Writer(nil)
	rest.Rest(&x)
	b.Run("rest", func(b *testing.B) {
		var got claim.Claim
		for b.Loop() {
			r := reader(rest.Buffer())
			r.Sharing(true)
			r.Rest(&got)
		}
	})
}
