package access_test

import (
	"context"
	"testing"

	"github.com/locket-service/locket/internal/rules/access"
)

// TestDetached: a detached context has the current caller, and does not end with its parent.
func TestDetached(t *testing.T) {
	name := "alice"
	caller := func() access.Caller { return access.Caller{Identity: access.Identity{Name: name}} }
	ctx, cancel := context.WithCancel(access.WithCaller(t.Context(), caller))
	detached := access.Detached(ctx)
	name = "bob"
	cancel()
	if got := access.CallerOf(detached).Name; got != "bob" || detached.Err() != nil {
		t.Errorf("the caller is %q, and the context has ended: %v; want bob, and no end", got, detached.Err())
	}
	if got := access.CallerOf(access.Detached(t.Context())); got.Name != "" || got.Rules != nil {
		t.Errorf("without a caller it is %+v", got)
	}
}
