//go:build browser

package console_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/tests/harness"
)

// wait makes a claim that may be part of a deadlock.
func wait(t *testing.T, client models.LocketClient, resource, owner, id string) {
	t.Helper()
	ttl := time.Hour.Seconds()
	_, err := client.CreateClaim(t.Context(), &models.CreateClaimRequest{Resource: resource, Owner: owner, Id: id, Ttl: &ttl, AllowDeadlock: true})
	harness.Must(t, err)
}

// TestBrowserDeadlock: claims that wait for each other are drawn, and named.
func TestBrowserDeadlock(t *testing.T) {
	server := fixtures.StartLocket(t, harness.Embedded(t))
	client := server.Client(t)
	wait(t, client, "index", "a", "1")
	wait(t, client, "backup", "b", "2")
	wait(t, client, "backup", "a", "3")
	p := startBrowser(t).open(console(server, "resources/index"))
	p.shows("Held for")
	p.shows("The holder waits elsewhere")
	wait(t, client, "index", "b", "4")
	p.shows("Each of these waits for the next")
	p.until("document.querySelectorAll('.deadlock li').length === 2 && document.querySelectorAll('.deadlock line').length === 2")
	p.shows("a waits for backup, behind b")
}

// TestBrowserLongLine: a queue of 10,000 is one page, with few rows in it at a time.
func TestBrowserLongLine(t *testing.T) {
	server := fixtures.StartLocket(t, harness.Embedded(t))
	client := server.Client(t)
	errs := make(chan error, 100)
	for worker := range 100 {
		go func() {
			var err error
			for i := 0; i < 100 && err == nil; i++ {
				ttl := time.Hour.Seconds()
				_, err = client.CreateClaim(t.Context(), &models.CreateClaimRequest{Resource: "r", Owner: fmt.Sprintf("%d-%d", worker, i), Ttl: &ttl})
			}
			errs <- err
		}()
	}
	for range 100 {
		harness.Must(t, harness.Await(t, "claims", errs))
	}
	p := startBrowser(t).open(console(server, "resources/r"))
	p.shows("Waiting: 9,999")
	p.until("document.querySelectorAll('.rows tbody tr').length < 100")
	harness.Until(t, "last row", func() bool {
		_, _ = p.eval("document.querySelector('.rows').scrollTop = 1e9")
		return p.is("document.querySelector('.rows').innerText.includes('\\n1000\\t') || [...document.querySelectorAll('.rows td')].some((e) => e.innerText === '1000')")
	})
	p.click("a", "All that wait")
	p.until("document.title.startsWith('Claims')")
	p.shows("200 claims are loaded")
}

// TestBrowserAccessible: axe finds nothing to complain about on any page, light and dark, wide and narrow.
func TestBrowserAccessible(t *testing.T) {
	axe := axeCore(t)
	server := fixtures.StartLocket(t, harness.Embedded(t))
	client := server.Client(t)
	wait(t, client, "index", "a", "1")
	wait(t, client, "backup/daily", "b", "2")
	wait(t, client, "backup/daily", "a", "3")
	wait(t, client, "index", "b", "4")
	claimOf(t, client, "short", "carol", 30*time.Second)
	p := startBrowser(t).open(console(server, ""))
	for _, look := range []struct {
		theme string
		width int
	}{{"light", 1280}, {"dark", 1280}, {"light", 360}} {
		p.theme(look.theme)
		p.size(look.width, 900)
		for _, page := range []string{"", "resources", "resources?prefix=backup%2F", "resources/index", "claims", "claims/1", "sessions", "whoami?resource=r", "nothing"} {
			p.visit("about:blank")
			p.visit(console(server, page))
			p.shows("Live")
			p.until("!document.body.innerText.includes('Loading…')")
			p.accessible(axe)
			if p.is("document.documentElement.scrollWidth > innerWidth") {
				t.Errorf("%q is wider than %d", page, look.width)
			}
		}
	}
}

// accessible has axe look at the page.
func (p *tab) accessible(axe string) {
	p.t.Helper()
	_, err := p.eval(axe)
	harness.Must(p.t, err)
	found, err := p.eval("axe.run().then((r) => r.violations.map((v) => location.hash + ' at ' + innerWidth + ': ' + v.id + ': ' + v.nodes.map((n) => n.html + ' ' + n.failureSummary).join(' | ')).join('\\n'))")
	harness.Must(p.t, err)
	if found != "" {
		p.t.Errorf("%v", found)
	}
}

// axeCore returns the script of axe-core, from npm.
func axeCore(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	command := exec.CommandContext(t.Context(), "npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix", folder, "axe-core@4.14.1")
	if output, err := command.CombinedOutput(); err != nil {
		t.Fatalf("npm: %v\n%s", err, output)
	}
	script, err := os.ReadFile(filepath.Join(folder, "node_modules", "axe-core", "axe.min.js"))
	harness.Must(t, err)
	return string(script)
}
