package access_test

import (
	"slices"
	"testing"

	"github.com/locket-service/locket/internal/rules/access"
)

// TestView: the view of an identity changes with the rules about it, and with nothing else.
func TestView(t *testing.T) {
	read := func(prefix string) *access.Rule {
		return &access.Rule{Everybody: true, May: access.Read | access.Hold, ResourcePrefix: &prefix}
	}
	of := func(rule *access.Rule, change func(*access.Rule)) *access.Rule {
		change(rule)
		return rule
	}
	alice, group, secret := "alice", "ops", "a/secret"
	rules := []*access.Rule{read("a/"), read("b/")}
	view := func(rules []*access.Rule, right access.Right) uint64 {
		return access.NewRules(rules).View(access.Identity{Name: alice, Groups: []string{group}}, right)
	}
	before := view(rules, access.Read)
	for what, c := range map[string]struct {
		rule    *access.Rule
		differs bool
	}{
		"another right":               {of(read("c/"), func(r *access.Rule) { r.May = access.Hold }), false},
		"another identity":            {of(read("c/"), func(r *access.Rule) { r.Everybody, r.Identity = false, &group }), false},
		"another group":               {of(read("c/"), func(r *access.Rule) { r.Everybody, r.Group = false, &alice }), false},
		"its identity":                {of(read("c/"), func(r *access.Rule) { r.Everybody, r.Identity = false, &alice }), true},
		"its group":                   {of(read("c/"), func(r *access.Rule) { r.Everybody, r.Group = false, &group }), true},
		"a denial":                    {of(read("c/"), func(r *access.Rule) { r.May, r.MayNot = 0, access.Read }), true},
		"a name":                      {of(read(""), func(r *access.Rule) { r.ResourcePrefix, r.Resource = nil, &secret }), true},
		"a name, and not as a prefix": {read(secret), true},
	} {
		more := append(slices.Clone(rules), c.rule)
		after := view(more, access.Read)
		if (after != before) != c.differs {
			t.Errorf("a rule about %s: the view differs: %v", what, after != before)
		}
		slices.Reverse(more)
		if view(more, access.Read) != after {
			t.Errorf("a rule about %s: the order counts", what)
		}
	}
	if view([]*access.Rule{read(secret)}, access.Read) == view([]*access.Rule{of(read(""), func(r *access.Rule) { r.ResourcePrefix, r.Resource = nil, &secret })}, access.Read) {
		t.Error("a name is the same as a prefix")
	}
	if access.NewRules(rules).View(access.Identity{Name: "bob"}, access.Read) == before {
		t.Error("two identities have one view, and other claims of their own")
	}
}

// TestAllowsAny: an identity may do something if a rule allows it on some name, and no other rule about the name denies
// it.
func TestAllowsAny(t *testing.T) {
	may := func(right access.Right, prefix string) *access.Rule {
		return &access.Rule{Everybody: true, May: right, ResourcePrefix: &prefix}
	}
	mayOne := func(right access.Right, name string) *access.Rule {
		return &access.Rule{Everybody: true, May: right, Resource: &name}
	}
	mayNot := func(right access.Right, prefix string) *access.Rule {
		return &access.Rule{Everybody: true, MayNot: right, ResourcePrefix: &prefix}
	}
	mayNotOne := func(right access.Right, name string) *access.Rule {
		return &access.Rule{Everybody: true, MayNot: right, Resource: &name}
	}
	for _, c := range []struct {
		rules []*access.Rule
		want  bool
	}{
		{nil, false},
		{[]*access.Rule{may(access.Read, "")}, true},
		{[]*access.Rule{mayOne(access.Revoke, "a")}, true},
		{[]*access.Rule{mayNot(access.Read, "")}, false},
		{[]*access.Rule{may(access.Read, ""), mayNot(access.Read, "")}, false},
		{[]*access.Rule{may(access.Read, ""), mayNot(access.Read, "a/")}, true},
		{[]*access.Rule{may(access.Read|access.Hold, ""), mayNot(access.Read, "")}, true},
		{[]*access.Rule{may(access.Read, "a/"), mayNot(access.Read, "")}, true},
		{[]*access.Rule{mayOne(access.Read, "a"), mayNot(access.Read, "")}, true},
		{[]*access.Rule{mayOne(access.Read, "a"), mayNotOne(access.Read, "a")}, false},
		{[]*access.Rule{may(access.Read, "a"), mayNotOne(access.Read, "a")}, true}, // on "ab"
	} {
		rules := access.NewRules(c.rules)
		if got := rules.AllowsAny(access.Identity{Name: "alice"}); got != c.want {
			t.Errorf("%v: %t", c.rules, got)
		}
		if rules.AllowsAny(access.Identity{Name: access.Anonymous}) {
			t.Errorf("%v: what everybody may, anonymous callers may not", c.rules)
		}
	}
}
