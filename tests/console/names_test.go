//go:build browser

package console_test

import (
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/tests/harness"
)

// TestBrowserNames: names are shown as text with their hidden characters, and lead to their pages.
func TestBrowserNames(t *testing.T) {
	server := fixtures.StartLocket(t, harness.Embedded(t))
	client := server.Client(t)
	names := map[string]string{ // as they are shown
		`<img src=x onerror="document.title='stolen'">`: `<img src=x onerror="document.title='stolen'">`,
		"evil\u202etxt.exe":                             `evil\u202etxt.exe`,
		"two\nlines":                                    `two\nlines`,
		"שלום/עולם":                                     "שלום/עולם",
		".":                                             ".",
		"..":                                            "..",
		"a?b#c%2Fd&e=f":                                 "a?b#c%2Fd&e=f",
		strings.Repeat("long/", 204) + "name":           "long/long/long/",
	}
	for name := range names {
		claimOf(t, client, name, name[:min(len(name), 20)], time.Hour)
	}
	p := startBrowser(t).open(console(server, "resources?order=name"))
	for _, shown := range names {
		p.shows(shown)
	}
	for name, shown := range names {
		p.visit(console(server, "resources?order=name&prefix="+url.QueryEscape(name)))
		p.until(found(".rows a", shown) + "?.click() === undefined && location.hash === '#/resources/' + encodeURIComponent(" + quoted(name) + ")")
		p.shows("Held for")
		p.visit(console(server, "whoami?resource="+url.QueryEscape(name)))
		p.shows("revoke")
		p.until("document.querySelectorAll('tbody td:nth-child(3)').length === 4 && [...document.querySelectorAll('tbody td:nth-child(3)')].every((e) => e.innerText.startsWith('may'))")
		p.visit(console(server, "resources/"+url.PathEscape(name)))
		p.until("document.querySelector('h1')?.innerText.includes(" + quoted(shown) + ")")
		p.shows("Held for")
		if p.is("document.title === 'stolen' || document.querySelector('main img') !== null") {
			t.Errorf("%q was taken for HTML", name)
		}
		if p.is("document.documentElement.scrollWidth > innerWidth") {
			t.Errorf("%.40q makes the page wider than the window", name)
		}
	}
}
