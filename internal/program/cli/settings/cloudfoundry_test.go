package settings

import (
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// serverFlags are flags with the names that a file of Cloud Foundry's Locket may set.
func serverFlags(t *testing.T, args ...string) *pflag.FlagSet {
	t.Helper()
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	for _, name := range []string{
		"config", "grpc-address", "http-address", "ops-address", "ops-insecure", "database", "database-any-name", "database-ca",
		"database-timeout", "history-limit", "log-format", "log-level", "tls-cert", "tls-client-ca", "tls-key",
	} {
		flags.String(name, "default", "")
	}
	if err := flags.Parse(args); err != nil {
		t.Fatal(err)
	}
	return flags
}

// bare are the settings that every file of Cloud Foundry's Locket has, by default or explicitly.
var bare = map[string]string{"database": "mysql:D", "http-address": "", "log-format": "lager", "database-any-name": "true"}

// Each field of the file has its setting, or is named as one without effect.
func TestCloudFoundryFields(t *testing.T) {
	t.Parallel()
	type settings map[string]string
	for _, test := range []struct {
		content string
		want    settings
	}{
		{``, settings{}},
		{`"listen_address": "L"`, settings{"grpc-address": "L"}},
		{`"listen_address": ""`, settings{"grpc-address": ""}},
		{`"cert_file": "C", "key_file": "K", "ca_file": "A"`, settings{"tls-cert": "C", "tls-key": "K", "tls-client-ca": "A"}},
		{`"debug_address": "D"`, settings{"ops-address": "D", "ops-insecure": "true"}},
		{`"debug_address": ""`, settings{"ops-address": ""}},
		{`"database_driver": "mysql"`, settings{}},
		{`"sql_ca_cert_file": "A"`, settings{"database-ca": "A"}},
		{`"sql_ca_cert_file": "A", "sql_enable_identity_verification": true`, settings{"database-ca": "A", "database-any-name": "false"}},
		{`"sql_enable_identity_verification": false`, settings{}},
		{`"db_connection_timeout": "5s", "db_read_timeout": "6s", "db_write_timeout": "7s"`, settings{"database": "mysql:D?timeout=5s&readTimeout=6s&writeTimeout=7s"}},
		{`"db_operation_timeout": "8s"`, settings{"database-timeout": "8s"}},
		{`"log_level": "debug"`, settings{"log-level": "debug"}},
		{`"log_level": "fatal"`, settings{"log-level": "error+4"}},
		{`"time_format": "rfc3339"`, settings{"log-format": "lager-rfc3339"}},
		{`"time_format": 1`, settings{"log-format": "lager-rfc3339"}},
		{`"time_format": "unix-epoch"`, settings{}},
		{`"time_format": null, "ca_file": null`, settings{}},
		{`"listen_address": "", "grpc_address": "G"`, settings{"grpc-address": "G"}},
		{`"http_address": "H", "history_limit": 7`, settings{"http-address": "H", "history-limit": "7"}}, // ours may stand there too
	} {
		content := test.content
		if content != "" {
			content = ", " + content
		}
		s, err := WithConfig(serverFlags(t, "--config", configForTest(t, `{"database_connection_string": "D"`+content+`}`)))
		if err != nil || len(s.Ignored) > 0 {
			t.Errorf("%s: %v, ignored: %q", content, err, s.Ignored)
			continue
		}
		all := maps.Clone(bare)
		maps.Copy(all, test.want)
		if !maps.Equal(s.file.settings, all) {
			t.Errorf("%s: %v, want %v", content, s.file.settings, all)
		}
	}
}

// What has no effect is named, whatever its type, and so is a field that is new there.
func TestCloudFoundryIgnored(t *testing.T) {
	t.Parallel()
	s, err := WithConfig(serverFlags(t, "--config", configForTest(t, `{"database_connection_string": "D", "report_interval": "1m",
		"loggregator": {"loggregator_api_port": 3458}, "max_open_database_connections": 200, "brand_new": [1], "redact_secrets": true}`)))
	want := []string{"brand_new", "loggregator", "max_open_database_connections", "redact_secrets", "report_interval"}
	if err != nil || !slices.Equal(s.Ignored, want) {
		t.Errorf("%v, ignored: %q, want %q", err, s.Ignored, want)
	}
}

// A flag and the environment come before such a file too.
func TestCloudFoundryPrecedence(t *testing.T) {
	t.Setenv("LOCKET_HTTP_ADDRESS", "asked for")
	flags := serverFlags(t, "--log-format=text", "--config", configForTest(t, `{"database_connection_string": "D", "listen_address": "L"}`))
	s, err := WithConfig(flags)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Apply("config"); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"http-address": "asked for", "log-format": "text", "grpc-address": "L", "history-limit": "default"} {
		if got := flags.Lookup(name).Value.String(); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

// What such a file may not say. Its errors have the words of Cloud Foundry's Locket.
func TestCloudFoundryRefused(t *testing.T) {
	t.Parallel()
	for content, words := range map[string][]string{
		`{"database_driver": "postgres", "database_connection_string": "D"}`: {"database_driver", "postgres", "mysql"},
		`{"listen_address": "L"}`:                                      {"database_connection_string", "missing"},
		`{"database_connection_string": "D", "time_format": "iso"}`:    {"time_format", "iso", "rfc3339"},
		`{"database_connection_string": "D", "listen_address": ["L"]}`: {"listen_address", "must be a string"},
		`{"database_connection_string": "D"} {}`:                       {"after top-level value"},
		`null`:                                                         {"must be a JSON object"},
	} {
		_, err := WithConfig(serverFlags(t, "--config", configForTest(t, content)))
		for _, word := range append(words, "invalid-config-file", "config.json") {
			if err == nil || !strings.Contains(err.Error(), word) {
				t.Errorf("%s: %v does not mention %q", content, err, word)
			}
		}
	}
}

// docs/cloud-foundry.md describes each field.
func TestCloudFoundryDocument(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../../../docs/cloud-foundry.md")
	if err != nil {
		t.Fatal(err)
	}
	fields := slices.Concat(cloudFoundryMarks, slices.Collect(maps.Keys(cloudFoundryOwn)), slices.Collect(maps.Keys(cloudFoundryNames)), slices.Collect(maps.Keys(cloudFoundryDSN)))
	for _, field := range fields {
		if !strings.Contains(string(text), "`"+field+"`") {
			t.Errorf("it does not mention %s", field)
		}
	}
}

// A setting that is given by a name of theirs and by ours is an error that names both, rather than one of the two.
func TestCloudFoundryGivenTwice(t *testing.T) {
	t.Parallel()
	for theirs, ours := range map[string]string{
		"listen_address": "grpc_address", "ca_file": "tls-client-ca", "debug_address": "ops_address", "time_format": "log_format",
		"database_connection_string": "database", "sql_enable_identity_verification": "database_any_name",
	} {
		content := `{"database_driver": "mysql", "` + theirs + `": "a", "` + ours + `": "b"}`
		_, err := WithConfig(serverFlags(t, "--config", configForTest(t, content)))
		if err == nil || !strings.Contains(err.Error(), strconv.Quote(theirs)) || !strings.Contains(err.Error(), strconv.Quote(ours)) {
			t.Errorf("%s: %v", content, err)
		}
	}
}
