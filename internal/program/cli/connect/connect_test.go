package connect

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/locket-service/locket/internal/program/server"
	"github.com/locket-service/locket/tests/harness"
)

// A flag comes before the environment, that before the context, that before the default.
func TestSettingsPrecedence(t *testing.T) {
	folder := t.TempDir()
	file := filepath.Join(folder, "contexts.yaml")
	contexts, err := os.ReadFile("../testdata/contexts.yaml")
	harness.Must(t, err)
	harness.Must(t, os.WriteFile(file, contexts, 0o600))
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	in := func(name string) string { return filepath.Join(folder, name) }
	usual := Settings{addresses: []string{"usual:1"}, tlsCA: in("usual.crt"), Timeout: time.Minute}
	change := func(s Settings, do func(*Settings)) Settings { do(&s); return s }

	for name, test := range map[string]struct {
		env  []string
		args []string
		want Settings
	}{
		"nothing": {nil, nil, Settings{addresses: []string{server.DefaultGRPCAddress}, Timeout: DefaultTimeout}},
		"environment": {
			[]string{"LOCKET_ADDRESS=e:1,f:2", "LOCKET_TLS_CA=e.crt", "LOCKET_TLS_CERT=f.crt", "LOCKET_TLS_KEY=f.key", "LOCKET_TIMEOUT=3s"},
			nil,
			Settings{addresses: []string{"e:1", "f:2"}, tlsCA: "e.crt", tlsCert: "f.crt", tlsKey: "f.key", Timeout: 3 * time.Second},
		},
		"flag over environment": {
			[]string{"LOCKET_ADDRESS=e:1", "LOCKET_TIMEOUT=3s", "LOCKET_INSECURE=true"},
			[]string{"--address", "g:1", "--timeout", "4s", "--insecure=false"},
			Settings{addresses: []string{"g:1"}, Timeout: 4 * time.Second},
		},
		"an empty flag over environment": {
			[]string{"LOCKET_ADDRESS=e:1", "LOCKET_TLS_CA=e.crt"},
			[]string{"--tls-ca", "", "--address", ""},
			Settings{addresses: []string{server.DefaultGRPCAddress}, Timeout: DefaultTimeout},
		},
		"an empty variable says nothing":    {[]string{"LOCKET_ADDRESS=", "LOCKET_CONTEXT_FILE=" + file}, nil, usual},
		"current context, file by flag":     {nil, []string{"--context-file", file}, usual},
		"current context, file by variable": {[]string{"LOCKET_CONTEXT_FILE=" + file}, nil, usual},
		"file: flag over environment":       {[]string{"LOCKET_CONTEXT_FILE=/nosuch"}, []string{"--context-file", file}, usual},
		"context by flag": {
			nil,
			[]string{"--context-file", file, "--context", "several"},
			Settings{addresses: []string{"a:1", "b:2"}, insecure: true, Timeout: DefaultTimeout},
		},
		"context by variable": {
			[]string{"LOCKET_CONTEXT_FILE=" + file, "LOCKET_CONTEXT=commas"},
			nil,
			Settings{addresses: []string{"c:3", "d:4"}, tlsCA: "system", tlsCert: "/abs/c.crt", tlsKey: in("c.key"), Timeout: DefaultTimeout},
		},
		"context: flag over environment": {
			[]string{"LOCKET_CONTEXT_FILE=" + file, "LOCKET_CONTEXT=commas"},
			[]string{"--context", "empty"},
			Settings{addresses: []string{server.DefaultGRPCAddress}, Timeout: DefaultTimeout},
		},
		"no context": {
			[]string{"LOCKET_CONTEXT_FILE=" + file},
			[]string{"--context", ""},
			Settings{addresses: []string{server.DefaultGRPCAddress}, Timeout: DefaultTimeout},
		},
		"environment over context, one by one": {
			[]string{"LOCKET_CONTEXT_FILE=" + file, "LOCKET_ADDRESS=e:1"},
			nil,
			change(usual, func(s *Settings) { s.addresses = []string{"e:1"} }),
		},
		"flag over context, one by one": {
			[]string{"LOCKET_CONTEXT_FILE=" + file},
			[]string{"--timeout", "4s"},
			change(usual, func(s *Settings) { s.Timeout = 4 * time.Second }),
		},
		"the server's own file is another": {
			[]string{"LOCKET_CONFIG=" + file}, nil, Settings{addresses: []string{server.DefaultGRPCAddress}, Timeout: DefaultTimeout},
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, variable := range test.env {
				name, value, _ := strings.Cut(variable, "=")
				t.Setenv(name, value)
			}
			cmd := &cobra.Command{}
			AddFlags(cmd)
			harness.Must(t, cmd.ParseFlags(test.args))
			got, err := settingsOf(cmd.Flags())
			if err != nil || !reflect.DeepEqual(got, test.want) {
				t.Errorf("%+v, %v, want %+v", got, err, test.want)
			}
			for name, value := range got.Environment() {
				t.Setenv(name, value)
			}
			cmd = &cobra.Command{}
			AddFlags(cmd)
			if in, err := settingsOf(cmd.Flags()); err != nil || !reflect.DeepEqual(in, absolute(t, got)) {
				t.Errorf("a command that it starts has %+v, %v, want %+v", in, err, got)
			}
		})
	}
}

// absolute returns settings whose files have absolute paths.
func absolute(t *testing.T, s Settings) Settings {
	t.Helper()
	for _, file := range []*string{&s.tlsCA, &s.tlsCert, &s.tlsKey} {
		if *file == "" || *file == "system" {
			continue
		}
		path, err := filepath.Abs(*file)
		harness.Must(t, err)
		*file = path
	}
	return s
}
