package access_test

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/locket-service/locket/internal/rules/access"
)

// TestLongListsDecideAlike: long lists of rules decide as short ones. Additional rules about other callers change
// nothing.
func TestLongListsDecideAlike(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var rules []*access.Rule
		for range rapid.IntRange(0, 60).Draw(t, "rules") {
			r := drawRule(t)
			r.Line = len(rules) + 1
			rules = append(rules, r)
		}
		id := access.Identity{Name: rapid.SampledFrom([]string{"", "a", "ab", "abc", access.Anonymous}).Draw(t, "identity")}
		id.Groups = rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "c"}), 0, 4).Draw(t, "groups")
		right := rapid.SampledFrom([]access.Right{access.Read, access.Hold}).Draw(t, "right")
		name := rapid.StringOfN(rapid.RuneFrom([]rune("xy")), 0, 3, -1).Draw(t, "name")
		rs, other := access.NewRules(rules), "nobody"
		long := slices.Clone(rules)
		for i := range 60 {
			long = append(long, &access.Rule{Identity: &other, MayNot: access.Read | access.Hold, ResourcePrefix: &name, Line: len(rules) + i + 1})
		}
		much := access.NewRules(long)

		want := decided(rules, id, right, name)
		for _, rs := range []*access.Rules{rs, much} {
			if got := rs.Decide(id, right, name); got != want {
				t.Errorf("%+v, want %+v", got, want)
			}
			if got := rs.Allows(id, right, name); got != want.Allowed {
				t.Errorf("allowed: %t", got)
			}
		}
		if rs.View(id, right) != much.View(id, right) || rs.AllowsAll(id, right, name) != much.AllowsAll(id, right, name) {
			t.Error("the rules about another identity count")
		}
	})
}

func drawRule(t *rapid.T) *access.Rule {
	r := &access.Rule{}
	who := rapid.SampledFrom([]string{"", "a", "ab", "b", access.Anonymous}).Draw(t, "who")
	switch rapid.IntRange(0, 3).Draw(t, "kind") {
	case 0:
		r.Identity = &who
	case 1:
		r.IdentityPrefix = &who
	case 2:
		r.Group = &who
	default:
		r.Everybody = true
	}
	rights := rapid.SampledFrom([]access.Right{access.Read, access.Hold, access.Read | access.Hold}).Draw(t, "rights")
	if rapid.Bool().Draw(t, "may not") {
		r.MayNot = rights
	} else {
		r.May = rights
	}
	name := rapid.StringOfN(rapid.RuneFrom([]rune("xy")), 0, 3, -1).Draw(t, "target")
	if rapid.Bool().Draw(t, "exact") {
		r.Resource = &name
	} else {
		r.ResourcePrefix = &name
	}
	return r
}

// decided looks at every rule.
func decided(rules []*access.Rule, id access.Identity, right access.Right, name string) access.Decision {
	best, specific := (*access.Rule)(nil), -1
	for _, r := range rules {
		if (r.May|r.MayNot)&right == 0 || !r.About(id) {
			continue
		}
		of := len(r.Target())
		switch {
		case r.Resource != nil && *r.Resource != name, !strings.HasPrefix(name, r.Target()):
			continue
		case r.Resource != nil:
			of = len(name) + 1
		}
		if of > specific || of == specific && best.MayNot == 0 && r.MayNot != 0 {
			best, specific = r, of
		}
	}
	if best == nil {
		return access.Decision{}
	}
	return access.Decision{Allowed: best.May != 0, Rule: best.String(), Line: best.Line}
}
