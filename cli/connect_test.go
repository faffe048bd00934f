package cli

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/locket-service/locket/fixtures"
)

const contextsForTest = `
current: usual
contexts:
  usual:
    address: usual:1
    tls_ca: usual.crt
    timeout: 1m
  several:
    address: [a:1, "b:2"]
    insecure: true
  commas: {address: "c:3, d:4", tls_ca: system, tls_cert: /abs/c.crt, tls_key: c.key}
  empty:
`

// A flag comes before the environment, that before the context, that before the default.
func TestSettingsPrecedence(t *testing.T) {
	folder := t.TempDir()
	file := filepath.Join(folder, "contexts.yaml")
	must(t, os.WriteFile(file, []byte(contextsForTest), 0o600))
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	in := func(name string) string { return filepath.Join(folder, name) }
	usual := settings{addresses: []string{"usual:1"}, tlsCA: in("usual.crt"), timeout: time.Minute}
	change := func(s settings, do func(*settings)) settings { do(&s); return s }

	for name, test := range map[string]struct {
		env  []string
		args []string
		want settings
	}{
		"nothing": {nil, nil, settings{addresses: []string{defaultGRPCAddress}, timeout: clientTimeout}},
		"environment": {
			[]string{"LOCKET_ADDRESS=e:1,f:2", "LOCKET_TLS_CA=e.crt", "LOCKET_TLS_CERT=f.crt", "LOCKET_TLS_KEY=f.key", "LOCKET_TIMEOUT=3s"},
			nil,
			settings{addresses: []string{"e:1", "f:2"}, tlsCA: "e.crt", tlsCert: "f.crt", tlsKey: "f.key", timeout: 3 * time.Second},
		},
		"flag over environment": {
			[]string{"LOCKET_ADDRESS=e:1", "LOCKET_TIMEOUT=3s", "LOCKET_INSECURE=true"},
			[]string{"--address", "g:1", "--timeout", "4s", "--insecure=false"},
			settings{addresses: []string{"g:1"}, timeout: 4 * time.Second},
		},
		"an empty flag over environment": {
			[]string{"LOCKET_ADDRESS=e:1", "LOCKET_TLS_CA=e.crt"},
			[]string{"--tls-ca", "", "--address", ""},
			settings{addresses: []string{defaultGRPCAddress}, timeout: clientTimeout},
		},
		"an empty variable says nothing":    {[]string{"LOCKET_ADDRESS=", "LOCKET_CONTEXT_FILE=" + file}, nil, usual},
		"current context, file by flag":     {nil, []string{"--context-file", file}, usual},
		"current context, file by variable": {[]string{"LOCKET_CONTEXT_FILE=" + file}, nil, usual},
		"file: flag over environment":       {[]string{"LOCKET_CONTEXT_FILE=/nosuch"}, []string{"--context-file", file}, usual},
		"context by flag": {
			nil,
			[]string{"--context-file", file, "--context", "several"},
			settings{addresses: []string{"a:1", "b:2"}, insecure: true, timeout: clientTimeout},
		},
		"context by variable": {
			[]string{"LOCKET_CONTEXT_FILE=" + file, "LOCKET_CONTEXT=commas"},
			nil,
			settings{addresses: []string{"c:3", "d:4"}, tlsCA: "system", tlsCert: "/abs/c.crt", tlsKey: in("c.key"), timeout: clientTimeout},
		},
		"context: flag over environment": {
			[]string{"LOCKET_CONTEXT_FILE=" + file, "LOCKET_CONTEXT=commas"},
			[]string{"--context", "empty"},
			settings{addresses: []string{defaultGRPCAddress}, timeout: clientTimeout},
		},
		"no context": {
			[]string{"LOCKET_CONTEXT_FILE=" + file},
			[]string{"--context", ""},
			settings{addresses: []string{defaultGRPCAddress}, timeout: clientTimeout},
		},
		"environment over context, one by one": {
			[]string{"LOCKET_CONTEXT_FILE=" + file, "LOCKET_ADDRESS=e:1"},
			nil,
			change(usual, func(s *settings) { s.addresses = []string{"e:1"} }),
		},
		"flag over context, one by one": {
			[]string{"LOCKET_CONTEXT_FILE=" + file},
			[]string{"--timeout", "4s"},
			change(usual, func(s *settings) { s.timeout = 4 * time.Second }),
		},
		"the server's own file is another": {
			[]string{"LOCKET_CONFIG=" + file}, nil, settings{addresses: []string{defaultGRPCAddress}, timeout: clientTimeout},
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, variable := range test.env {
				name, value, _ := strings.Cut(variable, "=")
				t.Setenv(name, value)
			}
			cmd := &cobra.Command{}
			connect.AddFlags(cmd)
			must(t, cmd.ParseFlags(test.args))
			got, err := settingsOf(cmd.Flags())
			if err != nil || !reflect.DeepEqual(got, test.want) {
				t.Errorf("%+v, %v, want %+v", got, err, test.want)
			}
		})
	}
}

