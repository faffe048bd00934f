//go:build auth

package auth_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/tests/harness"
)

// These tests run with the real programs: an OIDC provider from npm, Apache with
// mod_auth_openidc and with Shibboleth, nginx. `make test-auth` installs them.

// background runs a program until the test ends, or stop is called, and returns its output.
func background(t *testing.T, folder string, env []string, name string, args ...string) (output *fixtures.Buffer, stop func()) {
	t.Helper()
	output = &fixtures.Buffer{}
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr, cmd.Env = folder, output, output, append(os.Environ(), env...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 5 * time.Second
	must(t, cmd.Start())
	stop = sync.OnceFunc(func() { cancel(); _ = cmd.Wait() })
	t.Cleanup(func() {
		stop()
		if t.Failed() {
			t.Logf("%s printed:\n%s", name, output.String())
		}
	})
	return output, stop
}

func answers(address string) func() bool {
	return func() bool {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	}
}

// providerFolder has the provider with its modules, from npm.
var providerFolder = sync.OnceValues(func() (string, error) {
	folder, err := os.MkdirTemp("", "locket-provider-")
	if err != nil {
		return "", err
	}
	atEnd = append(atEnd, func() { _ = os.RemoveAll(folder) })
	if err := os.CopyFS(folder, os.DirFS("provider")); err != nil {
		return "", err
	}
	install := exec.Command("npm", "install", "--no-audit", "--no-fund")
	install.Dir = folder
	if output, err := install.CombinedOutput(); err != nil {
		return "", fmt.Errorf("npm install: %w\n%s", err, output)
	}
	return folder, nil
})

// startProvider starts the provider with a key of its own.
func startProvider(t *testing.T, port int, key string, env ...string) (issuer string, stop func()) {
	t.Helper()
	folder, err := providerFolder()
	must(t, err)
	_, stop = background(t, folder, env, "node", "provider.js", fmt.Sprint(port), key)
	harness.Until(t, "the provider listens", answers(fmt.Sprintf("127.0.0.1:%d", port)))
	return fmt.Sprintf("http://127.0.0.1:%d", port), stop
}

// jwtFrom asks the provider for an access token of a program.
func jwtFrom(t *testing.T, issuer, program, audience string) string {
	t.Helper()
	form := url.Values{"grant_type": {"client_credentials"}, "resource": {audience}, "scope": {"locks"}}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, issuer+"/token", strings.NewReader(form.Encode()))
	must(t, err)
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.SetBasicAuth(program, "secret-of-the-test")
	response, err := http.DefaultClient.Do(req)
	must(t, err)
	defer func() { _ = response.Body.Close() }()
	var answer struct {
		Credential string `json:"access_token"`
	}
	must(t, json.NewDecoder(response.Body).Decode(&answer))
	if answer.Credential == "" {
		t.Fatalf("no access token: %s", response.Status)
	}
	return answer.Credential
}

func TestRealOIDCProvider(t *testing.T) {
	port := fixtures.FreePort(t)
	issuer, stop := startProvider(t, port, "one")
	server := fixtures.StartLocket(t, harness.Embedded(t), "--oidc-issuers", issuer, "--oidc-audience", "urn:locket", "--oidc-groups-claim", "groups")
	whoami := func(credential string) (int, string) {
		code, _, body := request(t, http.DefaultClient, "GET", "http://"+server.HTTPAddress()+"/v1/whoami", "", "Authorization: Bearer "+credential)
		return code, body
	}
	want := func(what, credential string, code int) {
		t.Helper()
		if got, body := whoami(credential); got != code || code == 200 && !strings.Contains(body, `{"name":"oidc:ci","groups":["oidc:builders"]`) {
			t.Errorf("%s: %d %s", what, got, body)
		}
	}
	good := jwtFrom(t, issuer, "ci", "urn:locket")
	want("a credential", good, 200)
	want("a credential for somebody else", jwtFrom(t, issuer, "ci", "urn:other"), 401)
	parts := strings.Split(good, ".")
	none := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none","typ":"at+jwt"}`))
	want("alg none", none+"."+parts[1]+".", 401)
	want("alg none with a signature", none+"."+parts[1]+"."+parts[2], 401)
	short := jwtFrom(t, issuer, "short", "urn:locket")
	if code, _ := whoami(short); code != 200 {
		t.Errorf("a short credential: %d", code)
	}
	time.Sleep(2*time.Second + 31*time.Second) // and the skew
	want("an expired credential", short, 401)

	stop() // the provider comes back with other keys
	want("while the provider is away", good, 200)
	_, _ = startProvider(t, port, "two")
	rotated := jwtFrom(t, issuer, "ci", "urn:locket")
	harness.Until(t, "the new key is known", func() bool { code, _ := whoami(rotated); return code == 200 })
	want("a credential of the new key", rotated, 200)
	if strings.Contains(server.Log(), good) {
		t.Error("a credential is in the log")
	}

	t.Run("client credentials of the command line", func(t *testing.T) {
		secret := write(t, "secret", "secret-of-the-test\n")
		args := []string{"--address", server.Address(), "--oidc-issuer", issuer, "--oidc-client-id", "ci", "--oidc-client-secret-file", secret, "--oidc-scopes", "locks", "--oidc-audience", "urn:locket"}
		output, err := exec.Command(fixtures.LocketProgram(t), append([]string{"whoami", "-o", "name"}, args...)...).CombinedOutput()
		if err != nil || string(output) != "oidc:ci\n" {
			t.Errorf("%v: %s", err, output)
		}
		must(t, os.WriteFile(secret, []byte("wrong"), 0o600))
		output, err = exec.Command(fixtures.LocketProgram(t), append([]string{"whoami"}, args...)...).CombinedOutput()
		if err == nil || !strings.Contains(string(output), "no access token from "+issuer) || !strings.Contains(string(output), "invalid_client") {
			t.Errorf("with a wrong secret: %v: %s", err, output)
		}
	})
}

