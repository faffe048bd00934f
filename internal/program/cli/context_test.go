package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/locket-service/locket/internal/program/cli/exit"
	"github.com/locket-service/locket/tests/harness"
)

// context set creates the file and a context, changes only what is given, and keeps the rest of the file with its comments.
func TestContextSet(t *testing.T) {
	folder := t.TempDir()
	t.Chdir(folder)
	t.Setenv("LOCKET_CONTEXT_FILE", filepath.Join(folder, "new", "contexts.yaml"))
	file := os.Getenv("LOCKET_CONTEXT_FILE")
	set := func(want string, args ...string) {
		t.Helper()
		_, stderr, status := inProcess(t, append([]string{"context", "set"}, args...)...)
		if got, err := os.ReadFile(file); status != exit.OK || err != nil || string(got) != want {
			t.Errorf("%q: status %d, %s; %v, %s", args, status, stderr, err, got)
		}
	}
	const a = "current: a\ncontexts:\n  a:\n    address: x:1,y:1\n    tls_ca: system\n"
	set(a, "a", "--address", "x:1,y:1", "--tls-ca", "system")
	set(a+"  b:\n    insecure: true\n    timeout: 3s\n", "b", "--insecure", "--timeout", "3")
	set(strings.ReplaceAll(a, "system", folder+"/ca.crt")+"  b:\n    insecure: true\n    timeout: 3s\n", "a", "--tls-ca", "ca.crt")
	harness.Must(t, os.WriteFile(file, []byte("# mine\n"+a+"  b: {timeout: 3s} # fast\n"), 0o600))
	set("# mine\n"+a+"  b: {timeout: 3s, insecure: false} # fast\n", "b", "--insecure=false")
	set("# mine\n"+strings.ReplaceAll(a, "    tls_ca: system\n", "")+"  b: {timeout: 3s, insecure: false} # fast\n", "a", "--tls-ca", "")
	complains(t, exit.Usage, []string{"context", "set", "b", "--timeout", "x"}, "--timeout")
	harness.Must(t, os.WriteFile(file, []byte("contexts: ["), 0o600))
	complains(t, exit.Usage, []string{"context", "set", "b", "--address", "x:1"}, file)
	complains(t, exit.Failure, []string{"context", "set", "b", "--address", "x:1", "--context-file", folder}, folder+": is a directory")
}

// A context that is used is the current one, and nothing else in the file changes.
func TestContextUse(t *testing.T) {
	const rest = "# mine\ncontexts:\n  staging: {address: 's:1', tls_ca: system}   # a note\n  a b:\n    address: [x:1, y:1]\n    insecure: true\n  me: {tls_cert: c, tls_key: k}\n  ci: {credential_file: f}\n"
	for before, after := range map[string]string{
		rest:                                     "current: staging\n" + rest,
		"current: me\n" + rest:                   "current: staging\n" + rest,
		"current: me  # why\n" + rest:            "current: staging  # why\n" + rest,
		rest + "current: \"a b\"\n":              rest + "current: staging\n",
		"current:\n" + rest:                      "current: staging\n" + rest,
		strings.TrimSuffix(rest, "\n"):           "current: staging\n" + strings.TrimSuffix(rest, "\n"),
		"current: \"#x\"\n" + rest:               "", // what is not understood stays
		"{current: me, contexts: {staging: }}":   "",
		"current: >-\n  me\n" + rest:             "",
		"---\n" + rest:                           "",
		"current: me\ncontexts:\n  staging:\n":   "current: staging\ncontexts:\n  staging:\n",
		"contexts:\n  current: me\n  staging:\n": "",
	} {
		file := filepath.Join(t.TempDir(), "contexts.yaml")
		link := file + ".link"
		harness.Must(t, os.WriteFile(file, []byte(before), 0o640))
		harness.Must(t, os.Symlink(file, link))
		_, stderr, status := inProcess(t, "context", "use", "staging", "--context-file", link)
		got, err := os.ReadFile(file)
		harness.Must(t, err)
		want := after
		if after == "" {
			want = before
		}
		if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o640 || string(got) != want || (status == exit.Usage) != (after == "") {
			t.Errorf("%q: %q, status %d, %s; %v", before, got, status, stderr, err)
		}
	}
	file := filepath.Join(t.TempDir(), "contexts.yaml")
	complains(t, exit.Usage, []string{"context", "use", "x", "--context-file", file + "/none"}, "unknown context", "it has: none")
	complains(t, exit.Usage, []string{"context", "use", "x", "--context-file", file}, "unknown context", "it has: none")
	complains(t, exit.Usage, []string{"context", "use"}, "NAME is missing")
	harness.Must(t, os.WriteFile(file, []byte("current: me\n"+rest), 0o600))
	complains(t, exit.Usage, []string{"context", "use", "prod", "--context-file", file}, `unknown context "prod"`, "a b, ci, me, staging")
	t.Setenv("LOCKET_CONTEXT_FILE", file)
	if stdout, stderr, status := inProcess(t, "context", "list", "-o", "name"); stdout != "a b\nci\nme\nstaging\n" || status != exit.OK {
		t.Errorf("%s %s %d", stdout, stderr, status)
	}
	want := "CURRENT  NAME     ADDRESS         TLS       CREDENTIAL\n" +
		"-        a b      x:1,y:1         insecure  -\n" +
		"-        ci       127.0.0.1:8891  -         file\n" +
		"*        me       127.0.0.1:8891  mutual    certificate\n" +
		"-        staging  s:1             server    -\n"
	if stdout, stderr, status := inProcess(t, "context", "list"); stdout != want || status != exit.OK {
		t.Errorf("%s %s %d", stdout, stderr, status)
	}
	stdout, _, _ := inProcess(t, "context", "list", "-o", "json")
	if !strings.Contains(stdout, `"name": "me",`+"\n    \"current\": true,") {
		t.Error(stdout)
	}
	if stdout, _, _ := inProcess(t, "__complete", "context", "use", ""); !strings.HasPrefix(stdout, "a b\nci\nme\nstaging\n") {
		t.Error(stdout)
	}
	t.Setenv("LOCKET_CONTEXT", "ci")
	if _, stderr, status := inProcess(t, "context", "use", "staging"); status != exit.OK || !strings.Contains(stderr, `$LOCKET_CONTEXT is "ci", and comes first`) {
		t.Errorf("%d %s", status, stderr)
	}
	if stdout, _, _ := inProcess(t, "context", "list"); !strings.Contains(stdout, "*        ci ") {
		t.Error(stdout)
	}
}
