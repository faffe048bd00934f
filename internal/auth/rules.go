package auth

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Right is what a caller may do with resources of a name.
type Right uint8

const (
	// Read: see claims, queues, locks and waits of the resource, and watch it.
	Read Right = 1 << iota
	// Hold: claim the resource, and renew one's own claims.
	Hold
	// Revoke: end claims of other identities.
	Revoke
	// Administer: renew claims of other identities, and see their user data; with all resources:
	// list the sessions of all, and reset sessions.
	Administer

	allRights = Read | Hold | Revoke | Administer
)

var rightNames = []struct {
	right Right
	name  string
}{{Read, "read"}, {Hold, "hold"}, {Revoke, "revoke"}, {Administer, "administer"}}

func (r Right) String() string {
	var names []string
	for _, known := range rightNames {
		if r&known.right != 0 {
			names = append(names, known.name)
		}
	}
	return strings.Join(names, ", ")
}

// ParseRight returns a right by its name.
func ParseRight(name string) (Right, error) {
	for _, known := range rightNames {
		if known.name == name {
			return known.right, nil
		}
	}
	return 0, fmt.Errorf("unknown right %q; use read, hold, revoke or administer", name)
}

// rightSet is a list of rights in a file; "all" stands for each of them.
type rightSet Right

// UnmarshalYAML implements yaml.Unmarshaler.
func (s *rightSet) UnmarshalYAML(node *yaml.Node) error {
	var names []string
	if err := node.Decode(&names); err != nil {
		return err
	}
	if len(names) == 0 {
		return fmt.Errorf("line %d: the list of rights is empty", node.Line)
	}
	for _, name := range names {
		right, err := ParseRight(name)
		if name == "all" {
			right, err = allRights, nil
		}
		if err != nil {
			return fmt.Errorf("line %d: %w", node.Line, err)
		}
		*s |= rightSet(right)
	}
	return nil
}

// ruleFile is the form of a file of rules.
type ruleFile struct {
	Rules    []rule    `yaml:"rules"`
	Examples []example `yaml:"examples"`
	// Quotas are beside the rules, since one file says what a caller may do and how much.
	Quotas []quotaRule `yaml:"quotas"`
}

// rule is one rule: whom it is about, what these may or may not do, and with which resources.
type rule struct {
	Identity       *string  `yaml:"identity"`
	IdentityPrefix *string  `yaml:"identity_prefix"`
	Group          *string  `yaml:"group"`
	Everybody      bool     `yaml:"everybody"`
	May            rightSet `yaml:"may"`
	MayNot         rightSet `yaml:"may_not"`
	Resource       *string  `yaml:"resource"`
	ResourcePrefix *string  `yaml:"resource_prefix"`

	line int
}

// UnmarshalYAML implements yaml.Unmarshaler.
func (r *rule) UnmarshalYAML(node *yaml.Node) error {
	type plain rule
	if err := knownMembers(node, "identity", "identity_prefix", "group", "everybody", "may", "may_not", "resource", "resource_prefix"); err != nil {
		return err
	}
	if err := node.Decode((*plain)(r)); err != nil {
		return err
	}
	r.line = node.Line
	if err := r.validate(); err != nil {
		return fmt.Errorf("line %d: %w", node.Line, err)
	}
	return nil
}

// knownMembers refuses other members, which the decoder no longer does below a method of its own.
func knownMembers(node *yaml.Node, names ...string) error {
	if node.Kind != yaml.MappingNode {
		return fmt.Errorf("line %d: must have members like %s", node.Line, names[0])
	}
	for i := 0; i < len(node.Content); i += 2 {
		if key := node.Content[i]; !slices.Contains(names, key.Value) {
			return fmt.Errorf("line %d: unknown member %q; known are %s", key.Line, key.Value, strings.Join(names, ", "))
		}
	}
	return nil
}

func count(conditions ...bool) (n int) {
	for _, c := range conditions {
		if c {
			n++
		}
	}
	return n
}

func (r *rule) validate() error {
	switch {
	case count(r.Identity != nil, r.IdentityPrefix != nil, r.Group != nil, r.Everybody) != 1:
		return errors.New("a rule is about one of identity, identity_prefix, group, and everybody: true")
	case count(r.May != 0, r.MayNot != 0) != 1:
		return errors.New("a rule has one of may and may_not")
	case count(r.Resource != nil, r.ResourcePrefix != nil) != 1:
		return errors.New(`a rule has one of resource and resource_prefix; resource_prefix: "" means all`)
	case r.Resource != nil && *r.Resource == "":
		return errors.New("the resource is empty")
	case r.IdentityPrefix != nil && *r.IdentityPrefix == "":
		return errors.New("the identity_prefix is empty; write everybody: true")
	}
	for _, name := range []*string{r.Identity, r.Group} {
		if name == nil {
			continue
		}
		if err := ValidName(*name); err != nil {
			return fmt.Errorf("the identity or group %w", err)
		}
	}
	return validPrefix(r.IdentityPrefix)
}

// validPrefix returns what is wrong with an identity_prefix, which may be missing.
func validPrefix(prefix *string) error {
	if prefix == nil {
		return nil
	}
	if err := validText(*prefix); err != nil {
		return fmt.Errorf("the identity_prefix %w", err)
	}
	return nil
}

