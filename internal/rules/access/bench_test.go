package access_test

import (
	"fmt"
	"testing"

	"github.com/locket-service/locket/internal/rules/access"
)

// BenchmarkAllows decides by few rules, and by as many as a file holds, which are all about the same prefix, for a caller with many groups.
func BenchmarkAllows(b *testing.B) {
	caller := access.Identity{Name: "alice"}
	for i := range 100 {
		caller.Groups = append(caller.Groups, fmt.Sprintf("own group %d", i))
	}
	for _, n := range []int{3, 60_000} {
		b.Run(fmt.Sprint("rules=", n), func(b *testing.B) {
			prefix, rules := "jobs/", make([]*access.Rule, n)
			for i := range rules {
				group := fmt.Sprintf("other group %d", i)
				rules[i] = &access.Rule{Group: &group, May: access.Hold, ResourcePrefix: &prefix, Line: i + 1}
			}
			rs := access.NewRules(rules)
			for b.Loop() {
				if rs.Allows(caller, access.Hold, "jobs/nightly") {
					b.Fatal("it is allowed")
				}
			}
		})
	}
}
