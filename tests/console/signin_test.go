//go:build browser

package console_test

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/tests/harness"
)

// startProvider starts the OIDC provider of tests/auth, whose JWTs live for some seconds, and returns its address.
func startProvider(t *testing.T, redirect string, seconds int) string {
	t.Helper()
	folder := t.TempDir()
	harness.Must(t, os.CopyFS(folder, os.DirFS(filepath.Join("..", "auth", "provider"))))
	install := exec.CommandContext(t.Context(), "npm", "install", "--no-audit", "--no-fund", "--ignore-scripts")
	install.Dir = folder
	if output, err := install.CombinedOutput(); err != nil {
		t.Fatalf("npm: %v\n%s", err, output)
	}
	port := fixtures.FreePort(t)
	address, output := fmt.Sprintf("127.0.0.1:%d", port), &fixtures.Buffer{}
	command := exec.CommandContext(t.Context(), "node", "provider.js", fmt.Sprint(port), "one")
	command.Dir, command.Stdout, command.Stderr = folder, output, output
	command.Env = append(os.Environ(), "REDIRECT_URIS="+redirect, fmt.Sprintf("SECONDS=%d", seconds))
	harness.Must(t, command.Start())
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
		if t.Failed() {
			t.Logf("the provider printed:\n%s", output.String())
		}
	})
	harness.Until(t, "the provider listens", func() bool {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	})
	return "http://" + address
}

// signInAs signs in at the provider, in whose forms any password will do.
func (p *tab) signInAs(name string) {
	p.t.Helper()
	p.click("a", "Sign in at 127.0.0.1")
	p.until("document.querySelector('input[name=login]') !== null")
	_, err := p.eval(fmt.Sprintf("document.querySelector('input[name=login]').value = %s, document.querySelector('input[name=password]').value = 'any', document.querySelector('form').submit()", quoted(name)))
	harness.Must(p.t, err)
	p.until("document.querySelector('input[name=prompt][value=consent]') !== null")
	_, err = p.eval("document.querySelector('form').submit()")
	harness.Must(p.t, err)
}

// statusOf returns the code of an answer to GET with some headers.
func statusOf(t *testing.T, address string, headers ...string) int {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, http.NoBody)
	harness.Must(t, err)
	for _, header := range headers {
		name, value, _ := strings.Cut(header, ": ")
		r.Header.Set(name, value)
	}
	response, err := http.DefaultClient.Do(r)
	harness.Must(t, err)
	harness.Must(t, response.Body.Close())
	return response.StatusCode
}

// cookie is one that the browser has.
type cookie struct {
	Name, Value, SameSite, Path string
	HTTPOnly, Secure            bool
}

// cookies returns the browser's Locket cookies for an address, also the ones hidden from scripts.
func (p *tab) cookies(address string) []cookie {
	p.t.Helper()
	var answer struct{ Cookies []cookie }
	p.call(p.session, "Network.getCookies", object{"urls": []string{address}}, &answer)
	return slices.DeleteFunc(answer.Cookies, func(c cookie) bool { return !strings.HasPrefix(c.Name, "locket") }) // the provider's are of the same host
}

