package program_test

import (
	"context"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/tests/harness"
)

// TestProcessors: a server uses one processor while nobody asks for anything, all of them while many callers do, and one again afterwards.
func TestProcessors(t *testing.T) {
	t.Parallel()
	server := fixtures.StartLocket(t, "raft:"+filepath.Join(t.TempDir(), "data"))
	client := server.Client(t)
	await := func(processors int) {
		t.Helper()
		want := fmt.Sprintf("\ngo_sched_gomaxprocs_threads %d\n", processors)
		harness.Until(t, fmt.Sprint(processors, " processors"), func() bool { return strings.Contains(harness.Scrape(t, server), want) })
	}
	await(1)
	ctx, cancel := context.WithCancel(t.Context())
	var callers sync.WaitGroup
	for n := range 64 {
		callers.Go(func() {
			resource := &models.Resource{Key: fmt.Sprint("key ", n), Owner: "me", TypeCode: models.TypeCode_LOCK}
			for ctx.Err() == nil {
				_, err := client.Lock(ctx, &models.LockRequest{Resource: resource, TtlInSeconds: 60})
				if err != nil && ctx.Err() == nil {
					t.Error(err)
				}
			}
		})
	}
	await(runtime.NumCPU())
	cancel()
	callers.Wait()
	await(1)
}
