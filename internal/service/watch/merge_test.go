package watch

import (
	"cmp"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/rules/claim"
)

// TestMerge: merged commits of servers whose clocks differ come after all commits that they build on; where the clocks
// agree, they are in the order of time.
func TestMerge(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		servers := rapid.IntRange(1, 4).Draw(t, "servers")
		skew := rapid.SliceOfN(rapid.IntRange(-50, 50), servers, servers).Draw(t, "skew")
		exact := rapid.Bool().Draw(t, "exact")
		var commits []db.Commit
		numbers, versions := make([]uint64, servers), make(map[string]uint64)
		for now := range rapid.IntRange(0, 60).Draw(t, "commits") {
			s := rapid.IntRange(0, servers-1).Draw(t, "server")
			numbers[s]++
			at := now
			if !exact {
				at += skew[s]
			}
			c := db.Commit{Server: fmt.Sprint(s), N: numbers[s], At: claim.Time(at)}
			for range rapid.IntRange(0, 3).Draw(t, "changes") {
				resource := rapid.SampledFrom([]string{"a", "b", "c", "d", "e", "f"}).Draw(t, "resource")
				versions[resource] += rapid.Uint64Range(1, 5).Draw(t, "step")
				c.Changes = append(c.Changes, claim.Transition{After: &claim.Claim{Resource: resource, Version: versions[resource]}})
			}
			commits = append(commits, c)
		}
		slices.SortStableFunc(commits, func(a, b db.Commit) int { return cmp.Compare(a.Server, b.Server) })
		merged := merge(commits)
		if len(merged) != len(commits) {
			t.Fatalf("%d commits became %d", len(commits), len(merged))
		}
		last, seen, at := map[string]uint64{}, map[string]uint64{}, claim.Time(-100)
		for _, c := range merged {
			if c.N != last[c.Server]+1 {
				t.Errorf("commit %d of %s after %d", c.N, c.Server, last[c.Server])
			}
			last[c.Server] = c.N
			if exact && c.At < at {
				t.Errorf("time %d after %d", c.At, at)
			}
			at = c.At
			for _, change := range c.Changes {
				if change.After.Version <= seen[change.After.Resource] {
					t.Errorf("version %d of %s after %d", change.After.Version, change.After.Resource, seen[change.After.Resource])
				}
				seen[change.After.Resource] = change.After.Version
			}
		}
	})
}