// about reports whether the rule is about an identity. Of what everybody may, anonymous callers may nothing;
// what everybody may not, they may not either.
func (r *rule) about(id Identity) bool {
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

// decides reports whether the rule says something about a right.
func (r *rule) decides(id Identity, right Right) bool {
	return Right(r.May|r.MayNot)&right != 0 && r.about(id)
}

// text is what the rule says.
func (r *rule) text() string {
	who := "everybody"
	switch {
	case r.Identity != nil:
		who = *r.Identity
	case r.IdentityPrefix != nil:
		who = "identities that begin with " + *r.IdentityPrefix
	case r.Group != nil:
		who = "group " + *r.Group
	}
	verb, rights := "may", Right(r.May)
	if r.MayNot != 0 {
		verb, rights = "may not", Right(r.MayNot)
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

// String says where the rule stands, and what it says.
func (r *rule) String() string { return fmt.Sprintf("line %d: %s", r.line, r.text()) }

// Rules say who may do what on which names. Of the rules about a caller and a right, those with the
// most specific resource decide: the exact name, else the longest prefix. Of these, may_not comes
// before may. Where no rule says anything, it is not allowed.
type Rules struct {
	exact    map[string][]*rule
	prefixes map[string][]*rule
	lengths  []int // of the prefixes, longest first
	examples []example
	quotas   []quotaRule
	rules    []*rule
}

// ParseRules reads a file of rules. Its errors name the line. Its examples are not tested: see Test.
func ParseRules(text []byte) (*Rules, error) {
	var file ruleFile
	if err := decodeFile(text, &file); err != nil {
		return nil, err
	}
	return newRules(file), nil
}

// LoadRules is ParseRules for a server: a file whose examples are decided otherwise is invalid too.
func LoadRules(text []byte) (*Rules, error) {
	rules, err := ParseRules(text)
	if err == nil {
		err = rules.Test()
	}
	return rules, err
}

func newRules(file ruleFile) *Rules {
	if file.Rules == nil && len(file.Quotas) > 0 { // a file about quotas alone
		all := ""
		file.Rules = []rule{{Everybody: true, May: rightSet(Read | Hold), ResourcePrefix: &all}}
	}
	rs := &Rules{exact: make(map[string][]*rule), prefixes: make(map[string][]*rule), examples: file.Examples, quotas: file.Quotas}
	for i := range file.Rules {
		r := &file.Rules[i]
		rs.rules = append(rs.rules, r)
		if r.Resource != nil {
			rs.exact[*r.Resource] = append(rs.exact[*r.Resource], r)
			continue
		}
		prefix := *r.ResourcePrefix
		rs.prefixes[prefix] = append(rs.prefixes[prefix], r)
		if !slices.Contains(rs.lengths, len(prefix)) {
			rs.lengths = append(rs.lengths, len(prefix))
		}
	}
	slices.Sort(rs.lengths)
	slices.Reverse(rs.lengths)
	return rs
}

// DefaultRules are those of a server without a file: everybody who is let in may read and hold
// every name.
func DefaultRules() *Rules {
	all := ""
	return newRules(ruleFile{Rules: []rule{{Everybody: true, May: rightSet(Read | Hold), ResourcePrefix: &all}}})
}

// Decision is whether something is allowed, and by which rule.
type Decision struct {
	Allowed bool
	// Rule is the rule that decided, as text; "" if no rule says anything.
	Rule string
	// Line is where it stands in the file, 0 for a rule of no file.
	Line int
}

// Decide decides whether an identity has a right on a name.
func (rs *Rules) Decide(id Identity, right Right, resource string) Decision {
	r := rs.deciding(id, right, resource)
	if r == nil {
		return Decision{}
	}
	return Decision{Allowed: r.May != 0, Rule: r.String(), Line: r.line}
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
	for _, r := range rs.rules {
		if r.MayNot != 0 && strings.HasPrefix(r.target(), prefix) && r.decides(id, right) {
			return false
		}
	}
	return true
}

func (r *rule) target() string {
	if r.Resource != nil {
		return *r.Resource
	}
	return *r.ResourcePrefix
}

// deciding returns the rule that decides, nil for none.
func (rs *Rules) deciding(id Identity, right Right, resource string) *rule {
	if r := first(rs.exact[resource], id, right); r != nil {
		return r
	}
	return rs.decidingPrefix(id, right, resource)
}

// decidingPrefix is deciding by the rules with a prefix alone.
func (rs *Rules) decidingPrefix(id Identity, right Right, resource string) *rule {
	for _, length := range rs.lengths {
		if length > len(resource) {
			continue
		}
		if r := first(rs.prefixes[resource[:length]], id, right); r != nil {
			return r
		}
	}
	return nil
}

// first returns the rule that decides among those with one resource or prefix: one that denies,
// else one that allows.
func first(rules []*rule, id Identity, right Right) (found *rule) {
	for _, r := range rules {
		if !r.decides(id, right) {
			continue
		}
		if r.MayNot != 0 {
			return r
		}
		if found == nil {
			found = r
		}
	}
	return found
}
