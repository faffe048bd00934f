//go:build browser

package console_test

import (
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"testing"
	"time"

	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/tests/harness"
)

// behind returns the address of a proxy that serves a server below a prefix, and shows it a certificate of a name.
func behind(t *testing.T, server *fixtures.Locket, ca *fixtures.CA, name, prefix string) string {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(ca.Issue(t, name))
	harness.Must(t, err)
	target, err := url.Parse("https://" + server.HTTPAddress())
	harness.Must(t, err)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: ca.Pool(), MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}}}
	proxy := &httputil.ReverseProxy{
		Transport: transport, FlushInterval: -1,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.Out.Host = r.In.Host
			r.SetXForwarded()
			r.Out.Header.Set("X-Forwarded-Prefix", prefix)
		},
	}
	mux := http.NewServeMux()
	mux.Handle(prefix+"/", http.StripPrefix(prefix, proxy)) // and nothing beside it
	front := httptest.NewServer(mux)
	t.Cleanup(func() {
		front.CloseClientConnections()
		front.Close()
		transport.CloseIdleConnections()
	})
	return front.URL + prefix
}

// TestBrowserProxy: below a proxy's prefix, with the client certificate that the proxy shows, the page is live, follows its links,
// revokes what the rules let that certificate revoke, and its addresses without a final slash lead to it.
func TestBrowserProxy(t *testing.T) {
	ca := fixtures.NewCA(t)
	server, client := startWithRoles(t, ca, "--trusted-proxies", "127.0.0.1")
	claimOf(t, client, "deploy/a/b", "alice", time.Hour)

	b := startBrowser(t)
	reader := b.open(behind(t, server, ca, "reader", "/ops/locks")+"/console", "403") // the servers are not for it
	reader.until("location.pathname === '/ops/locks/console/'")
	reader.shows("cert:reader")
	reader.visit(behind(t, server, ca, "reader", "/ops/locks") + "/console/#/resources/deploy%2Fa%2Fb")
	reader.shows("You may not: it is not yours, and no rule gives you the right revoke here.")

	p := b.open(behind(t, server, ca, "ops", "/a") + "/console/#/resources?flat=true")
	p.shows("cert:ops")
	p.shows("Live")
	p.click(".rows a", "deploy/a/b")
	p.shows("by alice")
	claimOf(t, client, "deploy/a/b", "bob", time.Hour)
	p.shows("Waiting: 1")
	p.click("button", "Revoke…")
	p.click("dialog button", "Revoke")
	p.shows("by bob")
}
