//go:build browser

package console_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/tests/harness"
)

// idOf returns the id of an owner's claim.
func idOf(owner string) string {
	return strings.Map(func(r rune) rune {
		if r < 'a' || r > 'z' {
			return '-'
		}
		return r
	}, owner) + "-claim"
}

// claimOf makes a claim of an owner.
func claimOf(t *testing.T, client models.LocketClient, resource, owner string, ttl time.Duration) *models.Claim {
	t.Helper()
	seconds := ttl.Seconds()
	claim, err := client.CreateClaim(t.Context(), &models.CreateClaimRequest{Resource: resource, Owner: owner, Id: idOf(owner), Ttl: &seconds})
	harness.Must(t, err)
	return claim
}

// TestBrowserRevoke: from the overview to a resource, whose holder is revoked, once with the keyboard only and once
// with the mouse. The page shows the changes of others by itself.
func TestBrowserRevoke(t *testing.T) {
	server := fixtures.StartLocket(t, harness.Embedded(t))
	client := server.Client(t)
	claimOf(t, client, "deploy/prod", "alice", time.Hour)
	claimOf(t, client, "deploy/prod", "bob", time.Hour)
	b := startBrowser(t)

	p := b.open(console(server, ""))
	p.shows("Live")
	p.shows("deploy/prod")
	p.shot("overview")
	p.tabTo("header a", "Resources")
	p.press("Enter")
	p.until("document.title.startsWith('Resources')")
	p.tabTo(".folders a", "deploy/")
	p.press("Enter")
	p.until("location.hash.includes('prefix')")
	p.until(found(".rows a", "deploy/prod") + " !== undefined")
	p.tabTo(".rows a", "deploy/prod")
	p.press("Enter")
	p.shows("Waiting: 1")
	claimOf(t, client, "deploy/prod", "carol", time.Hour) // changes under it
	p.shows("Waiting: 2")
	p.shot("resource")
	p.tabTo("button", "Revoke…")
	p.press("Enter")
	p.shows("Next: bob")
	p.shot("revoke")
	p.until("document.activeElement.name === 'reason'")
	p.write("host is gone")
	p.tabTo("dialog button", "Revoke")
	p.press("Enter")
	p.shows("by bob")
	p.until("!document.querySelector('dialog')")
	p.until("document.activeElement !== document.body")
	ended, err := client.GetClaim(t.Context(), &models.GetClaimRequest{Id: "alice-claim"})
	harness.Must(t, err)
	if ended.GetStatus() != models.Status_STATUS_REVOKED || ended.GetReason() != "host is gone" {
		t.Errorf("the claim is %v", ended)
	}

	p.click("button", "Withdraw…")
	p.shows("loses its place now")
	p.press("Escape")
	p.until("!document.querySelector('dialog')")
	p.click("button", "Withdraw…")
	p.click("dialog button", "Withdraw")
	p.shows("Waiting: 0")
	p.click("button", "Revoke…")
	p.shows("Nobody waits: the resource will be free.")
	p.click("dialog button", "Revoke")
	p.shows("It is free.")
	p.shows("host is gone") // the history
}

// TestBrowserRefusals: the overview counts the requests that are refused, while they come.
func TestBrowserRefusals(t *testing.T) {
	server := fixtures.StartLocket(t, harness.OneServer(t)) // each server counts its own
	client := server.Client(t)
	claimOf(t, client, "deploy/prod", "alice", time.Hour)
	p := startBrowser(t).open(console(server, ""))
	p.shows("Live")
	p.shows("refusals 0 in the last minute")
	ttl := time.Hour.Seconds()
	for range 3 {
		_, err := client.CreateClaim(t.Context(), &models.CreateClaimRequest{Resource: "deploy/prod", Owner: "bob", Ttl: &ttl, NoWait: true})
		if models.ReasonOf(err) != models.ReasonLockCollision {
			t.Fatal(err)
		}
	}
	p.shows("refusals 3 in the last minute")
	p.shows("grants 0 in the last minute")
}

// TestBrowserTree: beside the resources is the tree of their folders, which the server makes, with the holders and
// waiters in each.
func TestBrowserTree(t *testing.T) {
	server := fixtures.StartLocket(t, harness.Embedded(t))
	client := server.Client(t)
	for i := range 700 { // more than a page of resources
		ttl := time.Hour.Seconds()
		_, err := client.CreateClaim(t.Context(), &models.CreateClaimRequest{Resource: fmt.Sprintf("jobs/daily/%03d", i), Ttl: &ttl})
		harness.Must(t, err)
	}
	claimOf(t, client, "jobs/weekly", "bob", time.Hour)
	claimOf(t, client, "top", "carol", time.Hour)
	p := startBrowser(t).open(console(server, "resources"))
	p.shows("500 resources are loaded")
	p.click(".folders a", "jobs/")
	p.until(found(".folders a.folder", "daily/") + " !== undefined")
	p.click(".folders a", "all")
	p.until(found(".folders a.folder", "jobs/") + " !== undefined")
	claimOf(t, client, "new/1", "dave", time.Hour) // changes under it
	claimOf(t, client, "new/1", "erin", time.Hour)
	p.until(found(".folders a.folder", "new/") + " !== undefined")
	p.until(found(".rows tbody tr:first-child", "new/1") + " !== undefined") // somebody waits for it
	p.visit(console(server, "resources?prefix=n"))
	p.shows("new/ 1 held, 1 waiting")
}

