package auth

import (
	"fmt"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/locket-service/locket/internal/rules/access"
)

// Parts returns the rules, the examples and the quotas as texts, so that two files can be compared.
func (rs *Rules) Parts() (parts []string) {
	for _, r := range rs.List() {
		parts = append(parts, r.Text())
	}
	for i := range rs.examples {
		parts = append(parts, rs.examples[i].text())
	}
	for i := range rs.quotas {
		parts = append(parts, rs.quotas[i].text())
	}
	return parts
}

// Warnings returns which denials, examples and quotas of the previous rules are missing: the file may have been
// truncated, and allow more than it should.
func (rs *Rules) Warnings(before *Rules) (warnings []string) {
	is := make(map[string]bool)
	for _, part := range rs.Parts() {
		is[part] = true
	}
	for _, quota := range rs.quotas {
		is[quota.who()] = true
	}
	lost := func(part string, there bool) {
		if !there {
			warnings = append(warnings, "no longer in the file: "+part)
		}
	}
	for _, r := range before.List() {
		lost(r.Text(), r.MayNot == 0 || is[r.Text()])
	}
	for _, e := range before.examples {
		lost(e.text(), is[e.text()])
	}
	for _, quota := range before.quotas {
		lost(quota.text(), is[quota.who()])
	}
	const most = 20
	if more := len(warnings) - most; more > 0 {
		warnings = append(warnings[:most], fmt.Sprintf("and %d more", more))
	}
	return warnings
}

func (e *example) text() string {
	verb := "may"
	if e.MayNot != 0 {
		verb = "may not"
	}
	who := e.Identity
	if len(e.Groups) > 0 {
		who += " of " + strings.Join(e.Groups, ", ")
	}
	return fmt.Sprintf("example: %s %s %s %q", who, verb, access.Right(e.May|e.MayNot), e.Resource)
}

// It includes the identities that the quota limits.
func (r *quotaRule) who() string {
	switch {
	case r.Identity != nil:
		return "quota of " + *r.Identity
	case r.IdentityPrefix != nil:
		return "quota of identities that begin with " + *r.IdentityPrefix
	}
	return "quota of everybody"
}

func (r *quotaRule) text() string {
	limits, _ := yaml.Marshal(struct { // never fails
		access.Quota `yaml:",inline"`
		Longest      time.Duration `yaml:"longest_ttl,omitempty"`
	}{r.Quota, r.LongestTTL})
	return r.who() + ": " + strings.ReplaceAll(strings.TrimSpace(string(limits)), "\n", ", ")
}

// Parts returns the entries, without their hashes.
func (c *Credentials) Parts() (parts []string) {
	for _, entry := range c.entries {
		parts = append(parts, entry.String())
	}
	return parts
}

// String describes the credential: its owner and when it expires.
func (e CredentialEntry) String() string {
	text := fmt.Sprintf("credential %s of %s%s", e.ID(), CredentialPrefix, e.Name)
	if len(e.Groups) > 0 {
		text += " in " + strings.Join(e.Groups, ", ")
	}
	if !e.Expires.IsZero() {
		text += " until " + e.Expires.UTC().Format(time.RFC3339)
	}
	return text
}