func TestDefaultContextFile(t *testing.T) {
	t.Setenv("HOME", "/home/me")
	for folder, want := range map[string]string{
		"/x": "/x/locket/contexts.yaml", "": "/home/me/.config/locket/contexts.yaml", "relative": "/home/me/.config/locket/contexts.yaml",
	} {
		t.Setenv("XDG_CONFIG_HOME", folder)
		if got := defaultContextFile(); got != want {
			t.Errorf("%q: %s, want %s", folder, got, want)
		}
	}
}

// What is wrong with the settings is said in one line, with where it was said.
func TestSettingsRefused(t *testing.T) {
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	folder := t.TempDir()
	file := func(name, content string) string {
		path := filepath.Join(folder, name)
		must(t, os.WriteFile(path, []byte(content), 0o600))
		return path
	}
	good := file("good.yaml", contextsForTest)
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
	c.run("lock", "k", "--owner", "me")
	c.address = "127.0.0.1:1," + c.address
	if out := c.run("fetch", "k", "-o", "name"); out != "k\n" {
		t.Errorf("%q", out)
	}
}

func TestUnreachable(t *testing.T) {
	t.Parallel()
	server := fixtures.StartLocket(t, sqliteFile(t))
	at := func(address string, more ...string) []string {
		return append([]string{"fetch", "k", "--context-file", os.DevNull, "--address", address}, more...)
	}
	complains(t, exit.Failure, at("127.0.0.1:1"), "127.0.0.1:1", "connection refused", "locket server", "--address", "$LOCKET_ADDRESS")
	complains(t, exit.Failure, at("127.0.0.1:1,127.0.0.1:2"), "127.0.0.1:1,127.0.0.1:2", "connection refused")
	complains(t, exit.Failure, at(server.HTTPAddress()), server.HTTPAddress(), "HTTP port", "8891")
	complains(t, exit.Failure, at(server.Address(), "--tls-ca", "system"), "plain text", "--tls")

	proxy := fixtures.NewProxy(t, server.Address())
	proxy.Hang()
	complains(t, exit.Failure, at(proxy.Addr(), "--timeout", "300ms"), proxy.Addr(), "300ms", "--timeout")
}

func TestTLSByFlagsAndContext(t *testing.T) {
	t.Parallel()
	ca := fixtures.NewCA(t)
	cert, key := ca.Issue(t, "server")
	server := fixtures.NewLocket(t, sqliteFile(t), "--tls-cert", cert, "--tls-key", key, "--tls-client-ca", ca.File)
	server.ClientTLS = ca.ClientTLS(t)
	must(t, server.Start())
	mine, myKey := ca.Issue(t, "me")
	at := func(flags ...string) []string {
		return append([]string{"lock", "k", "--owner", "me", "--context-file", os.DevNull, "--address", server.Address()}, flags...)
	}
	if _, stderr, status := inProcess(t, at("--tls-ca", ca.File, "--tls-cert", mine, "--tls-key", myKey)...); status != exit.OK {
		t.Error(stderr)
	}
	file := filepath.Join(filepath.Dir(ca.File), "contexts.yaml")
	text := "contexts: {secure: {address: '" + server.Address() + "', tls_ca: " + filepath.Base(ca.File) + ", tls_cert: " + mine + ", tls_key: " + myKey + "}}"
	must(t, os.WriteFile(file, []byte(text), 0o600))
	if stdout, stderr, status := inProcess(t, "fetch", "k", "-o", "name", "--context-file", file, "--context", "secure"); status != exit.OK || stdout != "k\n" {
		t.Error(stdout, stderr)
	}

	stranger := fixtures.NewCA(t)
	theirs, theirKey := stranger.Issue(t, "they")
	complains(t, exit.Failure, at(), server.Address(), "does the server want TLS?", "--tls-ca")
	complains(t, exit.Failure, at("--tls-ca", ca.File), "--tls-cert and --tls-key")
	complains(t, exit.Failure, at("--tls-ca", ca.File, "--tls-cert", theirs, "--tls-key", theirKey), "--tls-cert and --tls-key")
	complains(t, exit.Failure, at("--tls-ca", stranger.File, "--tls-cert", mine, "--tls-key", myKey), "unknown authority", "is --tls-ca that of")
	expired, expiredKey := ca.Issue(t, "me", fixtures.Expired())
	complains(t, exit.Failure, at("--tls-ca", ca.File, "--tls-cert", expired, "--tls-key", expiredKey), "--tls-cert")
}
