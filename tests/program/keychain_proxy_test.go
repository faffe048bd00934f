package program_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/tests/harness"
)

// portal is a proxy that sometimes answers instead of the server behind it.
type portal struct {
	*httptest.Server
	mu    sync.Mutex
	page  http.HandlerFunc // nil: the server answers
	shown bool             // the page was
}

func newPortal(t *testing.T, server *fixtures.Locket) *portal {
	t.Helper()
	p := &portal{}
	pass := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.Out.URL.Scheme, r.Out.URL.Host, r.Out.Host = "http", server.HTTPAddress(), r.In.Host
	}}
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.mu.Lock()
		page := p.page
		if page != nil {
			p.shown = true
		}
		p.mu.Unlock()
		if page != nil {
			page(w, r)
			return
		}
		pass.ServeHTTP(w, r)
	}))
	t.Cleanup(p.Close)
	return p
}

// show has the proxy answer with a page; nil has the server answer again.
func (p *portal) show(page http.HandlerFunc) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.page, p.shown = page, false
}

// showed reports whether the page was shown.
func (p *portal) showed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.shown
}

// page answers in the server's place.
func page(code int, contentType, body string, header ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		for i := 0; i+1 < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.WriteHeader(code)
		_, _ = io.WriteString(w, body)
	}
}

var pages = map[string]http.HandlerFunc{
	"403":          page(403, "text/html", "<html>Forbidden</html>"),
	"404":          page(404, "text/html", "<html>Not Found</html>"),
	"404 as JSON":  page(404, "application/json", `{"message":"no Route matched with those values"}`),
	"407":          page(407, "text/html", "", "Proxy-Authenticate", "Basic"),
	"a login page": page(200, "text/html", "<html>Please log in</html>"),
	"redirect":     page(302, "text/html", "", "Location", "/login"),
	"nothing":      page(200, "text/plain", ""),
}

// A proxy answers in the server's place for a part of the TTL: the claim stays, with its token,
// and the program gets no signal.
func TestKeychainBehindProxy(t *testing.T) {
	t.Parallel()
	server := fixtures.StartLocket(t, harness.Embedded(t))
	client := server.Client(t)
	for name, page := range pages {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			proxy := newPortal(t, server)
			done := filepath.Join(t.TempDir(), "done")
			script := `trap "exit 6" TERM; until [ -e '` + done + `' ]; do sleep 0.1; done`
			cmd := shellParent(t, proxy.URL, "proxy, "+name, "", script, "--signal-parent")
			before := wantStatus(t, client, "proxy, "+name, 1, models.Status_STATUS_ACTIVE)
			proxy.show(page)
			harness.Until(t, "a request that gets the page", func() bool { return proxy.showed() })
			proxy.show(nil)
			last := claimsOf(t, client, "proxy, "+name)[0].GetVersion()
			harness.Eventually(t, func() error {
				now := claimsOf(t, client, "proxy, "+name)[0]
				if now.GetStatus() != models.Status_STATUS_ACTIVE || now.GetToken() != before.GetToken() {
					t.Fatalf("the claim is %v", now)
				}
				if now.GetVersion() == last {
					return errors.New("nothing is renewed afterwards")
				}
				return nil
			})
			harness.Must(t, os.WriteFile(done, nil, 0o600))
			if err := cmd.Wait(); err != nil {
				t.Errorf("the program ends with %v", err)
			}
		})
	}
}

// When one of two servers fails, the other is used, for every way to configure both.
func TestKeychainServers(t *testing.T) {
	t.Parallel()
	server := fixtures.StartLocket(t, harness.Embedded(t))
	proxy := fixtures.NewProxy(t, server.HTTPAddress())
	first, second := "http://"+proxy.Addr(), httpURL(server)
	byEnvironment := keychainCommand(t, first)
	byEnvironment.Args = byEnvironment.Args[:2]
	byEnvironment.Env = append(byEnvironment.Env, "LOCKET_URL="+first+", "+second)
	for name, p := range map[string]*keychainProcess{
		"repeated":    startKeychain(t, first, "--url", second),
		"commas":      startKeychain(t, first+","+second),
		"environment": attachKeychain(t, byEnvironment),
	} {
		proxy.Restore()
		p.do("claim", name, object{"ttl": 60})
		proxy.Cut()
		p.do("validate", name, nil)
		p.do("claim", name+", later", nil)
		p.do("shutdown", "", nil)
		p.wantExit(0, "")
	}
}
