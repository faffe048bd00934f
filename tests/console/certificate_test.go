//go:build browser

package console_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/lock"
	"github.com/locket-service/locket/lock/conn"
	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/tests/harness"
)

// withCertificate returns a home for a browser that trusts a certificate authority, and shows a certificate of a name
// by it where the page asks for one. The policy AutoSelectCertificateForUrls sets this for the whole machine; the
// test sets it only in the profile.
func withCertificate(t *testing.T, ca *fixtures.CA, name string) (home string) {
	t.Helper()
	home = t.TempDir()
	database, both := filepath.Join(home, ".pki", "nssdb"), filepath.Join(home, "client.p12")
	harness.Must(t, os.MkdirAll(database, 0o700))
	cert, key := ca.Issue(t, name)
	for _, command := range []*exec.Cmd{
		exec.CommandContext(t.Context(), "certutil", "-N", "--empty-password", "-d", "sql:"+database),
		exec.CommandContext(t.Context(), "certutil", "-A", "-n", "authority", "-t", "C,,", "-i", ca.File, "-d", "sql:"+database),
		exec.CommandContext(t.Context(), "openssl", "pkcs12", "-export", "-in", cert, "-inkey", key, "-name", name, "-passout", "pass:", "-out", both),
		exec.CommandContext(t.Context(), "pk12util", "-i", both, "-W", "", "-d", "sql:"+database),
	} {
		if output, err := command.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", command, err, output)
		}
	}
	profile := filepath.Join(home, "profile", "Default")
	harness.Must(t, os.MkdirAll(profile, 0o700))
	harness.Must(t, os.WriteFile(filepath.Join(profile, "Preferences"), []byte(`{"profile": {"content_settings": {"exceptions": {"auto_select_certificate":
		{"https://127.0.0.1,*": {"setting": {"filters": [{}]}}}}}}}`), 0o600))
	return home
}

// startWithRoles starts a server with rules for the certificates of ops, a reader and a builder. It returns the builder's client.
func startWithRoles(t *testing.T, ca *fixtures.CA, args ...string) (server *fixtures.Locket, builder models.LocketClient) {
	t.Helper()
	rules := rulesFile(t, `rules:
  - {identity: "cert:ops", may: [all], resource_prefix: ""}
  - {identity: "cert:reader", may: [read], resource_prefix: ""}
  - {identity: "cert:builder", may: [read, hold], resource_prefix: ""}
`)
	server = harness.StartSecure(t, ca, append(args, "--tls-client-ca", ca.File, "--auth-rules", rules)...)
	files := conn.Files{CA: ca.File}
	files.Cert, files.Key = ca.Issue(t, "builder")
	dialed, err := lock.Dial([]string{server.Address()}, conn.WithTLSFiles(files))
	harness.Must(t, err)
	t.Cleanup(func() { _ = dialed.Close() })
	return server, models.NewLocketClient(dialed)
}

// TestBrowserCertificate: a browser that has a client certificate is signed in by it, without a proxy: the page is live, and offers
// what the rules allow the certificate's name.
func TestBrowserCertificate(t *testing.T) {
	ca := fixtures.NewCA(t)
	server, builder := startWithRoles(t, ca)
	claimOf(t, builder, "deploy", "alice", time.Hour)

	page := "https://" + server.HTTPAddress() + "/console/#/resources/deploy"
	reader := startBrowserIn(t, withCertificate(t, ca, "reader")).open(page)
	reader.shows("cert:reader")
	reader.shows("You may not: it is not yours, and no rule gives you the right revoke here.")
	p := startBrowserIn(t, withCertificate(t, ca, "ops")).open(page)
	p.shows("cert:ops")
	p.shows("Live")
	p.shows("by alice")
	p.click("button", "Revoke…")
	p.click("dialog button", "Revoke")
	p.shows("It is free.")
}