// TestBrowserSignIn: a person signs in at an OIDC provider, in one tab for all, and returns to the same page. The JWT
// is only in a cookie that scripts cannot read. Requests caused by another site or origin do not have it. Signing out
// deletes it in all tabs.
func TestBrowserSignIn(t *testing.T) {
	server := fixtures.NewLocket(t, harness.Embedded(t))
	base := "http://" + server.HTTPAddress()
	issuer := startProvider(t, base+"/console/callback", 600)
	server.Args = append(server.Args, "--oidc-issuers", issuer, "--oidc-audience", "urn:locket", "--oidc-console-client-id", "console", "--log-level", "debug")
	harness.Must(t, server.Start())

	axe := axeCore(t)
	b := startBrowser(t)
	p := b.open(base+"/console/#/resources/a%2Fb", "401", "403", issuer, "fonts.googleapis.com")
	other := b.open(base+"/console/#/whoami", "401", "403")
	other.shows("Sign in at 127.0.0.1")
	for _, theme := range []string{"light", "dark"} {
		other.theme(theme)
		other.accessible(axe)
	}
	p.do("Page.bringToFront", nil)
	p.signInAs("bob")
	p.shows("oidc:bob")
	p.shows("It is free.")
	p.shows("Live")
	p.until("location.href === " + quoted(base+"/console/#/resources/a%2Fb"))
	other.do("Page.bringToFront", nil)
	other.shows("oidc:bob")
	credential := ""
	for _, cookie := range p.cookies(base + "/console/") {
		if cookie.Name != "locket" || !cookie.HTTPOnly || cookie.SameSite != "Strict" || cookie.Path != "/" {
			t.Errorf("the cookie %+v", cookie)
		}
		credential = cookie.Value
	}
	if strings.Count(credential, ".") != 2 {
		t.Fatalf("the credential is %q", credential)
	}
	if !p.is("localStorage.length === 0 && sessionStorage.length === 0 && document.cookie === ''") {
		t.Error("the browser keeps something that scripts can read")
	}
	for _, secret := range append(strings.Split(credential, ".")[1:], "code=") {
		if strings.Contains(server.Log(), secret) {
			t.Errorf("the log has %s", secret)
		}
	}

	// A page of another origin on the same host gets the cookie sent, and nothing for it.
	stranger := b.open("about:blank", "403", "CORS", "Failed to fetch", "ERR_FAILED", "NotSameOrigin", "401", "fonts.googleapis.com", "404")
	stranger.visit(issuer)
	stranger.until("document.readyState === 'complete' && location.href.startsWith(" + quoted(issuer) + ")")
	_, err := stranger.eval(fmt.Sprintf("fetch(%s, {method: 'POST', mode: 'no-cors', credentials: 'include'}).catch(() => {})", quoted(base+"/console/signout")))
	harness.Must(t, err)
	p.do("Page.bringToFront", nil)
	p.visit("about:blank")
	p.visit(base + "/console/#/whoami")
	p.shows("oidc:bob") // still, even after the page was reloaded
	// Without the browser's mark for requests of its own pages the cookie does not count.
	if code := statusOf(t, base+"/v1/whoami/", "Cookie: locket="+credential); code != 401 {
		t.Errorf("with the cookie alone: %d", code)
	}
	if code := statusOf(t, base+"/v1/whoami/", "Cookie: locket="+credential, "Sec-Fetch-Site: same-origin"); code != 200 {
		t.Errorf("as the page: %d", code)
	}

	p.accessible(axe)
	p.click("button", "Sign out")
	p.shows("Sign in at 127.0.0.1")
	other.do("Page.bringToFront", nil)
	other.shows("Sign in at 127.0.0.1")
	if left := p.cookies(base + "/console/"); len(left) != 0 {
		t.Errorf("there is still %+v", left)
	}

	p.do("Page.bringToFront", nil)
	p.visit(base + "/console/callback?code=x&state=y")
	p.shows("Signing in took too long, or was started in another window.")
	p.until("location.search === ''")
	p.visit(base + "/console/?signin=%3Cimg%20src%3Dx%3E")
	p.shows("Sign in at 127.0.0.1")
}

// TestBrowserSignInEnds: when the JWT has expired the page says so and asks to sign in again, without being reloaded.
func TestBrowserSignInEnds(t *testing.T) {
	server := fixtures.NewLocket(t, harness.Embedded(t))
	base := "http://" + server.HTTPAddress()
	issuer := startProvider(t, base+"/console/callback", 5)
	server.Args = append(server.Args, "--oidc-issuers", issuer, "--oidc-audience", "urn:locket", "--oidc-console-client-id", "console")
	harness.Must(t, server.Start())
	p := startBrowser(t).open(base+"/console/#/resources/r", "401", "403", issuer, "fonts.googleapis.com")
	p.signInAs("carol")
	p.shows("oidc:carol")
	p.shows("Sign in at 127.0.0.1")
	if left := p.cookies(base + "/console/"); len(left) != 0 {
		t.Errorf("there is still %+v", left)
	}
}
