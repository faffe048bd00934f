package settings

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
)

// flagsForTest are some flags of each kind, after a command line was read.
func flagsForTest(t *testing.T, args ...string) *pflag.FlagSet {
	t.Helper()
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	flags.String("config", "", "")
	flags.String("some-name", "default", "")
	flags.Duration("some-time", time.Second, "")
	flags.Bool("some-choice", false, "")
	if err := flags.Parse(args); err != nil {
		t.Fatal(err)
	}
	return flags
}

func configForTest(t *testing.T, content string) (file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "config.json")
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// A flag comes before the environment, that before the file, that before the default; and each
// value comes with its source.
func TestPrecedence(t *testing.T) {
	file := configForTest(t, `{"some_name": "file", "some-time": "3s", "some_choice": true}`)
	empty, null := configForTest(t, `{"some_name": ""}`), configForTest(t, `{"some_name": null}`)
	for name, test := range map[string]struct {
		env           map[string]string
		args          []string
		value, source string
	}{
		"nothing":                     {nil, nil, "default", ""},
		"the file":                    {nil, []string{"--config", file}, "file", file},
		"the file by the environment": {map[string]string{"LOCKET_CONFIG": file}, nil, "file", file},
		"environment over file":       {map[string]string{"LOCKET_SOME_NAME": "env", "LOCKET_CONFIG": file}, nil, "env", "$LOCKET_SOME_NAME"},
		"flag over environment":       {map[string]string{"LOCKET_SOME_NAME": "env"}, []string{"--some-name", "flag"}, "flag", "--some-name"},
		"the file says empty":         {nil, []string{"--config", empty}, "", empty},
		"the file says null":          {nil, []string{"--config", null}, "default", ""},
		"an empty variable":           {map[string]string{"LOCKET_SOME_NAME": "", "LOCKET_CONFIG": file}, nil, "file", file},
		"an empty flag hides all":     {map[string]string{"LOCKET_SOME_NAME": "env"}, []string{"--some-name", "", "--config", file}, "default", "--some-name"},
	} {
		t.Run(name, func(t *testing.T) {
			for variable, value := range test.env {
				t.Setenv(variable, value)
			}
			s, err := WithConfig(flagsForTest(t, test.args...))
			if err != nil {
				t.Fatal(err)
			}
			if value, source := s.LookUp("some-name"); value != test.value || source != test.source {
				t.Errorf("%q from %q, want %q from %q", value, source, test.value, test.source)
			}
		})
	}
}

// Apply sets what no flag has, of any type, and changes nothing else.
func TestApply(t *testing.T) {
	file := configForTest(t, `{"some_name": "file", "some-time": "3s", "some_choice": true}`)
	t.Setenv("LOCKET_SOME_TIME", "2s")
	flags := flagsForTest(t, "--config", file, "--some-name=")
	s, err := WithConfig(flags)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Apply("config"); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"some-name": "", "some-time": "2s", "some-choice": "true", "config": file} {
		if got := flags.Lookup(name).Value.String(); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

// All that cannot be applied is reported at once, with its source.
func TestApplyRefuses(t *testing.T) {
	file := configForTest(t, `{"some_choice": "perhaps"}`)
	t.Setenv("LOCKET_CONFIG", file)
	t.Setenv("LOCKET_SOME_TIME", "soon")
	s, err := WithConfig(flagsForTest(t))
	if err != nil {
		t.Fatal(err)
	}
	err = s.Apply("config")
	for _, word := range []string{file + `: some-choice: "perhaps": must be true or false`, `$LOCKET_SOME_TIME: some-time: "soon": `} {
		if err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("%v says nothing of %q", err, word)
		}
	}
}

func TestConfigRefused(t *testing.T) {
	t.Parallel()
	for content, words := range map[string][]string{
		`{"some-nam": 1}`:                       {"some-nam", "unknown setting"},
		`{"config": "x"}`:                       {"config", "unknown setting"},
		``:                                      {"config.json: it is not JSON: line 1: unexpected end of JSON input"},
		`{`:                                     {"config.json: it is not JSON: line 1: unexpected end of JSON input"},
		"{\n\"some-name\":\n":                   {"config.json: it is not JSON: line 3: unexpected end of JSON input"},
		"{\n\"some-name\":\n10.0.0.1:1}":        {"config.json: it is not JSON: line 3: invalid character '.'"},
		"some-name: x":                          {"config.json: it is not JSON: line 1: invalid character 's'"},
		`[]`:                                    {"config.json: must be a JSON object"},
		`{} {}`:                                 {"after top-level value"},
		`null`:                                  {"must be a JSON object"},
		`[{}]`:                                  {"must be a JSON object"},
		`{"some-name": "x"`:                     {"unexpected end"},
		`{"some-name": ["x"]}`:                  {"some-name", "must be a string"},
		`{"some-name": "x", "some-name": "x"}`:  {"some-name", "more than once"},
		`{"some-name": "x", "some_name": "y"}`:  {"some_name", "more than once", "some-name"},
		`{"some_name": null, "some-name": "y"}`: {"some-name", "more than once"},
		`{"some-name": {"x": 1}}`:               {"some-name", "must be a string"},
		`{"database_driver": "postgres"}`:       {"postgres", "mysql"},
		`{"listen_address": "", "database_driver": "x"}`: {"database_driver"},
	} {
		_, err := WithConfig(flagsForTest(t, "--config", configForTest(t, content)))
		for _, word := range words {
			if err == nil || !strings.Contains(err.Error(), word) {
				t.Errorf("%s: %v says nothing of %q", content, err, word)
			}
		}
	}
	if _, err := WithConfig(flagsForTest(t, "--config", "/nosuch")); err == nil || !strings.Contains(err.Error(), "/nosuch") {
		t.Errorf("a file that is not there: %v", err)
	}
}
