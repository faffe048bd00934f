//go:build auth

package auth_test

import (
	"fmt"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/tests/harness"
)

// documented returns the block of docs/security.md that begins with a line.
func documented(t *testing.T, first string) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/security.md")
	must(t, err)
	_, block, found := strings.Cut(string(text), "\n    "+first+"\n")
	if !found {
		t.Fatalf("docs/security.md has no block that begins with %q", first)
	}
	block, _, _ = strings.Cut("    "+first+"\n"+block, "\n\n")
	return block
}

// startIdentityProvider starts a SAML identity provider, which has a user bob.
func startIdentityProvider(t *testing.T) (base string) {
	t.Helper()
	program := filepath.Join(t.TempDir(), "idp")
	if output, err := exec.Command("go", "build", "-C", "idp", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("build the identity provider: %v\n%s", err, output)
	}
	address := fmt.Sprintf("127.0.0.1:%d", fixtures.FreePort(t))
	background(t, "", nil, program, address)
	harness.Until(t, "the identity provider listens", answers(address))
	base = "http://" + address
	bob := `{"password": "secret-of-bob", "email": "bob@example.com", "groups": ["builders", "a,admins", "b;admins"]}`
	if code, _, body := request(t, http.DefaultClient, "PUT", base+"/users/bob", bob); code != http.StatusNoContent {
		t.Fatalf("add bob: %d %s", code, body)
	}
	return base
}

// startShibboleth starts shibd and Apache as docs/security.md has them.
func startShibboleth(t *testing.T, ca *fixtures.CA, issuer, locket string) (base string) {
	t.Helper()
	folder, port := publicFolder(t), fixtures.FreePort(t)
	base = fmt.Sprintf("https://127.0.0.1:%d", port)
	settings := filepath.Join(folder, "shibboleth") // in place of /etc/shibboleth
	must(t, os.Mkdir(settings, 0o755))
	file := func(name, text string) string {
		path := filepath.Join(settings, name)
		must(t, os.WriteFile(path, []byte(text), 0o644))
		return path
	}
	read := func(path string) string {
		text, err := os.ReadFile(path)
		must(t, err)
		return string(text)
	}

	_, _, metadata := request(t, http.DefaultClient, "GET", issuer+"/metadata", "")
	file("idp-metadata.xml", metadata)
	file("attribute-map.xml", documented(t, `<Attributes xmlns="urn:mace:shibboleth:2.0:attribute-map">`))
	file("shibboleth2.xml", strings.NewReplacer("https://locket.example.com", base, "https://idp.example.com", issuer).
		Replace(documented(t, `<SPConfig xmlns="urn:mace:shibboleth:3.0:native:sp:config" clockSkew="180">`)))
	for _, name := range []string{"security-policy.xml", "protocols.xml"} {
		file(name, read("/etc/shibboleth/"+name))
	}
	for _, name := range []string{"shibd.logger", "native.logger"} { // to the terminal, not to /var/log
		file(name, read("/etc/shibboleth/console.logger"))
	}
	for _, name := range []string{"sp-signing", "sp-encrypt"} {
		if output, err := exec.Command("shib-keygen", "-n", name, "-o", settings, "-h", "localhost", "-u", "", "-g", "").CombinedOutput(); err != nil {
			t.Fatalf("shib-keygen: %v\n%s", err, output)
		}
	}
	env := []string{"SHIBSP_CFGDIR=" + folder, "SHIBSP_RUNDIR=" + folder, "SHIBSP_LOGDIR=" + folder, "SHIBSP_CACHEDIR=" + folder}
	background(t, folder, env, "shibd", "-F", "-c", filepath.Join(settings, "shibboleth2.xml"), "-p", filepath.Join(folder, "shibd.pid"))
	harness.Until(t, "shibd listens", func() bool { _, err := os.Stat(filepath.Join(settings, "shibd.sock")); return err == nil })

	cert, key := ca.Issue(t, "web")
	proxyCert, proxyKey := ca.Issue(t, "apache")
	config := strings.NewReplacer(
		"/etc/locket/ca.crt", file("ca.crt", read(ca.File)),
		"/etc/locket/proxy.pem", file("proxy.pem", read(proxyCert)+read(proxyKey)),
		"localhost:8892", strings.Replace(locket, "127.0.0.1", "localhost", 1),
	).Replace(documented(t, "SSLProxyEngine on"))
	startApache(t, folder, port, env, []string{"headers", "ssl"}, fmt.Sprintf(`
		LoadModule mod_shib /usr/lib/apache2/modules/mod_shib.so
		ShibConfig %s/shibboleth2.xml
		SSLEngine on
		SSLCertificateFile %s
		SSLCertificateKeyFile %s
		%s`, settings, cert, key, config))
	return base
}

