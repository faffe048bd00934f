//go:build chaos

package mysql

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/internal/rules/claim"
)

// TestChaosBesideLists: 48 callers list claims of a rare status in a history of 300,000. Beats and
// commits do not wait for them.
func TestChaosBesideLists(t *testing.T) {
	const callers, seconds = 48, 15
	s := openHasty(t, fixtures.MySQL(t))
	for _, variable := range []string{"cte_max_recursion_depth", "max_recursive_iterations"} { // MySQL's, MariaDB's
		if _, err := s.scanner.Exec("SET SESSION " + variable + " = 100000"); err != nil && !isCode(err, codeUnknownVariable) {
			t.Fatal(err)
		}
	}
	for from := range 30 {
		fill := fmt.Sprintf(`INSERT INTO claims (%s) WITH RECURSIVE n (i) AS (SELECT %d UNION ALL SELECT i + 1 FROM n WHERE i < %d)
			SELECT UUID(), CONCAT('r', i), 'o', 0, 0, 0, 1, NULL, '', 3, i, i, i, i, i + 1, i + 1, i + 1, '' FROM n`, plainColumns, from*10_000, from*10_000+9_999)
		if _, err := s.scanner.Exec(fill); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	for range callers {
		group.Go(func() {
			for ctx.Err() == nil {
				_, _, err := s.List(ctx, db.Filter{Statuses: []claim.Status{claim.Aborted}, Limit: 11})
				if err != nil && ctx.Err() == nil && !errors.Is(err, db.ErrListTooLong) {
					t.Error(err)
				}
			}
		})
	}
	var longestCommit, longestBeat time.Duration
	for begin := time.Now(); time.Since(begin) < seconds*time.Second; time.Sleep(50 * time.Millisecond) {
		start := time.Now()
		if err := s.Beat(t.Context(), false); err != nil {
			t.Errorf("beat: %v", err)
		}
		longestBeat = max(longestBeat, time.Since(start))
		start = time.Now()
		results(t, s, acquires(fmt.Sprint("k", start.UnixNano()))...)
		longestCommit = max(longestCommit, time.Since(start))
	}
	cancel()
	group.Wait()
	t.Logf("a commit took %v at most, a beat %v", longestCommit, longestBeat)
	if limit := 2 * time.Second; longestCommit > limit || longestBeat > limit {
		t.Errorf("a commit took %v, a beat %v", longestCommit, longestBeat)
	}
}
