package auth

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/locket-service/locket/internal/rules/access"
)

// rightSet is a list of rights in a file; "all" means all of them.
type rightSet access.Right

func (s *rightSet) UnmarshalYAML(node *yaml.Node) error {
	var names []string
	if err := node.Decode(&names); err != nil {
		return err
	}
	if len(names) == 0 {
		return fmt.Errorf("line %d: the list of rights is empty", node.Line)
	}
	for _, name := range names {
		right, err := access.ParseRight(name)
		if name == "all" {
			right, err = access.All, nil
		}
		if err != nil {
			return fmt.Errorf("line %d: %w", node.Line, err)
		}
		*s |= rightSet(right)
	}
	return nil
}

// ruleFile is the format of a rules file.
type ruleFile struct {
	Rules    []rule    `yaml:"rules"`
	Examples []example `yaml:"examples"`
	// Quotas are in the same file: rights and quotas of a caller belong together.
	Quotas []quotaRule `yaml:"quotas"`
}

// rule is an access.Rule in the format of a file.
type rule struct {
	access.Rule `yaml:",inline"`
	Allowed     rightSet `yaml:"may"`
	Denied      rightSet `yaml:"may_not"`
}

func (r *rule) UnmarshalYAML(node *yaml.Node) error {
	type plain rule
	if err := knownMembers(node, "identity", "identity_prefix", "group", "everybody", "may", "may_not", "resource", "resource_prefix"); err != nil {
		return err
	}
	if err := node.Decode((*plain)(r)); err != nil {
		return err
	}
	r.May, r.MayNot, r.Line = access.Right(r.Allowed), access.Right(r.Denied), node.Line
	if err := r.validate(); err != nil {
		return fmt.Errorf("line %d: %w", node.Line, err)
	}
	return nil
}

// knownMembers returns an error for other members. The decoder's own check does not reach below UnmarshalYAML.
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

// validPrefix returns an error if an identity_prefix is invalid; nil is valid.
func validPrefix(prefix *string) error {
	if prefix == nil {
		return nil
	}
	if err := validText(*prefix); err != nil {
		return fmt.Errorf("the identity_prefix %w", err)
	}
	return nil
}

// Rules are the rules of a file, with its quotas and its examples.
type Rules struct {
	*access.Rules
	examples []example
	quotas   []quotaRule
}

// ParseRules parses a rules file. Its errors name the line. It does not test the examples: see Test.
func ParseRules(text []byte) (*Rules, error) {
	var file ruleFile
	if err := decodeFile(text, &file); err != nil {
		return nil, err
	}
	return newRules(file), nil
}

// LoadRules is ParseRules for a server: it also returns an error for examples that are decided otherwise.
func LoadRules(text []byte) (*Rules, error) {
	rules, err := ParseRules(text)
	if err == nil {
		err = rules.Test()
	}
	return rules, err
}

func newRules(file ruleFile) *Rules {
	if file.Rules == nil && len(file.Quotas) > 0 { // a file with quotas only
		file.Rules = defaultRules()
	}
	list := make([]*access.Rule, len(file.Rules))
	for i := range file.Rules {
		list[i] = &file.Rules[i].Rule
	}
	return &Rules{Rules: access.NewRules(list), examples: file.Examples, quotas: file.Quotas}
}

// DefaultRules are the rules of a server without a file: every authenticated caller may read and hold every name.
func DefaultRules() *Rules { return newRules(ruleFile{Rules: defaultRules()}) }

func defaultRules() []rule {
	return []rule{{Rule: access.Rule{Everybody: true, May: access.Read | access.Hold, ResourcePrefix: new("")}}}
}

// CallerOf returns an identity as a caller, with its rules and its quota.
func (rs *Rules) CallerOf(id access.Identity) access.Caller {
	return access.Caller{Identity: id, Rules: rs.Rules, Quota: rs.QuotaOf(id.Name)}
}
