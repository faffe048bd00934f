package cli

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/locket-service/locket/internal/doors/auth"
	"github.com/locket-service/locket/tests/harness"
)

// runCredential carries out locket credential, and returns its output.
func runCredential(t *testing.T, arguments ...string) (string, error) {
	t.Helper()
	cmd := newCredentialCommand()
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	cmd.SetArgs(arguments)
	err := cmd.ExecuteContext(t.Context())
	return strings.TrimSpace(out.String()), err
}

// good reports whether a credential is in a file.
func good(t *testing.T, file, text string) bool {
	t.Helper()
	content, err := os.ReadFile(file)
	harness.Must(t, err)
	credentials, err := auth.ParseCredentials(content)
	harness.Must(t, err)
	_, err = credentials.Find(text, time.Now())
	return err == nil
}

// Each credential that is printed is in the file, however many are made at once.
func TestCredentialsMadeTogether(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "credentials.yaml")
	made := make([]string, 30)
	var group sync.WaitGroup
	for i := range made {
		group.Go(func() {
			text, err := runCredential(t, "new", "ci", "--file", file)
			if err != nil {
				t.Error(err)
			}
			made[i] = text
		})
	}
	group.Wait()
	for _, text := range made {
		if !good(t, file, text) {
			t.Error("a credential that was printed is not in the file")
		}
	}
	left, err := os.ReadDir(filepath.Dir(file))
	harness.Must(t, err)
	if len(left) != 1 {
		t.Errorf("the folder has %v", left)
	}
}

// The file keeps its mode, its owner and the link that leads to it.
func TestCredentialsFileStaysAsItIs(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	file, link := filepath.Join(folder, "credentials.yaml"), filepath.Join(t.TempDir(), "link")
	harness.Must(t, errors.Join(os.WriteFile(file, nil, 0o600), os.Chmod(file, 0o640), os.Symlink(file, link)))
	if os.Getuid() == 0 {
		harness.Must(t, os.Chown(file, 12, 34))
	}
	before, err := os.Stat(file)
	harness.Must(t, err)
	text, err := runCredential(t, "new", "ci", "--file", link)
	harness.Must(t, err)
	after, err := os.Lstat(file)
	harness.Must(t, err)
	was, is := before.Sys().(*syscall.Stat_t), after.Sys().(*syscall.Stat_t)
	if after.Mode() != before.Mode() || is.Uid != was.Uid || is.Gid != was.Gid || !good(t, file, text) {
		t.Errorf("it is %v of %d:%d, was %v of %d:%d", after.Mode(), is.Uid, is.Gid, before.Mode(), was.Uid, was.Gid)
	}
	if target, err := os.Readlink(link); err != nil || target != file {
		t.Errorf("the link leads to %s: %v", target, err)
	}
}

// A failure leaves the file unchanged, and prints no credential.
func TestCredentialsFileRefused(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(file string) error{
		"others":         func(file string) error { return os.Chmod(file, 0o644) },
		"hard links":     func(file string) error { return os.Link(file, file+".other") },
		"add it by hand": func(file string) error { return os.WriteFile(file, []byte("credentials: []\n"), 0o600) },
		"no file":        func(file string) error { return errors.Join(os.Remove(file), os.Symlink("nowhere", file)) },
	} {
		file := filepath.Join(t.TempDir(), "credentials.yaml")
		harness.Must(t, os.WriteFile(file, []byte("credentials:\n"), 0o600))
		harness.Must(t, spoil(file))
		before, _ := os.ReadFile(file)
		text, err := runCredential(t, "new", "ci", "--file", file)
		after, _ := os.ReadFile(file)
		if err == nil || !strings.Contains(err.Error(), name) || strings.Contains(text, auth.CredentialStart) || !bytes.Equal(before, after) {
			t.Errorf("%s: %v, %q", name, err, text)
		}
	}
}

// A credential ends after 90 days, or when it is said; the list shows it.
func TestCredentialTTL(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "credentials.yaml")
	for _, arguments := range [][]string{{"usual"}, {"short", "--ttl", "1h", "--groups", "a,b"}, {"long", "--ttl", "0"}} {
		_, err := runCredential(t, append([]string{"new", "--file", file}, arguments...)...)
		harness.Must(t, err)
	}
	content, err := os.ReadFile(file)
	harness.Must(t, err)
	credentials, err := auth.ParseCredentials(content)
	harness.Must(t, err)
	list, err := runCredential(t, "list", file)
	harness.Must(t, err)
	lines := strings.Split(list, "\n")
	for i, ttl := range []time.Duration{90 * 24 * time.Hour, time.Hour, 0} {
		entry := credentials.Entries()[i]
		if left := time.Until(entry.Expires); ttl == 0 != entry.Expires.IsZero() || ttl > 0 && (left > ttl || left < ttl-10*time.Minute) { // real time: ten minutes are long enough for any machine
			t.Errorf("%s ends at %v", entry.Name, entry.Expires)
		}
		if line := lines[i+1]; !strings.HasSuffix(line, entry.ID()) || !strings.Contains(line, "credential:"+entry.Name) || ttl == 0 != strings.Contains(line, "never") {
			t.Errorf("the list says %q", line)
		}
	}
	if _, err := runCredential(t, "new", "ci", "--ttl", "-1h"); err == nil {
		t.Error("a TTL that has passed")
	}
}

// The rules are shown beside the credentials that they are about.
func TestRulesOfCredentials(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	file, rules := filepath.Join(folder, "credentials.yaml"), filepath.Join(folder, "rules.yaml")
	_, err := runCredential(t, "new", "ci", "--file", file, "--groups", "builders")
	harness.Must(t, err)
	harness.Must(t, os.WriteFile(rules, []byte(`rules:
  - {identity: "credential:ci", may: [hold], resource_prefix: ""}
  - {group: "credential:builders", may: [read], resource_prefix: ""}
  - {identity: "credential:gone", may: [all], resource_prefix: ""}
  - {identity: "oidc:alice", may: [all], resource_prefix: ""}
`), 0o600))
	cmd := newRulesCommand()
	var out, warned bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetErr(&warned)
	cmd.SetArgs([]string{"check", rules, "--credentials", file})
	harness.Must(t, cmd.ExecuteContext(t.Context()))
	content, err := os.ReadFile(file)
	harness.Must(t, err)
	credentials, err := auth.ParseCredentials(content)
	harness.Must(t, err)
	want := "credential " + credentials.Entries()[0].ID() + " of credential:ci in builders until "
	if _, after, found := strings.Cut(out.String(), want); !found || !strings.Contains(after, "\n  line 2: ") || !strings.Contains(after, "\n  line 3: ") || strings.Contains(after, "  line 4") {
		t.Errorf("it says:\n%s", &out)
	}
	if !strings.Contains(warned.String(), "line 4: the credentials file has no credential:gone") || strings.Contains(warned.String(), "alice is") {
		t.Errorf("it warns:\n%s", &warned)
	}
}
