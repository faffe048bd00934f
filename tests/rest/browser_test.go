//go:build browser

package rest_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/locket-service/locket/tests/harness"
)

// attack is a page that sends requests in all ways that a browser allows without a preflight and
// with one, and then shows the results.
const attack = `<!doctype html><title>attack</title><body><pre id="told">running</pre>
<iframe name="hidden"></iframe>
<form id="form" method="post" enctype="text/plain" target="hidden" action="%[1]s/v1/claims/">
<input name='{"resource": "stolen", "ttl": 60, "x' value='": null}'></form>
<script>
const url = "%[1]s/v1/claims/", claim = '{"resource": "stolen", "ttl": 60}', told = [];
const send = (name, address, options) => fetch(address, options).then(
	r => told.push(name + ": " + r.type + " " + r.status), e => told.push(name + ": " + e.message));
(async () => {
	await send("text", url, {method: "POST", mode: "no-cors", body: claim});
	await send("untyped", url, {method: "POST", mode: "no-cors", body: new Blob([claim])});
	await send("form", url, {method: "POST", mode: "no-cors", body: new URLSearchParams({resource: "stolen"})});
	await send("json", url, {method: "POST", headers: {"Content-Type": "application/json"}, body: claim});
	await send("delete", url + "precious/", {method: "DELETE"});
	await send("put", url + "precious/", {method: "PUT", headers: {"Content-Type": "application/json"}, body: '{"status": "revoked"}'});
	await send("read", url, {});
	navigator.sendBeacon(url, new Blob([claim], {type: "text/plain"}));
	document.getElementById("form").submit();
	await new Promise(done => setTimeout(done, 1000));
	document.getElementById("told").textContent = "done\n" + told.join("\n");
})();
</script>`

// TestBrowser: a page of another site in a real browser takes no claim, ends none and reads none,
// whether it sends requests across origins or its own name leads to the server.
func TestBrowser(t *testing.T) {
	t.Parallel()
	harness.OnEachEngine(t, func(t *testing.T, database string) {
		s := startREST(t, database)
		s.post(t, object{"resource": "precious", "ttl": 60, "id": "precious"}).is(t, http.StatusCreated)
		page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html; charset=utf-8")
			fmt.Fprintf(w, attack, s.url)
		}))
		t.Cleanup(page.Close)
		// Both names resolve to this machine: the first is another site, the second the same site with another port.
		for i, host := range []string{"evil.example", "127.0.0.1"} {
			shown := browse(t, strings.Replace(page.URL, "127.0.0.1", host, 1))
			if !strings.Contains(shown, "done\n") || strings.Contains(shown, "cors 200") || strings.Contains(shown, "basic") {
				t.Errorf("the page of %s shows %s", host, shown)
			}
			refused := s.counted(t, `code="403",method="post"`)
			if refused < 5*(i+1) {
				t.Errorf("only %d requests were refused: the page of %s shows %s", refused, host, shown)
			}
			if all := s.list(t, ""); len(all) != 1 || all[0].Status != "active" {
				t.Errorf("the claims are %v", idsOf(all))
			}
		}
		_, port, _ := strings.Cut(s.HTTPAddress(), ":")
		if shown := browse(t, "http://evil.example:"+port+"/v1/claims/"); strings.Contains(shown, "precious") || !strings.Contains(shown, "not a name of this server") {
			t.Errorf("by a name that leads to the server: %s", shown)
		}
		if shown := browse(t, "http://localhost:"+port+"/"); !strings.Contains(shown, "Overview – Locket") {
			t.Errorf("a person who opens the server sees %.200s", shown)
		}
	})
}

// browse opens a page, and returns its content after some seconds.
func browse(t *testing.T, address string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	browser := exec.CommandContext(ctx, "chromium", "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run",
		"--disable-background-networking", "--user-data-dir="+t.TempDir(), "--host-resolver-rules=MAP *.example 127.0.0.1",
		"--virtual-time-budget=10000", "--dump-dom", address)
	var problems strings.Builder
	browser.Stderr = &problems
	shown, err := browser.Output()
	if err != nil {
		t.Fatalf("chromium: %v\n%s", err, problems.String())
	}
	return string(shown)
}

// counted returns how many requests with these labels the metrics have counted.
func (s *restServer) counted(t *testing.T, labels string) int {
	t.Helper()
	metrics := s.do(t, "GET", "/metrics", nil).body
	found := regexp.MustCompile(`(?m)^locket_http_requests_total\{` + labels + `\} (\d+)$`).FindSubmatch(metrics)
	if found == nil {
		return 0
	}
	n, err := strconv.Atoi(string(found[1]))
	harness.Must(t, err)
	return n
}
