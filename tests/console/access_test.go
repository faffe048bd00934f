//go:build browser

package console_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/lock"
	"github.com/locket-service/locket/lock/conn"
	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/tests/harness"
)

// newCredential adds a bearer credential to a file, and returns it.
func newCredential(t *testing.T, file, name string, more ...string) string {
	t.Helper()
	command := exec.CommandContext(t.Context(), fixtures.LocketProgram(t), append([]string{"credential", "new", name, "--file", file}, more...)...)
	printed, err := command.Output()
	harness.Must(t, err)
	return strings.TrimSpace(string(printed))
}

// rulesFile writes a file of rules.
func rulesFile(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "rules.yaml")
	harness.Must(t, os.WriteFile(file, []byte(text), 0o600))
	return file
}

// TestBrowserAccess: the page asks for a credential, shares it with other tabs and keeps it in none of the browser's stores; what
// the rules do not allow is not offered, and says why; when the credential ends the page asks for another one.
func TestBrowserAccess(t *testing.T) {
	folder := t.TempDir()
	file := filepath.Join(folder, "credentials.yaml")
	admin, reader := newCredential(t, file, "admin"), newCredential(t, file, "reader")
	rules := rulesFile(t, `rules:
  - {identity: "credential:admin", may: [all], resource_prefix: ""}
  - {identity: "credential:reader", may: [read], resource_prefix: ""}
`)
	server := fixtures.StartLocket(t, harness.OneServer(t), "--auth-credentials", file, "--auth-rules", rules) // tabs of one server share the credential
	credential := filepath.Join(folder, "admin")
	harness.Must(t, os.WriteFile(credential, []byte(admin), 0o600))
	dialed, err := lock.Dial([]string{server.Address()}, conn.WithCredentialFile(credential))
	harness.Must(t, err)
	t.Cleanup(func() { _ = dialed.Close() })
	claimOf(t, models.NewLocketClient(dialed), "r", "alice", time.Hour)

	b := startBrowser(t)
	p := b.open(console(server, "resources/r"), "401", "403", "net::ERR")
	p.shows("Sign in")
	p.until("document.querySelector('input[name=credential]') !== null")
	p.tabTo("input[name=credential]", "")
	p.write("wrong")
	p.press("Enter")
	p.until("document.querySelector('input[name=credential]')?.value === ''")
	p.tabTo("input[name=credential]", "")
	p.write(reader)
	p.press("Enter")
	p.shows("credential:reader")
	p.shows("You may not: it is not yours, and no rule gives you the right revoke here.")
	if p.is("[...document.querySelectorAll('button')].some((b) => b.innerText.includes('Revoke'))") {
		t.Error("revoking is offered without the right")
	}
	if !p.is("localStorage.length === 0 && sessionStorage.length === 0 && document.cookie === '' && !location.href.includes(" + quoted(reader) + ")") {
		t.Error("the browser keeps the credential")
	}
	other := b.open(console(server, "whoami?resource=r"), "401", "403", "net::ERR")
	other.shows("credential:reader")
	other.shows("may not: no rule allows it")

	none := filepath.Join(folder, "none.yaml")
	newCredential(t, none, "admin")
	harness.Must(t, os.Rename(none, file)) // the reader's is withdrawn
	p.until("document.querySelector('input[name=credential]') !== null")
	other.until("document.querySelector('input[name=credential]') !== null")
	if strings.Contains(server.Log(), reader) {
		t.Error("the credential is in the log")
	}
}
