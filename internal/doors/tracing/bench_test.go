package tracing

import (
	"context"
	"testing"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/locket-service/locket/internal/rules/claim"
	"github.com/locket-service/locket/internal/service/committer"
)

// BenchmarkTransaction measures what tracing costs the goroutine that commits, for a traced and for an untraced
// command.
func BenchmarkTransaction(b *testing.B) {
	for name, sampler := range map[string]sdktrace.Sampler{"sampled": sdktrace.AlwaysSample(), "not sampled": sdktrace.NeverSample()} {
		b.Run(name, func(b *testing.B) {
			t := newTracing(sdktrace.WithSampler(sampler), sdktrace.WithBatcher(discard{}))
			ctx, span := t.tracer.Start(context.Background(), "call")
			defer span.End()
			now := time.Now()
			tx := committer.Transaction{Begin: now, End: now, Commands: []committer.Command{{Context: ctx, Queued: now, Claim: &claim.Claim{ID: "a", Status: claim.Active}}}}
			b.ReportAllocs()
			for b.Loop() {
				t.Transaction(tx)
			}
		})
	}
}

type discard struct{}

func (discard) ExportSpans(context.Context, []sdktrace.ReadOnlySpan) error { return nil }
func (discard) Shutdown(context.Context) error                             { return nil }
