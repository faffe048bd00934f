package deploy_test

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/internal/program/server"
	"github.com/locket-service/locket/tests/harness"
)

func TestMain(m *testing.M) { harness.Run(m) }

// rule is an alert of alerts.yaml.
type rule struct {
	Alert, Expr         string
	Labels, Annotations map[string]string
}

func rules(t *testing.T) (all []rule) {
	t.Helper()
	var file struct {
		Groups []struct{ Rules []rule }
	}
	harness.Must(t, yaml.Unmarshal([]byte(read(t, "alerts.yaml")), &file))
	for _, g := range file.Groups {
		all = append(all, g.Rules...)
	}
	if len(all) == 0 {
		t.Fatal("there are no rules")
	}
	return all
}

// panels returns the queries of the dashboard, by the titles of their panels.
func panels(t *testing.T) map[string][]string {
	t.Helper()
	var board struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	harness.Must(t, json.Unmarshal([]byte(read(t, "grafana.json")), &board))
	queries := make(map[string][]string)
	for _, p := range board.Panels {
		for _, target := range p.Targets {
			queries[p.Title] = append(queries[p.Title], target.Expr)
		}
	}
	if len(queries) == 0 {
		t.Fatal("the dashboard has no panels")
	}
	return queries
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	harness.Must(t, err)
	return string(text)
}

// series returns the names of the series of a server that has done something of everything.
func series(t *testing.T) map[string]bool {
	t.Helper()
	server := fixtures.StartLocket(t, harness.Embedded(t), "--audit-log", filepath.Join(t.TempDir(), "audit.log"))
	harness.Lock(t, server.Client(t), "k", "o", time.Minute)
	harness.Eventually(t, func() error { // the first count of claims comes a second after the start
		return harness.WantMetric(t, server, `locket_claims{status="active"} 1`)
	})
	response, err := http.Get("http://" + server.HTTPAddress() + "/v1/claims/")
	harness.Must(t, err)
	_, err = io.Copy(io.Discard, response.Body)
	harness.Must(t, err)
	harness.Must(t, response.Body.Close())
	names := make(map[string]bool)
	for line := range strings.Lines(harness.Scrape(t, server)) {
		if name, _, ok := strings.Cut(line, " "); ok && name != "#" {
			name, _, _ = strings.Cut(name, "{")
			names[name] = true
		}
	}
	return names
}

var metricName = regexp.MustCompile(`\b(?:locket|go|process)_[a-z_]+`)

// unknown returns the names in an expression that are not series of the server. An expression without any name is
// unknown as a whole, unless it is about Prometheus' own series up.
func unknown(expr string, known map[string]bool) []string {
	named := metricName.FindAllString(expr, -1)
	if len(named) == 0 && !strings.HasPrefix(expr, "up{") {
		return []string{expr}
	}
	return slices.DeleteFunc(named, func(name string) bool { return known[name] })
}

// TestMetricsAreThere: what the rules and the dashboard name are series of the server.
func TestMetricsAreThere(t *testing.T) {
	known := series(t)
	for _, expr := range []string{"locket_redy == 0", "rate(locket_commit_duration_seconds[5m])", "lockt_ready", "locket_ready and locket_none"} {
		if len(unknown(expr, known)) != 1 {
			t.Errorf("%s passes", expr)
		}
	}
	for _, r := range rules(t) {
		if names := unknown(r.Expr, known); len(names) > 0 {
			t.Errorf("rule %s names %v, which the server does not have", r.Alert, names)
		}
	}
	for title, queries := range panels(t) {
		for _, expr := range queries {
			if names := unknown(expr, known); len(names) > 0 {
				t.Errorf("panel %q names %v, which the server does not have", title, names)
			}
		}
	}
}

// TestMetricsAreDescribed: docs/operations.md has each metric of the server, and no other.
func TestMetricsAreDescribed(t *testing.T) {
	_, section, _ := strings.Cut(read(t, "../docs/operations.md"), "\n## Metrics\n")
	section, _, _ = strings.Cut(section, "\n## ")
	suffix := regexp.MustCompile(`_(bucket|sum|count)$`)
	known := make(map[string]bool)
	for name := range series(t) {
		if strings.HasPrefix(name, "locket_") {
			known[suffix.ReplaceAllString(name, "")] = true
		}
	}
	known["locket_arrivals_cut_total"] = true // only where callers are authenticated
	described := regexp.MustCompile("(?m)^\\| `(locket_[a-z_]+)").FindAllStringSubmatch(section, -1)
	for _, m := range described {
		if !known[m[1]] {
			t.Errorf("%s is described, and the server does not have it", m[1])
		}
		delete(known, m[1])
	}
	for name := range known {
		t.Errorf("%s is not described", name)
	}
}

// TestRunbook: each alert has a severity, a test, and a link to its entry in the runbook; each entry has an alert.
func TestRunbook(t *testing.T) {
	_, runbook, _ := strings.Cut(read(t, "../docs/operations.md"), "\n## Runbook\n")
	entries := make(map[string]bool)
	for _, m := range regexp.MustCompile(`(?m)^### (\S+)$`).FindAllStringSubmatch(runbook, -1) {
		entries[m[1]] = true
	}
	tests := read(t, "alerts_test.yaml")
	for _, r := range rules(t) {
		if !entries[r.Alert] {
			t.Errorf("%s has no entry in the runbook", r.Alert)
		}
		delete(entries, r.Alert)
		if want := "docs/operations.md#" + strings.ToLower(r.Alert); r.Annotations["runbook"] != want {
			t.Errorf("%s leads to %q, want %q", r.Alert, r.Annotations["runbook"], want)
		}
		if s := r.Labels["severity"]; s != "warning" && s != "critical" {
			t.Errorf("%s has the severity %q", r.Alert, s)
		}
		if !strings.Contains(tests, `alertname="`+r.Alert+`"`) {
			t.Errorf("alerts_test.yaml does not show that %s fires", r.Alert)
		}
	}
	for name := range entries {
		t.Errorf("the entry %s is about no alert", name)
	}
}

// TestTimeToEnd: service managers wait at least as long as a server takes to stop while the database hangs.
func TestTimeToEnd(t *testing.T) {
	c := server.DefaultConfig()
	most := 3*c.ShutdownTimeout + c.DatabaseTimeout + 20*time.Second
	setting := regexp.MustCompile(`(?m)^ *(?:TimeoutStopSec=|terminationGracePeriodSeconds: )(\d+)$`)
	for _, file := range []string{"systemd/locket.service", "helm/locket/values.yaml", "kubernetes/embedded.yaml", "kubernetes/mysql.yaml", "kubernetes/cluster.yaml", "kubernetes/etcd.yaml"} {
		m := setting.FindStringSubmatch(read(t, file))
		if m == nil {
			t.Fatalf("%s does not say how long an end may take", file)
		}
		if given, err := time.ParseDuration(m[1] + "s"); err != nil || given <= most {
			t.Errorf("%s gives the server %s to end (%v), which may take %s", file, given, err, most)
		}
	}
}
