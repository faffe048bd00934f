//go:build soak

package replica_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/locket-service/locket/db/dbtest"
	"github.com/locket-service/locket/internal/rules/claim"
)

// TestLargeSnapshotsSoak: where the last snapshot is large, more of the log is made into the next one: all that is live is written again each time.
func TestLargeSnapshotsSoak(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, d, _ := withSnapshots(t)
		defer func() { _ = s.Close() }()
		var made atomic.Int64
		var full atomic.Bool
		d.SetFault(func(operation string) error {
			switch {
			case operation == "rename new":
				made.Add(1)
			case full.Load() && operation == "create new":
				return syscall.ENOSPC
			}
			return nil
		})
		value := strings.Repeat("v", 32<<10)
		lock := func(n int) claim.Acquire {
			return claim.Acquire{ID: fmt.Sprint(n), Resource: fmt.Sprint("r", n), Owner: "o", TTL: time.Hour, Value: value}
		}
		const live = 256 // 8 MiB
		for n := range live {
			dbtest.Do(t, s, lock(n))
		}
		time.Sleep(time.Minute)
		made.Store(0)
		for n := range 64 { // 2 MiB
			again := lock(live + n)
			dbtest.Do(t, s, again)
			dbtest.Do(t, s, claim.End{ID: again.ID})
			time.Sleep(time.Second)
		}
		if n := made.Load(); n == 0 || n > 4 {
			t.Errorf("%d snapshots are made", n)
		}
		full.Store(true)
		for n := range 128 { // 4 MiB
			dbtest.Do(t, s, lock(2*live+n))
		}
		time.Sleep(time.Minute)
		full.Store(false)
		made.Store(0)
		if err := s.Snapshot(); err != nil || made.Load() > 4 {
			t.Errorf("a log that was long is made into %d snapshots: %v", made.Load(), err)
		}
	})
}
