package access

import (
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
)

// Rule is one rule: its subject, the rights that it allows or denies, and its resources. The tags are the names in a file,
// which package auth reads.
type Rule struct {
	// The subject: exactly one of these is set.
	Identity       *string `yaml:"identity"`
	IdentityPrefix *string `yaml:"identity_prefix"`
	Group          *string `yaml:"group"`
	Everybody      bool    `yaml:"everybody"`
	// One of May and MayNot is not 0.
	May    Right `yaml:"-"`
	MayNot Right `yaml:"-"`
	// The resources: exactly one of these is set.
	Resource       *string `yaml:"resource"`
	ResourcePrefix *string `yaml:"resource_prefix"`
	// Line is the line of the rule in its file, 0 for a rule from no file.
	Line int `yaml:"-"`
}

// About reports whether the rule is about an identity. Anonymous callers have no right that everybody has,
// and every denial for everybody applies to them.
func (r *Rule) About(id Identity) bool {
	switch {
	case id.Name == Anonymous:
		return r.Identity != nil && *r.Identity == Anonymous || r.Everybody && r.MayNot != 0
	case r.Identity != nil:
		return *r.Identity == id.Name
	case r.IdentityPrefix != nil:
		return strings.HasPrefix(id.Name, *r.IdentityPrefix)
	case r.Group != nil:
		return slices.Contains(id.Groups, *r.Group)
	}
	return r.Everybody
}

// Text is the rule as text.
func (r *Rule) Text() string {
	who := "everybody"
	switch {
	case r.Identity != nil:
		who = *r.Identity
	case r.IdentityPrefix != nil:
		who = "identities that begin with " + *r.IdentityPrefix
	case r.Group != nil:
		who = "group " + *r.Group
	}
	verb, rights := "may", r.May
	if r.MayNot != 0 {
		verb, rights = "may not", r.MayNot
	}
	what := "all resources"
	switch {
	case r.Resource != nil:
		what = fmt.Sprintf("%q", *r.Resource)
	case *r.ResourcePrefix != "":
		what = fmt.Sprintf("resources that begin with %q", *r.ResourcePrefix)
	}
	return fmt.Sprintf("%s %s %s %s", who, verb, rights, what)
}

// String returns the rule's line and text.
func (r *Rule) String() string { return fmt.Sprintf("line %d: %s", r.Line, r.Text()) }

// Rules decide about rights on names. Of the rules about a caller and a right, those with the
// most specific resource decide: the exact name, or otherwise the longest prefix. Of these, may_not comes
// before may. Where no rule says anything, it is not allowed.
type Rules struct {
	exact    map[string]*ruleSet
	prefixes map[string]*ruleSet
	lengths  []int // of the prefixes, longest first
	all      *ruleSet
}

// NewRules returns the rules of a list, which must not change any more.
func NewRules(list []*Rule) *Rules {
	rs := &Rules{exact: make(map[string]*ruleSet), prefixes: make(map[string]*ruleSet), all: &ruleSet{list: list}}
	for _, r := range list {
		sets := rs.prefixes
		if r.Resource != nil {
			sets = rs.exact
		}
		set := sets[r.Target()]
		if set == nil {
			set = &ruleSet{}
			sets[r.Target()] = set
		}
		set.list = append(set.list, r)
	}
	for _, set := range rs.exact {
		set.indexIfLong()
	}
	for prefix, set := range rs.prefixes {
		set.indexIfLong()
		if !slices.Contains(rs.lengths, len(prefix)) {
			rs.lengths = append(rs.lengths, len(prefix))
		}
	}
	rs.all.indexIfLong()
	slices.Sort(rs.lengths)
	slices.Reverse(rs.lengths)
	return rs
}

// List returns the rules, in the order of the file.
func (rs *Rules) List() []*Rule { return rs.all.list }

// Decision is whether something is allowed, and the deciding rule.
type Decision struct {
	Allowed bool
	// Rule is the rule that decided, as text; "" if no rule says anything.
	Rule string
	// Line is its line in the file, 0 for a rule from no file.
	Line int
}

// Decide decides whether an identity has a right on a name.
func (rs *Rules) Decide(id Identity, right Right, resource string) Decision {
	r := rs.deciding(id, right, resource)
	if r == nil {
		return Decision{}
	}
	return Decision{Allowed: r.May != 0, Rule: r.String(), Line: r.Line}
}

// Allows reports whether an identity has a right on a name.
func (rs *Rules) Allows(id Identity, right Right, resource string) bool {
	r := rs.deciding(id, right, resource)
	return r != nil && r.May != 0
}

// AllowsAll reports whether an identity has a right on every name that begins with a prefix.
func (rs *Rules) AllowsAll(id Identity, right Right, prefix string) bool {
	r := rs.decidingPrefix(id, right, prefix)
	if r == nil || r.May == 0 {
		return false
	}
	for r := range rs.all.deciding(id, right) {
		if r.MayNot != 0 && strings.HasPrefix(r.Target(), prefix) {
			return false
		}
	}
	return true
}

// AllowsAny reports whether an identity has any right on any name.
func (rs *Rules) AllowsAny(id Identity) bool {
	for r := range rs.all.deciding(id, All) {
		for _, right := range r.May.Each() {
			deciding := rs.decidingPrefix(id, right, r.Target())
			if r.Resource != nil {
				deciding = rs.deciding(id, right, r.Target())
			}
			if deciding != nil && deciding.May != 0 {
				return true
			}
		}
	}
	return false
}

// View returns a number that changes when a right of an identity changes: a right covers its own claims and the claims on
// the names where it has the right. After a change of the rules, or for another identity, it is another number, unless they say the same.
// It is the same in every process, and does not depend on the order of the rules.
func (rs *Rules) View(id Identity, right Right) (view uint64) {
	add := func(format string, args ...any) {
		sum := fnv.New64a()
		_, _ = fmt.Fprintf(sum, format, args...) // never fails
		view += sum.Sum64()
	}
	add("%q", id.Name)
	for r := range rs.all.deciding(id, right) {
		add("%t %t %q", r.May != 0, r.Resource != nil, r.Target())
	}
	return view
}

// Target returns the name or the prefix that the rule is about.
func (r *Rule) Target() string {
	if r.Resource != nil {
		return *r.Resource
	}
	return *r.ResourcePrefix
}

// deciding returns the rule that decides, nil for none.
func (rs *Rules) deciding(id Identity, right Right, resource string) *Rule {
	if r := rs.exact[resource].first(id, right); r != nil {
		return r
	}
	return rs.decidingPrefix(id, right, resource)
}

// decidingPrefix is deciding by the rules with a prefix alone.
func (rs *Rules) decidingPrefix(id Identity, right Right, resource string) *Rule {
	for _, length := range rs.lengths {
		if length > len(resource) {
			continue
		}
		if r := rs.prefixes[resource[:length]].first(id, right); r != nil {
			return r
		}
	}
	return nil
}
