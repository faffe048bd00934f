package auth_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/locket-service/locket/internal/doors/auth"
	"github.com/locket-service/locket/internal/rules/access"
)

func rulesOf(t testing.TB, text string) *auth.Rules {
	t.Helper()
	rules, err := auth.ParseRules([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return rules
}

func TestRules(t *testing.T) {
	rules := rulesOf(t, `
rules:
  - {everybody: true, may: [read], resource_prefix: ""}
  - {group: "oidc:ops", may: [all], resource_prefix: ""}
  - {identity: "oidc:alice", may: [hold], resource_prefix: "deploy/"}
  - {group: "oidc:ops", may_not: [hold], resource: "deploy/prod"}
  - {identity: "oidc:carol", may: [hold], resource: "deploy/prod"}
  - {identity_prefix: "spiffe://example.org/ci/", may: [hold], resource_prefix: "deploy/pro"}
  - {identity: "oidc:bob", may: [hold], resource_prefix: "deploy/"}
  - {identity: "oidc:bob", may_not: [hold], resource_prefix: "deploy/"}
  - {identity: "oidc:dave", may_not: [hold], resource_prefix: ""}
  - {identity: "oidc:dave", may: [hold], resource_prefix: "d"}
`)
	ops := []string{"oidc:dev", "oidc:ops"}
	for _, c := range []struct {
		identity string
		groups   []string
		right    access.Right
		resource string
		want     bool
	}{
		{"oidc:anybody", nil, access.Read, "x", true},
		{"", nil, access.Read, "x", true},
		{"oidc:anybody", nil, access.Hold, "x", false},
		{"oidc:alice", nil, access.Hold, "deploy/a", true},
		{"oidc:alice", nil, access.Hold, "deploy", false},
		{"oidc:alice", nil, access.Hold, "Deploy/a", false},
		{"oidc:alice ", nil, access.Hold, "deploy/a", false},
		{"oidc:alice", nil, access.Revoke, "deploy/a", false},
		{"oidc:eve", ops, access.Administer, "anything", true},
		{"oidc:eve", ops, access.Hold, "deploy/prod", false},
		{"oidc:eve", ops, access.Revoke, "deploy/prod", true},
		{"oidc:alice", ops, access.Hold, "deploy/prod", false},
		{"oidc:alice", nil, access.Hold, "deploy/prod", true},
		{"oidc:carol", ops, access.Hold, "deploy/prod", false},
		{"oidc:carol", nil, access.Hold, "deploy/prod", true},
		{"spiffe://example.org/ci/1", nil, access.Hold, "deploy/prod", true},
		{"spiffe://example.org/ci", nil, access.Hold, "deploy/prod", false},
		{"oidc:bob", nil, access.Hold, "deploy/a", false},
		{"oidc:dave", nil, access.Hold, "d", true},
		{"oidc:dave", nil, access.Hold, "e", false},
		{"oidc:dave", nil, access.Hold, "", false},
	} {
		id := access.Identity{Name: c.identity, Groups: c.groups}
		if got := rules.Allows(id, c.right, c.resource); got != c.want {
			t.Errorf("%s %v may %s %q: %v; by %s", c.identity, c.groups, c.right, c.resource, got, rules.Decide(id, c.right, c.resource).Rule)
		}
	}
	for prefix, want := range map[string]bool{"": false, "deploy/": false, "deploy/prod": false, "deploy/prodx": true, "x": true} {
		if got := rules.AllowsAll(access.Identity{Groups: ops}, access.Hold, prefix); got != want {
			t.Errorf("all that begins with %q: %v", prefix, got)
		}
	}
}

func TestDefaultRules(t *testing.T) {
	rules := auth.DefaultRules()
	for right, want := range map[access.Right]bool{access.Read: true, access.Hold: true, access.Revoke: false, access.Administer: false} {
		if rules.Allows(access.Identity{Name: "cert:a"}, right, "x") != want || rules.AllowsAll(access.Identity{}, right, "") != want {
			t.Errorf("%s is not %v", right, want)
		}
	}
}

func TestInvalidRules(t *testing.T) {
	for text, want := range map[string]string{
		`rules: [{identity: "oidc:a", may: [read], resource: x, why: y}]`:          `unknown member "why"`,
		`rules: [{may: [read], resource: x}]`:                                      "about one of identity",
		`rules: [{identity: "oidc:a", group: "oidc:b", may: [read], resource: x}]`: "about one of identity",
		`rules: [{everybody: false, may: [read], resource: x}]`:                    "about one of identity",
		`rules: [{identity: "oidc:a", resource: x}]`:                               "one of may and may_not",
		`rules: [{identity: "oidc:a", may: [read], may_not: [hold], resource: x}]`: "one of may and may_not",
		`rules: [{identity: "oidc:a", may: [], resource: x}]`:                      "list of rights is empty",
		`rules: [{identity: "oidc:a", may: [write], resource: x}]`:                 `unknown right "write"`,
		`rules: [{identity: "oidc:a", may: [read]}]`:                               "one of resource and resource_prefix",
		`rules: [{identity: "oidc:a", may: [read], resource: ""}]`:                 "the resource is empty",
		`rules: [{identity_prefix: "", may: [read], resource: x}]`:                 "identity_prefix is empty",
		`rules: [{identity: "", may: [read], resource: x}]`:                        "is empty",
		`rules: [{identity: "a\nb", may: [read], resource: x}]`:                    "cannot be printed",
		`rules: [read]`: "must have members",
		"rules:\n  - {everybody: true, may: [read], resource: x}\n  - {everybody: true}": "line 3",
		`rule: []`:                    "rule",
		"rules: []\n---\nrules: []":   "more than one document",
		`examples: [{identity: "a"}]`: "line 1",
		strings.Repeat(" ", 5<<20):    "at most",
		"rules: &a [*a]":              "",
		"rules: {a: b}":               "",
		"rules: [{everybody: true, may: [read], resource: x, everybody: true}]": "already defined",
	} {
		_, err := auth.ParseRules([]byte(text))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.80s: %v, want %s", text, err, want)
		}
	}
	for _, empty := range []string{"", "# nothing", "rules: []", "rules:"} {
		if rules, err := auth.ParseRules([]byte(empty)); err != nil || rules.Allows(access.Identity{Name: "a"}, access.Read, "x") {
			t.Errorf("%q: %v", empty, err)
		}
	}
}

func TestExamples(t *testing.T) {
	const text = `
rules:
  - {identity: "oidc:alice", may: [hold, read], resource_prefix: "deploy/"}
  - {everybody: true, may_not: [hold], resource: "deploy/prod"}
examples:
  - {identity: "oidc:alice", may: [hold], resource: "deploy/x"}
  - {identity: "oidc:alice", may_not: [hold, revoke], resource: "deploy/prod"}
`
	rules, err := auth.LoadRules([]byte(text))
	if err != nil || rules.Examples() != 2 || len(rules.Explain()) != 2 {
		t.Fatal(err)
	}
	_, err = auth.LoadRules([]byte(text + `  - {identity: "oidc:alice", may: [read, hold], resource: "deploy/prod"}` + "\n"))
	if want := `example of line 8: "oidc:alice" may not hold "deploy/prod": line 4: everybody may not hold "deploy/prod"`; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

func TestLint(t *testing.T) {
	warnings := strings.Join(rulesOf(t, `
rules:
  - {identity: alice, may: [hold], resource: x}
  - {identity: "oidc:a", may: [hold], resource: x}
  - {identity: "oidc:a", may: [hold], resource: x}
  - {everybody: true, may_not: [hold], resource: x}
`).Lint(), "\n")
	for _, want := range []string{"line 3: \"alice\" has no prefix", "line 5 repeats line 4", "line 4 has no effect: line 6", "no example"} {
		if !strings.Contains(warnings, want) {
			t.Errorf("no warning %q in\n%s", want, warnings)
		}
	}
	if warnings := rulesOf(t, "").Lint(); len(warnings) != 2 {
		t.Errorf("an empty file: %q", warnings)
	}
}

// TestRulesAreData: rules that were encoded and decoded decide the same, so that a command can carry them.
func TestRulesAreData(t *testing.T) {
	rules := rulesOf(t, `
rules:
  - {everybody: true, may: [read], resource_prefix: ""}
  - {group: "oidc:ops", may: [all], resource_prefix: ""}
  - {identity: "oidc:alice", may: [hold], resource_prefix: "deploy/"}
  - {identity_prefix: "oidc:", may_not: [revoke], resource: "deploy/prod"}
quotas:
  - {everybody: true, claims_held: 3, longest_ttl: 1h}
`)
	encoded, err := json.Marshal(struct {
		Rules []*access.Rule
		Quota *access.Quota
	}{rules.List(), rules.QuotaOf("oidc:alice")})
	if err != nil {
		t.Fatal(err)
	}
	var decoded struct {
		Rules []*access.Rule
		Quota *access.Quota
	}
	if err := json.Unmarshal(encoded, &decoded); err != nil {
		t.Fatal(err)
	}
	again := access.NewRules(decoded.Rules)
	for _, id := range []access.Identity{{Name: "oidc:alice"}, {Name: "oidc:bob", Groups: []string{"oidc:ops"}}, {Name: access.Anonymous}} {
		for _, resource := range []string{"deploy/prod", "deploy/x", "other"} {
			for _, right := range access.All.Each() {
				if got, want := again.Decide(id, right, resource), rules.Decide(id, right, resource); got != want {
					t.Errorf("%s, %s, %q: %+v, want %+v", id.Name, right, resource, got, want)
				}
			}
		}
	}
	if *decoded.Quota != *rules.QuotaOf("oidc:alice") {
		t.Errorf("%+v", decoded.Quota)
	}
}

// FuzzRules: parsing any file terminates, and no caller gets more rights than a direct interpretation of the rules
// gives.
func FuzzRules(f *testing.F) {
	f.Add([]byte("rules:\n  - {everybody: true, may: [read], resource_prefix: \"\"}\n"), "oidc:a", "x")
	f.Add([]byte("rules:\n  - {identity_prefix: \"oidc:\", may: [all], resource: x}\n  - {group: g, may_not: [hold], resource_prefix: x}\nexamples:\n  - {identity: a, may: [read], resource: y}\n"), "oidc:a", "xy")
	f.Fuzz(func(t *testing.T, text []byte, name, resource string) {
		rules, err := auth.ParseRules(text)
		if err != nil {
			return
		}
		_, _, _ = rules.Lint(), rules.Test(), rules.Explain()
		id := access.Identity{Name: name, Groups: []string{"g"}}
		for _, right := range []access.Right{access.Read, access.Hold, access.Revoke, access.Administer} {
			allowed := rules.Allows(id, right, resource)
			if rules.AllowsAll(id, right, resource) && !allowed && resource != "" {
				// every name with the prefix is allowed, so the prefix itself is
				t.Errorf("all of %q, but not the name", resource)
			}
			if d := rules.Decide(id, right, resource); d.Allowed != allowed || allowed && d.Rule == "" {
				t.Errorf("decisions differ: %+v, %v", d, allowed)
			}
		}
	})
}

func TestQuotaOf(t *testing.T) {
	rules := rulesOf(t, `
quotas:
  - {everybody: true, requests_per_second: 1}
  - {identity_prefix: "oidc:", watches: 2}
  - {identity_prefix: "oidc:admin-", watches: 3}
  - {identity: "oidc:admin-1", longest_ttl: 1h}
`)
	for name, want := range map[string]access.Quota{
		"":             {Requests: 1},
		"cert:a":       {Requests: 1},
		"oidc:a":       {Watches: 2},
		"oidc:admin-2": {Watches: 3},
	} {
		if got := rules.QuotaOf(name); got == nil || *got != want {
			t.Errorf("%q has %+v, want %+v", name, got, want)
		}
	}
	if got := rules.QuotaOf("oidc:admin-1"); got == nil || got.LongestTTL == 0 || got.Watches != 0 {
		t.Errorf("%+v", got)
	}
	if !rules.Allows(access.Identity{Name: "a"}, access.Hold, "x") || rules.Allows(access.Identity{Name: "a"}, access.Revoke, "x") {
		t.Error("a file about quotas alone changes the rules")
	}
	if rulesOf(t, "rules: []\nquotas: [{everybody: true, watches: 1}]").Allows(access.Identity{Name: "a"}, access.Hold, "x") {
		t.Error("an empty list of rules allows something")
	}
	if rulesOf(t, "rules: []").QuotaOf("a") != nil {
		t.Error("a quota out of nothing")
	}
	for text, want := range map[string]string{
		`quotas: [{everybody: true}]`:                            "limits nothing",
		`quotas: [{watches: 1}]`:                                 "for one of identity",
		`quotas: [{everybody: true, identity: a, watches: 1}]`:   "for one of identity",
		`quotas: [{everybody: true, watches: -1}]`:               "must not be negative",
		`quotas: [{everybody: true, requests_per_second: .nan}]`: "must not be negative",
		`quotas: [{everybody: true, requests_per_second: .inf}]`: "must not be negative",
		`quotas: [{everybody: true, burst: 1}]`:                  "burst goes together",
		`quotas: [{everybody: true, longest_ttl: soon}]`:         "must be a time",
		`quotas: [{everybody: true, longest_ttl: -1h}]`:          "must be a time",
		`quotas: [{everybody: true, claims: 1}]`:                 "unknown member",
	} {
		if _, err := auth.ParseRules([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

// Prefixes that end within a word, and denials that a more specific rule lifts, cause warnings.
func TestLintOfPrefixesAndDenials(t *testing.T) {
	warnings := strings.Join(rulesOf(t, `
rules:
  - {identity_prefix: "spiffe://example.org", may: [read], resource_prefix: "deploy"}
  - {identity_prefix: "spiffe://example.org/", may: [read], resource_prefix: "deploy/"}
  - {everybody: true, may_not: [hold, revoke], resource_prefix: "prod/"}
  - {group: "oidc:ops", may: [hold], resource_prefix: "prod/db/"}
  - {identity: "credential:ci", may: [all], resource: "prod/web"}
  - {identity: "credential:ci", may: [read], resource: "prod/web"}
  - {identity_prefix: "oidc:", may_not: [administer], resource_prefix: ""}
  - {identity: "credential:ci", may: [administer], resource_prefix: "test/"}
  - {identity: "oidc:root", may: [administer], resource_prefix: "test/"}
  - {identity: anonymous, may: [read], resource_prefix: "pub/"}
quotas:
  - {identity_prefix: "cert:x", watches: 1}
`).Lint(), "\n")
	want := `line 3: "spiffe://example.org" is also how other names begin, such as "spiffe://example.org-other"; end it with a separator
line 3: "deploy" is also how other names begin, such as "deploy-other"; end it with a separator
line 6 lifts what line 5 denies (hold): the more specific resource decides
line 7 lifts what line 5 denies (hold, revoke): the more specific resource decides
line 11 lifts what line 9 denies (administer): the more specific resource decides
the quota for "cert:x": this is also how other names begin, such as "cert:x-other"; end it with a separator`
	if got := strings.TrimPrefix(warnings, "there is no example: nothing tests the rules\n"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
