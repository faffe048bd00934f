package auth_test

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/tests/harness"
)

// hang replaces a file with a FIFO: opening it blocks, as on a file system that does not answer.
func hang(t *testing.T, path string) {
	t.Helper()
	must(t, syscall.Mkfifo(path+".fifo", 0o600))
	must(t, os.Rename(path+".fifo", path))
	t.Cleanup(func() { // unblocks processes that opened the FIFO
		if pipe, err := os.OpenFile(path, os.O_WRONLY|syscall.O_NONBLOCK, 0); err == nil {
			_ = pipe.Close()
		}
	})
}

// Files that hang delay no call, no renewal, no page and not the end of the server.
func TestFilesThatHang(t *testing.T) {
	t.Parallel()
	audit := filepath.Join(t.TempDir(), "audit.log")
	w := start(t, `rules: [{everybody: true, may: [all], resource_prefix: ""}]`+"\n", []string{"alice"}, "--audit-log", audit)
	rules, credentials := w.Args[len(w.Args)-1], w.Args[len(w.Args)-3]
	hang(t, rules)
	hang(t, credentials)
	renew := func() {
		ctx, cancel := context.WithTimeout(w.as("alice"), harness.HangTimeout)
		defer cancel()
		_, err := w.Lock(ctx, &models.LockRequest{Resource: &models.Resource{Key: "k", Owner: "o"}, TtlInSeconds: 60})
		must(t, err)
	}
	harness.Until(t, "a warning of /readyz", func() bool {
		renew()
		client := &http.Client{Timeout: harness.HangTimeout}
		code, _, body := request(t, client, "GET", "http://"+w.HTTPAddress()+"/readyz", "")
		return code == http.StatusOK && strings.Contains(body, "warning: --auth-rules: ") && strings.Contains(body, "warning: --auth-credentials: ")
	})
	renew()
	logs(t, w, rules+" cannot be read: its file system does not answer")
	if code, took := w.Terminate(); code != 0 {
		t.Errorf("it ended with %d after %v", code, took)
	}
}

// A server whose file hangs at its start names the file, and ends.
func TestStartOnAFileThatHangs(t *testing.T) {
	t.Parallel()
	ca := fixtures.NewCA(t)
	cert, key := ca.Issue(t, "server")
	credentials, _ := credentialsFile(t, "alice")
	rules := write(t, "rules.yaml", "rules: []\n")
	for _, file := range []string{rules, credentials, key} {
		content, err := os.ReadFile(file)
		must(t, err)
		hang(t, file)
		server := fixtures.NewLocket(t, harness.Embedded(t), "--auth-rules", rules, "--auth-credentials", credentials, "--tls-cert", cert, "--tls-key", key)
		if err := server.Start(); err == nil || !strings.Contains(server.Log(), file+" cannot be read: its file system does not answer") {
			t.Errorf("%s: %v\n%s", file, err, server.Log())
		}
		must(t, os.Remove(file))
		must(t, os.WriteFile(file, content, 0o600))
	}
}

// A truncated file of rules is accepted; the audit log and the log warn of the denials and examples that are gone.
func TestRulesThatLoseTheirEnd(t *testing.T) {
	const allow = `
rules:
  - {everybody: true, may: [hold], resource_prefix: ""}
`
	const deny = `
  - {everybody: true, may_not: [hold], resource: "frozen"}
examples:
  - {identity: "credential:alice", may_not: [hold], resource: "frozen"}
`
	audit := filepath.Join(t.TempDir(), "audit.log")
	w := startOn(t, harness.OneServer(t), allow+deny, []string{"alice"}, "--audit-log", audit)
	rules := w.Args[len(w.Args)-1]
	may := func() bool {
		_, err := w.Lock(w.as("alice"), &models.LockRequest{Resource: &models.Resource{Key: "frozen", Owner: "o"}, TtlInSeconds: 60})
		return err == nil
	}
	if may() {
		t.Fatal("the denial is not in force")
	}
	must(t, os.WriteFile(rules, []byte(allow), 0o600))
	harness.Until(t, "the rules", may)
	files := func() (lines []line) {
		return slices.DeleteFunc(audited(t, audit), func(l line) bool { return l["msg"] != "file" || l["setting"] != "--auth-rules" })
	}
	harness.Until(t, "a line of the audit log", func() bool { return len(files()) == 2 })
	if got := files()[0]; got["outcome"] != "in use" || !strings.HasPrefix(got["digest"].(string), "sha256:") {
		t.Errorf("at first: %v", got)
	}
	got := files()[1]
	removed, _ := got["removed"].([]any)
	warnings, _ := got["warnings"].([]any)
	if len(removed) != 2 || len(warnings) != 2 || !strings.Contains(warnings[0].(string), `everybody may not hold "frozen"`) || got["digest"] == files()[0]["digest"] {
		t.Errorf("%v", got)
	}
	logs(t, w, "its change is suspicious")
}