// TestRealShibboleth: Apache with mod_shib has users sign in at a SAML identity provider, and sends their names to
// Locket, where it authenticates with a certificate.
func TestRealShibboleth(t *testing.T) {
	ca := fixtures.NewCA(t)
	audit := filepath.Join(t.TempDir(), "audit.log")
	server := harness.StartSecure(t, ca, "--tls-client-ca", ca.File, "--auth-proxies", "cert:apache",
		"--auth-proxy-groups-header", "X-Remote-Groups", "--trusted-proxies", "127.0.0.1", "--audit-log", audit)
	issuer := startIdentityProvider(t)
	base := startShibboleth(t, ca, issuer, server.HTTPAddress())

	web := browser{httpsClient(t, ca, "").Transport}
	code, _, metadata := request(t, &http.Client{Transport: web}, "GET", base+"/Shibboleth.sso/Metadata", "")
	if code != 200 {
		t.Fatalf("the metadata of Apache: %d %s", code, metadata)
	}
	if code, _, body := request(t, http.DefaultClient, "PUT", issuer+"/services/locket", metadata); code != http.StatusNoContent {
		t.Fatalf("the identity provider takes the metadata of Apache: %d %s", code, body)
	}

	stranger := &http.Client{Transport: web, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	for _, headers := range [][]string{nil, {"X-Remote-User: root"}, {"Cookie: _shibsession_64656661756c74=_0123456789abcdef"}} {
		code, header, body := request(t, stranger, "POST", base+"/v1/claims", `{"resource": "r", "ttl": 60}`, headers...)
		if code != http.StatusFound || !strings.HasPrefix(header.Get("Location"), issuer+"/sso?SAMLRequest=") {
			t.Errorf("who has not signed in, with %q: %d %v %s", headers, code, header, body)
		}
	}
	if text, err := os.ReadFile(audit); err != nil || strings.Contains(string(text), `"method"`) { // a line with one is a request
		t.Errorf("Locket had requests of somebody who has not signed in: %v %s", err, text)
	}

	jar, err := cookiejar.New(nil)
	must(t, err)
	person := &http.Client{Jar: jar, Transport: web}
	if code, page := signIn(t, person, base+"/v1/whoami", url.Values{"user": {"bob"}, "password": {"secret-of-bob"}}); code != 200 ||
		!strings.Contains(page, `{"name":"proxy:bob","groups":["proxy:builders","proxy:a,admins","proxy:b;admins"]`) {
		t.Fatalf("%d %s", code, page)
	}
	code, _, body := request(t, person, "POST", base+"/v1/claims", `{"id": "c", "resource": "r", "ttl": 60}`)
	if code != http.StatusCreated || !strings.Contains(body, `"identity":"proxy:bob"`) || !strings.Contains(body, `"url":"`+base+`/v1/claims/c/"`) {
		t.Errorf("%d %s", code, body)
	}
	harness.Until(t, "the claim in the audit log", func() bool { // lines are written beside the calls
		text, err := os.ReadFile(audit)
		must(t, err)
		return strings.Contains(string(text), `"identity":"proxy:bob"`)
	})
	staysBob(t, person, base)
	if _, _, body := request(t, person, "GET", base+"/v1/whoami", "", "X-Remote-Groups: wheel"); strings.Contains(body, "wheel") {
		t.Errorf("groups of the client's: %s", body)
	}

	// Headers of a client that calls Locket directly are ignored.
	direct := "https://" + server.HTTPAddress() + "/v1/whoami"
	if code, _, body := request(t, httpsClient(t, ca, ""), "GET", direct, "", "X-Remote-User: bob"); code != 401 {
		t.Errorf("without a certificate: %d %s", code, body)
	}
	if code, _, body := request(t, httpsClient(t, ca, "web"), "GET", direct, "", "X-Remote-User: bob"); code != 200 || !strings.Contains(body, `"cert:web"`) {
		t.Errorf("with another certificate: %d %s", code, body)
	}
}