// TestBrowserRestart: the page says that it is not live and since when, keeps its content without claims that it
// cannot know, and reconnects by itself.
func TestBrowserRestart(t *testing.T) {
	server := fixtures.StartLocket(t, harness.Embedded(t))
	client := server.Client(t)
	claimOf(t, client, "r", "alice", time.Hour)
	p := startBrowser(t).open(console(server, "resources/r"), "net::ERR")
	p.shows("Live")
	p.shows("by alice")
	p.shows("Nobody waits.")
	server.Kill()
	p.shows("Not live for")
	p.shows("Not known: the server does not answer.")
	p.until("!document.body.innerText.includes('Nobody waits')")
	p.until("document.querySelector('.holder').innerText.includes('alice')")
	p.click("button", "Revoke…")
	p.click("dialog button", "Revoke")
	p.until("document.querySelector('dialog')?.innerText.includes('the server cannot be reached')")
	p.press("Escape")
	harness.Must(t, server.Start())
	claimOf(t, server.Client(t), "r", "bob", time.Hour)
	p.shows("Live")
	p.shows("by alice")
	p.shows("Waiting: 1")
	claimOf(t, server.Client(t), "r", "carol", time.Hour)
	p.shows("Waiting: 2")
}

// TestBrowserTabs: ten tabs cost the server one watch, and all of them are live.
func TestBrowserTabs(t *testing.T) {
	server := fixtures.StartLocket(t, harness.Embedded(t))
	client := server.Client(t)
	b := startBrowser(t)
	var tabs []*tab
	for range 10 {
		tabs = append(tabs, b.open(console(server, "resources/r")))
	}
	for _, p := range tabs {
		p.do("Page.bringToFront", nil) // one that is not seen asks nothing
		p.shows("Live")
		p.shows("It is free.")
	}
	claimOf(t, client, "r", "alice", time.Hour)
	for _, p := range tabs {
		p.do("Page.bringToFront", nil)
		p.shows("by alice")
	}
	harness.Must(t, harness.WantMetric(t, server, "locket_watchers 1"))
}

// TestBrowserSession: a session is ended from its page: its claims are revoked, the next waiters are granted, its client hears of it.
func TestBrowserSession(t *testing.T) {
	server := fixtures.StartLocket(t, harness.Embedded(t))
	session := harness.DialSession(t, server.Client(t))
	session.Open("worker", harness.SessionTTL(3600))
	session.Lock("index", harness.Held)
	claimOf(t, server.Client(t), "index", "next", time.Hour)
	p := startBrowser(t).open(console(server, "sessions"), "404")
	p.shows("worker")
	p.click(".rows a", session.ID)
	p.shows("Attached to")
	p.until("document.querySelector('section table')?.innerText.includes('index')")
	p.click("button", "End…")
	p.shows("worker holds 1 and waits for 0: these claims are revoked, and those behind them are granted.")
	p.press("Escape")
	p.until("!document.querySelector('dialog')")
	session.Quiet()
	p.click("button", "End…")
	p.click("dialog button", "End the session")
	p.shows("the session has ended")
	p.visit(console(server, "resources/index"))
	p.shows("by next")
	p.shows("revoked")
	session.Ends(codes.NotFound, models.ReasonSessionEnded)
}

// TestBrowserSessionOfBusyOwner: a session's page has its claims even if its owner has more than a page of others.
func TestBrowserSessionOfBusyOwner(t *testing.T) {
	server := fixtures.StartLocket(t, harness.Embedded(t))
	ttl := time.Hour.Seconds()
	for i := range 1000 { // a page
		_, err := server.Client(t).CreateClaim(t.Context(), &models.CreateClaimRequest{Resource: fmt.Sprintf("other/%03d", i), Owner: "worker", Ttl: &ttl})
		harness.Must(t, err)
	}
	session := harness.DialSession(t, server.Client(t))
	session.Open("worker", harness.SessionTTL(3600))
	session.Lock("index", harness.Held)
	p := startBrowser(t).open(console(server, "sessions/"+session.ID))
	p.shows("1,000 claims of its owner")
	p.click("button", "Load more")
	p.until("document.querySelector('section table')?.innerText.includes('index')")
}
