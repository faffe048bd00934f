package tracing

import (
	"context"
	"testing"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/locket-service/locket/internal/rules/claim"
	"github.com/locket-service/locket/internal/service/committer"
)

// TestWaitEndedElsewhere: if another server has ended a wait, its span has the length of the wait by the database's
// clock, however late this server hears of it.
func TestWaitEndedElsewhere(t *testing.T) {
	t.Parallel()
	spans := tracetest.NewSpanRecorder()
	tracing := newTracing(sdktrace.WithSampler(sdktrace.AlwaysSample()), sdktrace.WithSpanProcessor(spans))
	ctx, call := tracing.tracer.Start(context.Background(), "call")
	defer call.End()
	const made = claim.Time(1_000_000)
	waiting := &claim.Claim{ID: "waiter", Resource: "r", Status: claim.Waiting, Created: made}
	at := time.Now().Add(-time.Hour)
	tracing.Transaction(committer.Transaction{Begin: at, End: at, Commands: []committer.Command{{Context: ctx, Queued: at, Claim: waiting}}})
	granted := *waiting
	granted.Status, granted.Activated = claim.Active, made.Add(3*time.Second)
	tracing.Elsewhere("there", []claim.Transition{{Before: &claim.Claim{ID: "waiter", Status: claim.Waiting}, After: &granted}})
	for _, span := range spans.Ended() {
		if span.Name() == "locket.wait" {
			if took := span.EndTime().Sub(span.StartTime()); took != 3*time.Second || !span.StartTime().Equal(at) {
				t.Errorf("it begins at %v and takes %v, want %v and 3s", span.StartTime(), took, at)
			}
			return
		}
	}
	t.Error("the wait has no span")
}
