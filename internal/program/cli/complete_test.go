package cli

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/locket-service/locket/internal/program/cli/exit"
	"github.com/locket-service/locket/tests/harness"
)

// A shell gets the names of resources that are held or waited for, and the ids of live claims.
func TestCompletion(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	c.run("claim", "backup/a", "--id", "first", "--ttl", "5m")
	c.queue("claim", "backup/a", "--id", "second", "--ttl", "5m")
	c.run("lock", "backup/b", "--owner", "me", "--ttl", "5m")
	c.run("lock", "other", "--owner", "me", "--ttl", "5m")
	c.run("lock", "backup/\x1b[2J", "--owner", "me", "--ttl", "5m") // which a terminal must not get
	c.run("claim", "backup/ended", "--id", "ended", "--ttl", "5m")
	c.run("release", "--id", "ended")
	for line, want := range map[string]string{
		"fetch backup/":              "backup/a backup/b",
		"lock ":                      "backup/a backup/b other",
		"claim back":                 "backup/a backup/b",
		"resource o":                 "other",
		"release o":                  "other",
		"release --id s":             "second",
		"release --id ":              "first second",
		"claims --resource backup/b": "backup/b",
		"get f":                      "first",
		"renew ":                     "first second",
		"revoke nosuch":              "",
		"fetch other ":               "",
		"run backup/a ":              "backup/b other",
		"run backup/a b":             "backup/b",
	} {
		words := strings.Split(line, " ")
		args := append([]string{"__complete", words[0], "--address", c.address, "--context-file", os.DevNull}, words[1:]...)
		harness.Eventually(t, func() error { // a server that does not answer within a second offers no names
			stdout, _, status := inProcess(t, args...)
			names, directive, _ := strings.Cut(stdout, ":")
			got := strings.Join(strings.Fields(names), " ")
			if status != exit.OK || !strings.HasPrefix(directive, "4\n") {
				t.Fatalf("%q: status %d, directive %q", line, status, directive)
			}
			if !hasWords(got, want) {
				return fmt.Errorf("%q: %q, want %q", line, got, want)
			}
			return nil
		})
	}
	begin := time.Now()
	if stdout, _, _ := inProcess(t, "__complete", "fetch", "--address", "192.0.2.1:1", "--insecure", "--context-file", os.DevNull, ""); stdout != ":4\n" {
		t.Errorf("%q without a server", stdout)
	}
	harness.AtMost(t, "to give up", time.Since(begin), 10*time.Second)
}

// hasWords reports whether a list has these words and no others, but for ids that a server made.
func hasWords(list, want string) bool {
	var kept []string
	for word := range strings.FieldsSeq(list) {
		if !anyID.MatchString(word) {
			kept = append(kept, word)
		}
	}
	return strings.Join(kept, " ") == want
}