// TestRealNginx: nginx terminates TLS, and forwards the clients' credentials.
func TestRealNginx(t *testing.T) {
	ca := fixtures.NewCA(t)
	cert, key := ca.Issue(t, "nginx")
	file, credentials := credentialsFile(t, "alice")
	server := fixtures.StartLocket(t, harness.Embedded(t), "--auth-credentials", file, "--trusted-proxies", "127.0.0.1")
	rest, grpc := fixtures.FreePort(t), fixtures.FreePort(t)
	folder := t.TempDir()
	must(t, os.WriteFile(filepath.Join(folder, "nginx.conf"), fmt.Appendf(nil, `
		daemon off; master_process off; pid %[1]s/pid; error_log stderr;
		events {}
		http {
		  access_log off; client_body_temp_path %[1]s; proxy_temp_path %[1]s; fastcgi_temp_path %[1]s; uwsgi_temp_path %[1]s; scgi_temp_path %[1]s;
		  ssl_certificate %[2]s; ssl_certificate_key %[3]s;
		  server {
		    listen 127.0.0.1:%[4]d ssl;
		    location / {
		      proxy_set_header Host $http_host;
		      proxy_set_header X-Forwarded-Proto https;
		      proxy_set_header X-Remote-User "";
		      proxy_pass http://%[5]s;
		    }
		  }
		  server {
		    listen 127.0.0.1:%[6]d ssl http2;
		    location / { grpc_pass grpc://%[7]s; }
		  }
		}`, folder, cert, key, rest, server.HTTPAddress(), grpc, server.Address()), 0o600))
	background(t, folder, nil, "nginx", "-p", folder, "-c", filepath.Join(folder, "nginx.conf"))
	harness.Until(t, "nginx listens", answers(fmt.Sprintf("127.0.0.1:%d", grpc)))
	client := httpsClient(t, ca, "")
	url := fmt.Sprintf("https://127.0.0.1:%d/v1/claims", rest)
	code, header, body := request(t, client, "POST", url, `{"resource": "r", "ttl": 60}`, "Authorization: Bearer "+credentials["alice"])
	if code != 201 || !strings.Contains(body, `"credential:alice"`) || !strings.HasPrefix(header.Get("Location"), url) {
		t.Errorf("%d %s %s", code, header, body)
	}
	if code, header, _ := request(t, client, "GET", url, "", "X-Remote-User: root"); code != 401 || header.Get("Www-Authenticate") == "" {
		t.Errorf("without a credential: %d", code)
	}
	args := []string{"whoami", "-o", "name", "--address", fmt.Sprintf("127.0.0.1:%d", grpc), "--tls-ca", ca.File, "--credential-file", write(t, "credential", credentials["alice"])}
	if output, err := exec.Command(fixtures.LocketProgram(t), args...).CombinedOutput(); err != nil || string(output) != "credential:alice\n" {
		t.Errorf("gRPC: %v: %s", err, output)
	}
}

