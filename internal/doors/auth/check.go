package auth

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/locket-service/locket/internal/rules/access"
)

// example is a decision that the author of a rules file expects.
type example struct {
	Identity string   `yaml:"identity"`
	Groups   []string `yaml:"groups"`
	May      rightSet `yaml:"may"`
	MayNot   rightSet `yaml:"may_not"`
	Resource string   `yaml:"resource"`

	line int
}

func (e *example) UnmarshalYAML(node *yaml.Node) error {
	type plain example
	if err := knownMembers(node, "identity", "groups", "may", "may_not", "resource"); err != nil {
		return err
	}
	if err := node.Decode((*plain)(e)); err != nil {
		return err
	}
	e.line = node.Line
	if e.Resource == "" || count(e.May != 0, e.MayNot != 0) != 1 {
		return fmt.Errorf("line %d: an example has an identity, a resource, and one of may and may_not", node.Line)
	}
	return nil
}

// test returns the errors of an example: decisions other than the expected ones.
func (e *example) test(rs *Rules) (wrong []error) {
	id := access.Identity{Name: e.Identity, Groups: e.Groups}
	for _, right := range access.Right(e.May | e.MayNot).Each() {
		d := rs.Decide(id, right, e.Resource)
		if d.Allowed == (e.May != 0) {
			continue
		}
		verb := map[bool]string{true: "may", false: "may not"}[d.Allowed]
		reason := d.Rule
		if reason == "" {
			reason = "no rule says anything"
		}
		wrong = append(wrong, fmt.Errorf("example of line %d: %q %s %s %q: %s", e.line, e.Identity, verb, right, e.Resource, reason))
	}
	return wrong
}

// Test tests the examples of the file, and returns an error for each that is decided otherwise.
func (rs *Rules) Test() error {
	var wrong []error
	for _, e := range rs.examples {
		wrong = append(wrong, e.test(rs)...)
	}
	return errors.Join(wrong...)
}

// Examples returns how many examples the file has.
func (rs *Rules) Examples() int { return len(rs.examples) }

// Explain returns each rule, as text.
func (rs *Rules) Explain() []string {
	lines := make([]string, len(rs.List()))
	for i, r := range rs.List() {
		lines[i] = r.String()
	}
	return lines
}

// Lint returns warnings about valid rules that are probably mistakes.
func (rs *Rules) Lint() (warnings []string) {
	if len(rs.List()) == 0 {
		warnings = append(warnings, "there is no rule: nobody may do anything")
	}
	if len(rs.examples) == 0 {
		warnings = append(warnings, "there is no example: nothing tests the rules")
	}
	known := make(map[string]int)
	for _, r := range rs.List() {
		same := r.Text()
		if line, again := known[same]; again {
			warnings = append(warnings, fmt.Sprintf("line %d repeats line %d", r.Line, line))
		}
		known[same] = r.Line
		if overruled := rs.overruled(r); overruled != nil {
			warnings = append(warnings, fmt.Sprintf("line %d has no effect: line %d denies it", r.Line, overruled.Line))
		}
		for _, name := range []*string{r.Identity, r.IdentityPrefix, r.Group} {
			if name != nil && !strings.Contains(*name, ":") && *name != access.Anonymous {
				warnings = append(warnings, fmt.Sprintf("line %d: %q has no prefix like oidc: or cert:, so it is nobody's name", r.Line, *name))
			}
		}
		for _, prefix := range []*string{r.IdentityPrefix, r.ResourcePrefix} {
			if prefix != nil && endless(*prefix) {
				warnings = append(warnings, fmt.Sprintf("line %d: %q is also how other names begin, such as %q; end it with a separator", r.Line, *prefix, *prefix+"-other"))
			}
		}
		warnings = append(warnings, rs.lifts(r)...)
	}
	for _, q := range rs.quotas {
		if q.IdentityPrefix != nil && endless(*q.IdentityPrefix) {
			warnings = append(warnings, fmt.Sprintf("the quota for %q: this is also how other names begin, such as %q; end it with a separator", *q.IdentityPrefix, *q.IdentityPrefix+"-other"))
		}
	}
	return warnings
}

// endless reports whether a prefix ends within a word.
func endless(prefix string) bool {
	last, _ := utf8.DecodeLastRuneInString(prefix)
	return unicode.IsLetter(last) || unicode.IsDigit(last)
}

// lifts returns warnings about denials that a rule with a more specific resource lifts, for callers that match both
// rules.
func (rs *Rules) lifts(r *access.Rule) (warnings []string) {
	for _, other := range rs.List() {
		within := r.Target() != other.Target() && other.ResourcePrefix != nil && strings.HasPrefix(r.Target(), other.Target()) ||
			r.Target() == other.Target() && r.Resource != nil && other.ResourcePrefix != nil
		if both := r.May & other.MayNot; both != 0 && within && meets(r, other) {
			warnings = append(warnings, fmt.Sprintf("line %d lifts what line %d denies (%s): the more specific resource decides", r.Line, other.Line, both))
		}
	}
	return warnings
}

// meets reports whether both rules can apply to the same caller.
func meets(r, other *access.Rule) bool {
	begins := func(name, prefix *string) bool {
		return name != nil && prefix != nil && strings.HasPrefix(*name, *prefix)
	}
	switch {
	case r.Group != nil || r.Everybody || other.Group != nil || other.Everybody:
		return true
	case r.Identity != nil && other.Identity != nil:
		return *r.Identity == *other.Identity
	}
	return begins(r.Identity, other.IdentityPrefix) || begins(other.Identity, r.IdentityPrefix) ||
		begins(r.IdentityPrefix, other.IdentityPrefix) || begins(other.IdentityPrefix, r.IdentityPrefix)
}

// overruled returns a rule about everybody that denies all that a rule allows, nil if there is none.
func (rs *Rules) overruled(r *access.Rule) *access.Rule {
	for _, other := range rs.List() {
		sameTarget := (r.Resource != nil) == (other.Resource != nil) && r.Target() == other.Target()
		if r.May != 0 && other.Everybody && sameTarget && other.MayNot&r.May == r.May {
			return other
		}
	}
	return nil
}

// About returns the rules that apply to an identity, as text.
func (rs *Rules) About(id access.Identity) (lines []string) {
	for _, r := range rs.List() {
		if r.About(id) {
			lines = append(lines, r.String())
		}
	}
	return lines
}

// Unknown returns warnings about rules for names and groups that a credentials file does not have.
func (rs *Rules) Unknown(credentials *Credentials) (warnings []string) {
	known := make(map[string]bool)
	for _, of := range credentials.byHash {
		known[of.identity.Name] = true
		for _, group := range of.identity.Groups {
			known[group] = true
		}
	}
	for _, r := range rs.List() {
		for _, name := range []*string{r.Identity, r.Group} {
			if name != nil && strings.HasPrefix(*name, CredentialPrefix) && !known[*name] {
				warnings = append(warnings, fmt.Sprintf("line %d: the credentials file has no %s", r.Line, *name))
			}
		}
	}
	return warnings
}
