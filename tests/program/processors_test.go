package program_test

import (
	"context"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/tests/harness"
)

// TestProcessors: a server uses one processor while nobody asks for anything, all of them while many callers do, and one again afterwards.
func TestProcessors(t *testing.T) {
	t.Parallel()
	server := fixtures.StartLocket(t, "raft:"+filepath.Join(t.TempDir(), "data"))
	client := server.Client(t)
	await := func(what string, one bool) {
		t.Helper()
		harness.Until(t, what, func() bool {
			return strings.Contains(harness.Scrape(t, server), "\ngo_sched_gomaxprocs_threads 1\n") == one
		})
	}
	await("one processor while nobody asks", true)
	ctx, cancel := context.WithCancel(t.Context())
	var callers sync.WaitGroup
	for n := range 64 {
		callers.Go(func() {
			resource := &models.Resource{Key: fmt.Sprint("key ", n), Owner: "me", TypeCode: models.TypeCode_LOCK}
			for ctx.Err() == nil {
				_, err := client.Lock(ctx, &models.LockRequest{Resource: resource, TtlInSeconds: 60})
				if code := status.Code(err); code != codes.OK && code != codes.Unavailable && ctx.Err() == nil { // too much to do is no fault
					t.Error(err)
				}
			}
		})
	}
	await("all processors while many ask", runtime.NumCPU() == 1)
	cancel()
	callers.Wait()
	await("one processor afterwards", true)
}