// TestRealApacheOIDC: Apache has users sign in at the provider, and sends their names to Locket.
func TestRealApacheOIDC(t *testing.T) {
	port, providerPort := fixtures.FreePort(t), fixtures.FreePort(t)
	base := fmt.Sprintf("http://127.0.0.1:%d", port)
	issuer, _ := startProvider(t, providerPort, "one", "REDIRECT_URIS="+base+"/signed-in")
	server := fixtures.StartLocket(t, harness.Embedded(t), "--auth-proxies", "loopback")
	startApache(t, publicFolder(t), port, nil, []string{"headers", "auth_openidc"}, fmt.Sprintf(`
		OIDCProviderMetadataURL %[1]s/.well-known/openid-configuration
		OIDCClientID web
		OIDCClientSecret secret-of-the-test
		OIDCRedirectURI %[2]s/signed-in
		OIDCCryptoPassphrase of-the-test
		OIDCRemoteUserClaim sub
		OIDCCookieSameSite On
		<Location />
		  AuthType openid-connect
		  Require valid-user
		  RequestHeader unset X-Remote-User
		  RequestHeader set X-Remote-User "expr=%%{REMOTE_USER}"
		  RequestHeader unset Authorization
		</Location>
		ProxyPass /signed-in !
		ProxyPass / http://%[3]s/
	`, issuer, base, server.HTTPAddress()))

	jar, err := cookiejar.New(nil)
	must(t, err)
	person := &http.Client{Jar: jar, Transport: browser{http.DefaultTransport}}
	code, page := signIn(t, person, base+"/v1/whoami", url.Values{"login": {"bob"}, "password": {"any"}})
	if code != 200 || !strings.Contains(page, `"proxy:bob"`) {
		t.Fatalf("%d %s", code, page)
	}
	staysBob(t, person, base)
	stranger := &http.Client{Transport: browser{http.DefaultTransport}, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	if code, header, _ := request(t, stranger, "GET", base+"/v1/whoami", "", "X-Remote-User: root"); code != http.StatusFound || !strings.HasPrefix(header.Get("Location"), issuer) {
		t.Errorf("who has not signed in: %d %v", code, header)
	}
}

// staysBob checks that no header changes the identity of a user who signed in as bob.
func staysBob(t *testing.T, person *http.Client, base string) {
	t.Helper()
	for _, header := range []string{"X-Remote-User: root", "x-remote-user: root", "X_Remote_User: root", "X-REMOTE-USER: root"} {
		if code, _, body := request(t, person, "GET", base+"/v1/whoami", "", header); code != 200 || !strings.Contains(body, `"proxy:bob"`) {
			t.Errorf("with %s: %d %s", header, code, body)
		}
	}
	if code, _, body := request(t, person, "GET", base+"/v1/whoami", "", "Connection: X-Remote-User"); code == 200 && !strings.Contains(body, `"proxy:bob"`) {
		t.Errorf("hop by hop: %d %s", code, body)
	}
}

// publicFolder is a temporary folder that other users may use too: Apache changes its user when
// root starts it.
func publicFolder(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	must(t, os.Chmod(filepath.Dir(folder), 0o755))
	must(t, os.Chmod(folder, 0o777))
	return folder
}

// startApache starts Apache on a port of loopback, as a proxy with some modules more.
func startApache(t *testing.T, folder string, port int, env, modules []string, config string) {
	t.Helper()
	text := ""
	for _, module := range append([]string{"mpm_event", "authn_core", "authz_core", "authz_user", "proxy", "proxy_http"}, modules...) {
		text += fmt.Sprintf("LoadModule %s_module /usr/lib/apache2/modules/mod_%s.so\n", module, module)
	}
	text += fmt.Sprintf(`
		ServerRoot %[1]s
		ServerName 127.0.0.1
		Listen 127.0.0.1:%[2]d
		PidFile %[1]s/pid
		DefaultRuntimeDir %[1]s
		Mutex pthread
		User www-data
		Group www-data
		ErrorLog /dev/stderr
		%[3]s`, folder, port, config)
	must(t, os.WriteFile(filepath.Join(folder, "apache.conf"), []byte(text), 0o644))
	background(t, folder, env, "apache2", "-f", filepath.Join(folder, "apache.conf"), "-DFOREGROUND")
	harness.Until(t, "Apache listens", answers(fmt.Sprintf("127.0.0.1:%d", port)))
}

// browser is a transport that accepts HTML: Apache answers others with 401 instead of a redirect.
type browser struct{ http.RoundTripper }

func (b browser) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Accept", "text/html,application/xhtml+xml,*/*;q=0.8")
	return b.RoundTripper.RoundTrip(r)
}

var (
	formAction = regexp.MustCompile(`<form[^>]*action="([^"]*)"`)
	hidden     = regexp.MustCompile(`<input[^>]*type="hidden"[^>]*name="([^"]*)"[^>]*value="([^"]*)"`)
)

// signIn opens a page, and fills in the forms that come before it.
func signIn(t *testing.T, person *http.Client, address string, fields url.Values) (int, string) {
	t.Helper()
	response, err := person.Get(address)
	for range 5 {
		must(t, err)
		text, err := io.ReadAll(response.Body)
		must(t, err)
		_ = response.Body.Close()
		action := formAction.FindSubmatch(text)
		if action == nil {
			return response.StatusCode, string(text)
		}
		form := url.Values{}
		for name, values := range fields {
			form[name] = values
		}
		for _, input := range hidden.FindAllSubmatch(text, -1) {
			form.Set(string(input[1]), html.UnescapeString(string(input[2])))
		}
		target, err := response.Request.URL.Parse(html.UnescapeString(string(action[1])))
		must(t, err)
		response, err = person.PostForm(target.String(), form)
		must(t, err)
	}
	t.Fatal("more than five forms")
	return 0, ""
}
