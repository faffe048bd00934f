package auth_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/tests/harness"
)

// Callers without a certificate, where the server accepts them, may do only what a rule for anonymous allows: nothing
// without rules, and nothing by a rule for all authenticated callers. Claims of one anonymous caller belong to all
// anonymous callers.
func TestAnonymous(t *testing.T) {
	t.Parallel()
	ca := fixtures.NewCA(t)
	const claim = `{"id": "%", "resource": "pub/r", "ttl": 60}`
	body := func(id string) string { return strings.Replace(claim, "%", id, 1) }
	type step struct{ cert, method, path, body, want string }
	for rules, steps := range map[string][]step{
		"": {
			{"", "POST", "/v1/claims", body("a"), "403"},
			{"bbs", "POST", "/v1/claims", body("b"), "201"},
			{"", "GET", "/v1/claims/b", "", "404"},
			{"", "DELETE", "/v1/claims/b", "", "404"},
			{"", "GET", "/v1/claims/", "", "200 []"},
			{"", "GET", "/v1/locks/", "", "200 []"},
			{"", "GET", "/v1/resources/pub%2Fr", "", "403"},
			{"", "GET", "/v1/whoami", "", `200 {"name":"anonymous"`},
			{"", "GET", "/healthz", "", "200"},
		},
		`
rules:
  - {everybody: true, may: [all], resource_prefix: ""}
  - {identity_prefix: "anon", may: [all], resource_prefix: ""}
  - {everybody: true, may_not: [hold], resource: "pub/frozen"}
  - {identity: "anonymous", may: [read, hold], resource_prefix: "pub/"}
`: {
			{"", "POST", "/v1/claims", strings.Replace(body("other"), "pub/", "own/", 1), "403"},
			{"", "POST", "/v1/claims", strings.Replace(body("frozen"), "pub/r", "pub/frozen", 1), "403"},
			{"", "POST", "/v1/claims", body("a"), `201`},
			{"", "GET", "/v1/claims/a", "", `"identity":"anonymous"`},
			{"bbs", "POST", "/v1/claims", body("b"), "202"},
			{"", "DELETE", "/v1/claims/b", "", "403"},
			{"", "DELETE", "/v1/claims/a", "", "204"},
			{"", "GET", "/metrics", "", "403"},
			{"bbs", "GET", "/metrics", "", "200"},
		},
	} {
		args := []string{"--tls-client-ca", ca.File, "--http-anonymous"}
		if rules != "" {
			args = append(args, "--auth-rules", write(t, "rules.yaml", rules))
		}
		server := harness.StartSecure(t, ca, args...)
		for _, s := range steps {
			code, _, text := request(t, httpsClient(t, ca, s.cert), s.method, "https://"+server.HTTPAddress()+s.path, s.body)
			if got := strings.Join([]string{strconv.Itoa(code), text}, " "); !strings.Contains(got, s.want) {
				t.Errorf("with rules %q: %s %s as %q: %s, want %s", rules, s.method, s.path, s.cert, got, s.want)
			}
		}
	}
}

// At a server with authentication only callers that may administer all resources can read the metrics.
func TestMetricsNeedARight(t *testing.T) {
	w := start(t, `
rules:
  - {identity: "credential:boss", may: [administer], resource_prefix: ""}
  - {identity: "credential:part", may: [administer], resource_prefix: "deploy/"}
  - {everybody: true, may: [read, hold, revoke], resource_prefix: ""}
`, []string{"boss", "part", "ann"})
	for user, want := range map[string]int{"": 401, "ann": 403, "part": 403, "boss": 200} {
		code, header, body := w.http(user, "GET", "/metrics", "")
		if code != want || strings.Contains(body, "locket_ready") != (code == 200) || code == 401 && header.Get("WWW-Authenticate") == "" {
			t.Errorf("%q: %d %.100s", user, code, body)
		}
	}
}
