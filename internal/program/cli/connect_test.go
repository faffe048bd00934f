package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/internal/program/cli/exit"
	"github.com/locket-service/locket/tests/harness"
)

// What is wrong with the settings is said in one line, with where it was said.
func TestSettingsRefused(t *testing.T) {
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	folder := t.TempDir()
	file := func(name, content string) string {
		path := filepath.Join(folder, name)
		harness.Must(t, os.WriteFile(path, []byte(content), 0o600))
		return path
	}
	const good = "testdata/contexts.yaml"
	for _, test := range []struct {
		env, args, words []string
	}{
		{nil, []string{"--timeout", "0s"}, []string{"--timeout", "0s"}},
		{[]string{"LOCKET_TIMEOUT=soon"}, nil, []string{"$LOCKET_TIMEOUT", "soon"}},
		{[]string{"LOCKET_INSECURE=perhaps"}, nil, []string{"$LOCKET_INSECURE", "perhaps", "true or false"}},
		{nil, []string{"--context", "nosuch"}, []string{"nosuch", "none"}},
		{nil, []string{"--context-file", good, "--context", "nosuch"}, []string{"nosuch", good, "commas, empty, several, usual"}},
		{nil, []string{"--context-file", filepath.Join(folder, "nosuch")}, []string{"nosuch"}},
		{nil, []string{"--context-file", file("unknown.yaml", "contexts: {a: {addr: x}}")}, []string{"unknown.yaml", "addr"}},
		{nil, []string{"--context-file", file("bad.yaml", "contexts: [")}, []string{"bad.yaml"}},
		{nil, []string{"--context-file", file("t.yaml", "current: a\ncontexts: {a: {timeout: soon}}")}, []string{"timeout of context \"a\"", "t.yaml", "soon"}},
		{nil, []string{"--address", "db.internal:8891"}, []string{"db.internal:8891", "--tls-ca", "--insecure"}},
		{nil, []string{"--address", "127.0.0.1"}, []string{"127.0.0.1", "port"}},
		{nil, []string{"--address", "127.0.0.1:1,"}, []string{`""`, "address"}},
		{nil, []string{"--insecure", "--tls-ca", "system"}, []string{"--insecure", "--tls-ca", "exclude"}},
		{nil, []string{"--tls-ca", "/nosuch.crt"}, []string{"/nosuch.crt"}},
		{nil, []string{"--tls-cert", good}, []string{"one without the other"}},
	} {
		t.Run(strings.Join(append(test.env, test.args...), " "), func(t *testing.T) {
			for _, variable := range test.env {
				name, value, _ := strings.Cut(variable, "=")
				t.Setenv(name, value)
			}
			complains(t, exit.Usage, append([]string{"fetch", "k"}, test.args...), test.words...)
		})
	}
}

// complains runs a command line that must end with a status and one line that holds the words.
func complains(t *testing.T, want int, args []string, words ...string) {
	t.Helper()
	stdout, stderr, status := inProcess(t, args...)
	if status != want || stdout != "" || !strings.HasPrefix(stderr, "locket: ") || strings.Count(stderr, "\n") != 1 {
		t.Errorf("locket %q: status %d, %q, %q; want %d and one line", args, status, stdout, stderr, want)
	}
	for _, word := range words {
		if !strings.Contains(stderr, word) {
			t.Errorf("locket %q says nothing of %q: %s", args, word, stderr)
		}
	}
}

func TestSeveralAddresses(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	c.run("lock", "k", "--owner", "me", "--ttl", "1h")
	c.address = "127.0.0.1:1," + c.address
	if out := c.run("fetch", "k", "-o", "name"); out != "k\n" {
		t.Errorf("%q", out)
	}
}

func TestUnreachable(t *testing.T) {
	t.Parallel()
	server := fixtures.StartLocket(t, harness.OneServer(t))
	at := func(address string, more ...string) []string {
		return append([]string{"fetch", "k", "--context-file", os.DevNull, "--address", address}, more...)
	}
	complains(t, exit.Failure, at("127.0.0.1:1"), "127.0.0.1:1", "connection refused", "locket server", "--address", "$LOCKET_ADDRESS")
	complains(t, exit.Failure, at("127.0.0.1:1,127.0.0.1:2"), "127.0.0.1:1,127.0.0.1:2", "connection refused")
	complains(t, exit.Failure, at(server.HTTPAddress()), server.HTTPAddress(), "HTTP port", "8891")
	complains(t, exit.Failure, at(server.Address(), "--tls-ca", "system"), "plain text", "--tls")

	proxy := fixtures.NewProxy(t, server.Address())
	proxy.Hang()
	complains(t, exit.Failure, at(proxy.Addr(), "--timeout", "3s"), proxy.Addr(), "3s", "--timeout")
}

func TestTLSByFlagsAndContext(t *testing.T) {
	t.Parallel()
	ca := fixtures.NewCA(t)
	cert, key := ca.Issue(t, "server")
	server := fixtures.NewLocket(t, harness.OneServer(t), "--tls-cert", cert, "--tls-key", key, "--tls-client-ca", ca.File)
	server.ClientTLS = ca.ClientTLS(t)
	harness.Must(t, server.Start())
	mine, myKey := ca.Issue(t, "me")
	at := func(flags ...string) []string {
		return append([]string{"lock", "k", "--owner", "me", "--context-file", os.DevNull, "--address", server.Address()}, flags...)
	}
	if _, stderr, status := inProcess(t, at("--tls-ca", ca.File, "--tls-cert", mine, "--tls-key", myKey)...); status != exit.OK {
		t.Error(stderr)
	}
	file := filepath.Join(filepath.Dir(ca.File), "contexts.yaml")
	text := "contexts: {secure: {address: '" + server.Address() + "', tls_ca: " + filepath.Base(ca.File) + ", tls_cert: " + mine + ", tls_key: " + myKey + "}}"
	harness.Must(t, os.WriteFile(file, []byte(text), 0o600))
	if stdout, stderr, status := inProcess(t, "fetch", "k", "-o", "name", "--context-file", file, "--context", "secure"); status != exit.OK || stdout != "k\n" {
		t.Error(stdout, stderr)
	}

	stranger := fixtures.NewCA(t)
	theirs, theirKey := stranger.Issue(t, "they")
	complains(t, exit.Failure, at(), server.Address(), "does the server want TLS?", "--tls-ca")
	complains(t, exit.Failure, at("--tls-ca", ca.File), "--tls-cert and --tls-key")
	complains(t, exit.Failure, at("--tls-ca", ca.File, "--tls-cert", theirs, "--tls-key", theirKey), "--tls-cert and --tls-key")
	complains(t, exit.Failure, at("--tls-ca", stranger.File, "--tls-cert", mine, "--tls-key", myKey), "unknown authority", "did --tls-ca issue")
	expired, expiredKey := ca.Issue(t, "me", fixtures.Expired())
	complains(t, exit.Failure, at("--tls-ca", ca.File, "--tls-cert", expired, "--tls-key", expiredKey), "--tls-cert")
}
