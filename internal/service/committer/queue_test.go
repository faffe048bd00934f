package committer

import (
	"context"
	"testing"

	"github.com/locket-service/locket/internal/rules/claim"
)

// TestTakeAfterTheContext: a request is left out when its caller no longer waits. The end of its context does not end
// one that was submitted.
func TestTakeAfterTheContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	q := newQueue(10, func(claim.Acquire) bool { return false })
	waits := &request{ctx: ctx, cmd: claim.Renew{ID: "waits"}}
	submitted := &request{ctx: ctx, cmd: claim.Renew{ID: "submitted"}, then: func(Result, error) {}}
	for _, r := range []*request{waits, submitted} {
		if err := q.add(r); err != nil {
			t.Fatal(err)
		}
	}
	if batch := q.take(10); len(batch) != 1 || batch[0] != submitted || q.len() != 0 {
		t.Errorf("the batch has %d requests, and %d are left; want the submitted one alone", len(batch), q.len())
	}
}
