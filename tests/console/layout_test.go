//go:build browser

package console_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/tests/harness"
)

// TestBrowserNarrow: on a telephone the holder and the button that revokes it are seen without scrolling, and each row
// of a table is a card.
func TestBrowserNarrow(t *testing.T) {
	server := fixtures.StartLocket(t, harness.Embedded(t))
	claimOf(t, server.Client(t), "deploy/prod", "alice", time.Hour)
	claimOf(t, server.Client(t), "deploy/prod", "bob", time.Hour)
	p := startBrowser(t).open(console(server, ""))
	p.size(360, 640)
	p.visit(console(server, "resources/deploy%2Fprod"))
	p.shows("Waiting: 1")
	p.until("(() => { const r = [...document.querySelectorAll('button')].find((e) => e.innerText === 'Revoke…').getBoundingClientRect(); return r.top > 0 && r.bottom <= innerHeight && r.left > 0 && r.right <= innerWidth })()")
	p.until("document.querySelector('.holder').getBoundingClientRect().top < innerHeight / 2")
	p.until("document.querySelector('header').getBoundingClientRect().height < 50")
	p.visit(console(server, "claims"))
	p.shows("2 claims are loaded")
	for _, card := range []string{"Resource deploy/prod Owner bob", "Resource deploy/prod Owner alice"} {
		p.until("[...document.querySelectorAll('.rows tbody tr')].some((row) => [...row.querySelectorAll('td')].map((e) => e.dataset.title + ' ' + e.innerText).join(' ').startsWith(" + quoted(card) + "))")
	}
	p.until("[...document.querySelectorAll('.rows tbody tr')].every((row, i, all) => i === 0 || row.getBoundingClientRect().top >= all[i - 1].getBoundingClientRect().bottom)")
	p.until("getComputedStyle(document.querySelector('.rows td'), '::before').content === '\"Resource\"'")
}

// TestBrowserClaims: the claims page begins with the live claims, the newest first. A claim says for how long it held,
// not when.
func TestBrowserClaims(t *testing.T) {
	server := fixtures.StartLocket(t, harness.Embedded(t))
	client := server.Client(t)
	claimOf(t, client, "r", "brief", time.Hour)
	_, err := client.EndClaim(t.Context(), &models.EndClaimRequest{Id: "brief-claim"})
	harness.Must(t, err)
	claimOf(t, client, "r", "old", time.Hour)
	claimOf(t, client, "r", "new", time.Hour)
	p := startBrowser(t).open(console(server, "claims"))
	p.shows("2 claims are loaded")
	p.until("document.querySelector('.rows tbody tr').innerText.includes('new')")
	p.visit(console(server, "claims?status=released"))
	p.shows("1 claim is loaded")
	p.until("[...document.querySelectorAll('.rows td')].some((e) => e.dataset.title === 'Held' && / s$/.test(e.innerText))")
}

// TestBrowserHistory: the history of a resource has the claims that held it or ended. Among many, claims that ended
// alike are one line.
func TestBrowserHistory(t *testing.T) {
	server := fixtures.StartLocket(t, harness.Embedded(t))
	client := server.Client(t)
	for range 12 {
		ttl := time.Hour.Seconds()
		claim, err := client.CreateClaim(t.Context(), &models.CreateClaimRequest{Resource: "r", Owner: "batch", Ttl: &ttl})
		harness.Must(t, err)
		_, err = client.EndClaim(t.Context(), &models.EndClaimRequest{Id: claim.GetId()})
		harness.Must(t, err)
	}
	claimOf(t, client, "r", "holder", time.Hour)
	claimOf(t, client, "r", "waiter", time.Hour)
	p := startBrowser(t).open(console(server, "resources/r"))
	p.shows("×12")
	p.until("document.querySelectorAll('.timeline tbody tr').length === 2 && !document.querySelector('.timeline').innerText.includes('waiter')")
}

// TestBrowserWidths: at 360 and at 1,400 pixels the pages fit the width of the window, with the value of the holder on
// the page of its resource. The pictures of docs/console are made here.
func TestBrowserWidths(t *testing.T) {
	server := fixtures.StartLocket(t, harness.Embedded(t))
	ttl := time.Hour.Seconds()
	for _, c := range [][3]string{
		{"deploy/prod", "worker-1", "build 1742"},
		{"deploy/prod", "worker-2"},
		{"deploy/prod", "worker-3"},
		{"deploy/prod", "worker-4"},
		{"jobs/daily/1", "cron-1"},
		{"jobs/daily/1", "cron-4"},
		{"jobs/daily/2", "cron-2"},
		{"jobs/daily/3", "cron-3"},
		{"leader", "node-a", "10.0.0.7:8080"},
	} {
		_, err := server.Client(t).CreateClaim(t.Context(), &models.CreateClaimRequest{Resource: c[0], Owner: c[1], Value: c[2], Ttl: &ttl})
		harness.Must(t, err)
	}
	p := startBrowser(t).open(console(server, ""))
	for _, width := range []int{360, 1400} {
		p.size(width, 900)
		for _, page := range []struct{ name, path, shows string }{
			{"overview", "", "deploy/prod"}, {"resource", "resources/deploy%2Fprod", "build 1742"}, {"claims", "claims", "9 claims are loaded"},
		} {
			p.visit(console(server, page.path))
			p.shows("Live")
			p.shows(page.shows)
			p.until("document.documentElement.scrollWidth <= innerWidth")
			p.shot(fmt.Sprintf("%s-%d", page.name, width))
		}
	}
}
