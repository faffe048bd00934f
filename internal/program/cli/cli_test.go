package cli

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/internal/program/cli/exit"
	"github.com/locket-service/locket/internal/program/cli/printable"
	"github.com/locket-service/locket/tests/harness"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// cli runs command lines in this process, against one server.
type cli struct {
	t       *testing.T
	address string
	stable  *stabilizer
	log     strings.Builder
}

func newCLI(t *testing.T) *cli {
	t.Helper()
	return &cli{t: t, address: fixtures.StartLocket(t, harness.Embedded(t)).Address(), stable: newStabilizer()}
}

// inProcess runs a command line as main does.
func inProcess(t *testing.T, args ...string) (stdout, stderr string, status int) {
	t.Helper()
	var out, complaint strings.Builder
	status = Execute(t.Context(), args, &out, &complaint)
	return out.String(), complaint.String(), status
}

// try runs a command line against the server, without the contexts of whoever runs the test.
func (c *cli) try(args ...string) (stdout, stderr string, status int) {
	c.t.Helper()
	return inProcess(c.t, append([]string{args[0], "--address", c.address, "--context-file", os.DevNull}, args[1:]...)...)
}

// run is try, which must succeed.
func (c *cli) run(args ...string) (stdout string) {
	c.t.Helper()
	stdout, stderr, status := c.try(args...)
	if status != exit.OK || stderr != "" {
		c.t.Errorf("locket %q: status %d, %s", args, status, stderr)
	}
	return stdout
}

// says waits until a command prints a text. Answers leave out waits that a busy server cannot read in time.
func (c *cli) says(text string, args ...string) {
	c.t.Helper()
	harness.Eventually(c.t, func() error {
		if stdout := c.run(args...); !strings.Contains(stdout, text) {
			return fmt.Errorf("nothing of %q in %s", text, stdout)
		}
		return nil
	})
}

// queue makes a claim that has to wait, and so ends with exit.Held.
func (c *cli) queue(args ...string) {
	c.t.Helper()
	if stdout, stderr, status := c.try(args...); status != exit.Held || !strings.Contains(stderr, "waits") {
		c.t.Errorf("locket %q: exit status %d, want %d; %q, %q", args, status, exit.Held, stdout, stderr)
	}
}

// record is try, written down for a golden file.
func (c *cli) record(args ...string) {
	c.t.Helper()
	stdout, stderr, status := c.try(args...)
	words := make([]string, len(args))
	for i, arg := range args {
		words[i] = printable.ShellQuoted(arg)
		if strings.HasPrefix(arg, "-") {
			words[i] = arg
		}
	}
	for line := range strings.Lines(stderr) {
		stdout += "stderr: " + line
	}
	if status != exit.OK {
		stdout += fmt.Sprintf("exit status: %d\n", status)
	}
	fmt.Fprintf(&c.log, "$ locket %s\n%s\n", strings.Join(words, " "), stdout)
}

// recordAll records a command in every format.
func (c *cli) recordAll(args ...string) {
	c.t.Helper()
	c.record(args...)
	for _, format := range []string{"table", "json", "yaml", "name"} {
		c.record(append(args, "-o", format)...)
	}
}

// golden compares what was recorded with a file.
func (c *cli) golden(name string) {
	c.t.Helper()
	golden(c.t, name, c.stable.Text(strings.ReplaceAll(c.log.String(), c.address, "ADDRESS")))
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name+".golden")
	if *update {
		harness.Must(t, os.MkdirAll(filepath.Dir(file), 0o755))
		harness.Must(t, os.WriteFile(file, []byte(got), 0o644))
	}
	want, err := os.ReadFile(file)
	harness.Must(t, err)
	if got != string(want) {
		t.Errorf("%s is not what it was; go test ./internal/program/cli -run '^%s$' -update rewrites it:\n%s", file, t.Name(), diff(string(want), got))
	}
}

// diff shows the first line that differs.
func diff(want, got string) string {
	wants, gots := strings.Split(want, "\n"), strings.Split(got, "\n")
	for i := range max(len(wants), len(gots)) {
		w, g := "(the end)", "(the end)"
		if i < len(wants) {
			w = wants[i]
		}
		if i < len(gots) {
			g = gots[i]
		}
		if w != g {
			return fmt.Sprintf("line %d:\nwant %q\ngot  %q", i+1, w, g)
		}
	}
	return ""
}

// stabilizer replaces what is different with each run by something as long.
type stabilizer struct{ seen map[string]string }

func newStabilizer() *stabilizer { return &stabilizer{seen: make(map[string]string)} }

var (
	anyTime     = regexp.MustCompile(`20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z`)
	anySecond   = regexp.MustCompile(`20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ`)
	anyNumber   = regexp.MustCompile(`\b1[78]\d{14}\b`) // a token, a version
	anyID       = regexp.MustCompile(`\b0[0-9a-v]{25}\b`)
	anySeconds  = regexp.MustCompile(`((?:ttl|active_duration|waiting_duration|oldest_wait)"?): \d+\.\d+`)
	anyLeft     = regexp.MustCompile(`\b4m[1-5]\ds`) // of 5m
	anyAgo      = regexp.MustCompile(`\b\ds ago`)
	anyAgoWide  = regexp.MustCompile(`\b\d\ds ago( ?)`) // in a column that is as wide as its name
	anyWait     = regexp.MustCompile(`(?m)(  \d+ +)\d+s( |$)`)
	anyDuration = regexp.MustCompile(`\b(waited|active for)( +)\d+s`)
)

func (s *stabilizer) Text(text string) string {
	text = anyTime.ReplaceAllString(text, "2026-11-21T17:47:02.123456Z")
	text = anySecond.ReplaceAllString(text, "2026-11-21T17:47:02Z")
	text = anyNumber.ReplaceAllStringFunc(text, s.number)
	text = anyID.ReplaceAllStringFunc(text, s.id)
	text = anySeconds.ReplaceAllString(text, "$1: 1.5")
	text = anyLeft.ReplaceAllString(text, "4m59s")
	text = anyAgo.ReplaceAllString(text, "1s ago")
	text = anyAgoWide.ReplaceAllString(text, "1s ago$1$1")
	text = anyWait.ReplaceAllString(text, "${1}1s$2")
	return anyDuration.ReplaceAllString(text, "$1${2}1s")
}

// number replaces numbers by their order of appearance; equal ones stay equal.
func (s *stabilizer) number(number string) string {
	return s.once(number, func(n int) string { return fmt.Sprintf("17%014d", n) })
}

func (s *stabilizer) id(id string) string {
	return s.once(id, func(n int) string { return fmt.Sprintf("0%025d", n) })
}

func (s *stabilizer) once(key string, replacement func(n int) string) string {
	if s.seen[key] == "" {
		s.seen[key] = replacement(len(s.seen) + 1)
	}
	return s.seen[key]
}

func TestGoldenLock(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	c.recordAll("lock", "nightly-report", "--owner", "me", "--ttl", "5m", "--value", "see #ops")
	c.record("lock", "nightly-report", "--owner", "me", "--new")
	c.record("lock", "new", "--owner", "me", "--new", "--ttl", "5m", "--value", "v", "-o", "json")
	c.record("fetch", "new")
	c.record("lock", "new", "--owner", "me", "--ttl", "60")
	c.record("lock", "new", "--owner", "me", "--new", "--token", "7")
	c.record("lock", "new", "--owner", "", "--new")
	c.record("lock", "new", "--owner", "you", "--new")
	c.record("release", "new", "--owner", "me")
	c.record("lock", "api-7", "--owner", "api-7", "--presence", "-o", "json")
	c.record("lock", "nightly-report", "--owner", "you")
	c.record("lock", "other", "--owner", "me", "--token", "7")
	c.record("claim", "shared", "--shared", "--owner", "us", "--ttl", "5m", "-o", "name")
	c.record("lock", "shared", "--owner", "me")
	c.record("lock", "it's mine", "--owner", "me", "-o", "name")
	c.record("lock", "it's mine", "--owner", "you")
	c.record("lock", "nightly-report")
	c.record("lock")
	c.record("lock", "nightly-report", "--owner", "me", "--ttl", "1500ms")
	c.record("lock", "nightly-report", "--owner", "me", "--ttl", "99999d")
	c.record("lock", "nightly-report", "--owner", "me", "--ttl", "soon")
	c.record("lock", "nightly-report", "--owner", "")
	c.record("lock", "", "--owner", "me")
	c.golden("lock")
}

func TestGoldenFetch(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	c.run("lock", "nightly-report", "--owner", "me", "--ttl", "5m", "--value", "see #ops")
	c.recordAll("fetch", "nightly-report")
	c.run("claim", "nobody's", "--ttl", "5m", "--owner", "")
	c.recordAll("fetch", "nobody's")
	c.record("fetch", "free")
	c.record("fetch")
	c.record("fetch", "a", "b")
	c.record("fetch", "a", "-o", "xml")
	c.golden("fetch")
}

func TestGoldenRelease(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	for _, format := range []string{"", "table", "json", "yaml", "name"} {
		c.run("lock", "k", "--owner", "me", "--ttl", "5m")
		if format == "" {
			c.record("release", "k", "--owner", "me")
			continue
		}
		c.record("release", "k", "--owner", "me", "-o", format)
	}
	c.record("release", "k", "--owner", "me")
	token := strings.TrimSpace(c.run("lock", "k", "--owner", "me", "--ttl", "5m"))
	c.record("release", "k", "--owner", "me", "--token", "7")
	c.record("release", "k", "--owner", "you")
	c.record("release", "k", "--owner", "me", "--token", token)

	c.run("claim", "k", "--id", "a", "--owner", "me", "--ttl", "5m")
	c.queue("claim", "k", "--id", "b", "--owner", "you", "--ttl", "5m")
	c.recordAll("release", "--id", "b", "--reason", "no longer needed")
	c.record("release", "--id", "a", "-o", "json")
	c.record("release", "--id", "nosuch")
	c.record("release")
	c.record("release", "k")
	c.record("release", "k", "--id", "a")
	c.record("release", "k", "--owner", "me", "--reason", "why")
	c.record("release", "--id", "a", "--token", "7")
	c.golden("release")
}

func TestGoldenLocks(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	c.recordAll("locks")
	c.recordAll("presences")
	c.run("lock", "nightly-report", "--owner", "me", "--ttl", "5m", "--value", "see #ops")
	c.run("lock", "backup", "--owner", "you", "--ttl", "5m", "--value", strings.Repeat("very ", 10)+"long")
	c.run("claim", "index", "--owner", "", "--ttl", "5m")
	c.run("lock", "api-7", "--owner", "api-7", "--ttl", "5m", "--presence", "--value", "10.0.0.7:8080")
	c.recordAll("locks")
	c.recordAll("presences")
	c.record("locks", "surplus")
	c.golden("locks")
}

func TestGoldenClaim(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	c.recordAll("claim", "backup", "--id", "a", "--owner", "me", "--ttl", "5m", "--value", "see #ops", "--user-data", `{"host": "a7"}`)
	c.recordAll("claim", "backup", "--id", "b", "--owner", "you", "--ttl", "5m")
	c.record("claim", "backup", "--id", "c", "--owner", "us", "--ttl", "5m", "--shared", "--presence", "-o", "json")
	c.record("claim", "backup", "--owner", "her", "--ttl", "5m", "--wait", "20ms")
	c.record("claim", "backup", "--owner", "him", "--id", "d", "--ttl", "5m", "--wait", "20ms", "--keep", "-o", "name")
	c.record("claim", "other", "--id", "a", "--owner", "me", "--ttl", "5m")
	c.run("release", "--id", "a")
	c.record("claim", "backup", "--id", "a", "--owner", "me", "--ttl", "5m", "--value", "see #ops", "--user-data", `{"host": "a7"}`)
	c.record("claim", "backup", "--id", "e", "--ttl", "5m", "--user-data", `{`)
	c.record("claim", "backup", "--id", "no such id", "--ttl", "5m")
	c.record("claim", "backup", "--ttl", "-5m")
	c.record("claim", "backup", "--ttl", "0s")
	c.record("claim")
	c.golden("claim")
}

// fill makes some claims of every status.
func (c *cli) fill() {
	c.run("claim", "backup", "--id", "a", "--owner", "me", "--ttl", "5m", "--value", "see #ops", "--user-data", `{"host": "a7"}`)
	c.queue("claim", "backup", "--id", "b", "--owner", "you", "--ttl", "5m", "--shared")
	c.queue("claim", "backup", "--id", "c", "--owner", "", "--ttl", "5m", "--shared")
	c.queue("claim", "backup", "--id", "d", "--owner", "三国", "--ttl", "5m")
	c.run("claim", "index", "--id", "e", "--owner", "me", "--ttl", "5m", "--shared")
	c.run("claim", "index", "--id", "f", "--owner", "me", "--ttl", "5m", "--shared")
	c.queue("claim", "index", "--id", "g", "--owner", "me", "--ttl", "5m")
	c.run("claim", "old", "--id", "h", "--owner", "me", "--ttl", "5m")
	c.run("release", "--id", "h")
}

// The lists of locks and presences by prefix.
func TestLocksByPrefix(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	for _, name := range []string{"a/1", "a/2", "b/1"} {
		c.run("lock", name, "--owner", "me", "--ttl", "5m")
		c.run("lock", "presence/"+name, "--owner", "me", "--presence", "--ttl", "5m")
	}
	for line, want := range map[string]string{
		"locks --prefix a/ -o name": "a/1\na/2\n", "locks --prefix c -o name": "", "locks -o name": "a/1\na/2\nb/1\n",
		"presences --prefix presence/b -o name": "presence/b/1\n", "presences --prefix a -o name": "",
	} {
		if got := c.run(strings.Fields(line)...); got != want {
			t.Errorf("%s: %q", line, got)
		}
	}
}

func TestGoldenResources(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	c.recordAll("resources")
	c.fill()
	c.recordAll("resources")
	c.record("resources", "-o", "wide")
	for _, flags := range [][]string{
		{"--sort", "name"}, {"--prefix", "in"}, {"--prefix", "old"}, {"--limit", "1"}, {"--limit", "0"}, {"--limit", "2"},
	} {
		c.record(append([]string{"resources", "-o", "name"}, flags...)...)
	}
	c.record("resources", "--delimiter", "n")
	c.record("resources", "--delimiter", "n", "-o", "wide")
	c.record("resources", "--delimiter", "n", "-o", "name")
	c.record("resources", "--delimiter", "n", "--sort", "contended")
	c.record("resources", "--sort", "age")
	c.record("resources", "--limit", "-1")
	c.record("resources", "--prefix", strings.Repeat("p", 1025))
	c.record("resources", "surplus")
	c.golden("resources")
}

func TestGoldenClaims(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	c.recordAll("claims")
	c.fill()
	c.recordAll("claims")
	c.record("claims", "--all")
	c.record("claims", "--all", "-o", "wide")
	for _, filters := range [][]string{
		{"--resource", "index"},
		{"--owner", "me", "--mode", "exclusive"},
		{"--owner", ""},
		{"--mode", "shared"},
		{"--status", "waiting"},
		{"--status", "released"},
		{"--minimum-ttl", "1m"},
		{"--maximum-ttl", "1m"},
		{"--minimum-active-duration", "1h"},
		{"--maximum-active-duration", "1h"},
		{"--minimum-waiting-duration", "1h"},
		{"--maximum-waiting-duration", "1h", "--status", "waiting"},
		{"--minimum-created", "1h"},
		{"--maximum-created", "1h"},
		{"--minimum-created", "2020-01-01", "--maximum-created", "2020-01-02T00:00:00+01:00"},
		{"--limit", "2"},
		{"--limit", "0"},
		{"--limit", "2", "--offset", "6"},
		{"--all"},
		{"--prefix", "in"},
		{"--prefix", "o", "--all"},
		{"--prefix", "nothing"},
		{"--status", "waiting,released"},
		{"--status", "released", "--status", "active"},
		{"--sort", "oldest"},
		{"--sort", "newest", "--all"},
		{"--sort", "resource"},
		{"--sort", "owner", "--limit", "3"},
		{"--sort", "waiting", "--limit", "4"},
		{"--sort", "active", "--offset", "1", "--limit", "1"},
		{"--sort", "ttl", "--status", "active"},
		{"--sort", "resource", "--offset", "100"},
	} {
		c.record(append([]string{"claims", "-o", "name"}, filters...)...)
	}
	c.record("claims", "--status", "unspecified")
	c.record("claims", "--status", "active,", "-o", "name")
	c.record("claims", "--status", "")
	c.record("claims", "--status", "active", "--all")
	c.record("claims", "--sort", "age")
	c.record("claims", "--prefix", strings.Repeat("p", 1025))
	c.record("claims", "--offset", "4294967296")
	c.record("claims", "--mode", "none")
	c.record("claims", "--minimum-created", "yesterday")
	c.record("claims", "--limit", "-1")
	c.golden("claims")
}

func TestGoldenGet(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	c.fill()
	c.recordAll("get", "a")
	c.recordAll("get", "d")
	c.record("get", "a", "--wait", "1m", "-o", "name")
	c.record("get", "d", "--wait", "20ms", "-o", "name")
	c.record("get", "h", "--wait", "1m", "-o", "name")
	c.record("get", "nosuch")
	c.record("get")
	c.golden("get")
}

func TestGoldenRenew(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	c.fill()
	c.recordAll("renew", "a", "--ttl", "5m")
	c.record("renew", "b", "--ttl", "5m")
	c.record("renew", "h", "--ttl", "5m")
	c.record("renew", "nosuch", "--ttl", "5m")
	c.record("renew", "a")
	c.record("renew", "a", "--ttl", "-5m")
	c.golden("renew")
}

func TestGoldenRevoke(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	c.fill()
	c.recordAll("revoke", "a", "--reason", "host a7 is gone, ticket 4711")
	c.record("get", "a", "-o", "yaml")
	c.record("revoke", "d")
	c.record("revoke", "h")
	c.record("revoke", "nosuch")
	c.golden("revoke")
}

func TestGoldenResource(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	c.fill()
	c.recordAll("resource", "backup")
	c.record("resource", "index")
	c.record("resource", "backup", "--limit", "1")
	c.recordAll("resource", "free")
	c.record("resource", "backup", "--limit", "1001")
	c.record("resource")
	c.golden("resource")
}

func TestGoldenVersion(t *testing.T) {
	t.Parallel()
	c := &cli{t: t, stable: newStabilizer()}
	v := versionOf()
	for _, format := range []string{"", "table", "json", "yaml", "name"} {
		args := []string{"version"}
		if format != "" {
			args = append(args, "-o", format)
		}
		stdout, stderr, status := inProcess(t, args...)
		if stderr != "" || status != exit.OK {
			t.Errorf("%q: %s, %d", args, stderr, status)
		}
		fmt.Fprintf(&c.log, "$ locket %s\n%s\n", strings.Join(args, " "), stdout)
	}
	text := strings.NewReplacer(v.Version, "VERSION", runtime.Version(), "GO", v.Platform, "PLATFORM").Replace(c.log.String())
	golden(t, "version", text)
}

func TestGoldenHelp(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	for _, cmd := range newCommand().Commands() {
		if slices.Contains([]string{"server", "run", "keychain", "completion", "help"}, cmd.Name()) {
			continue // their tests are elsewhere, or cobra's
		}
		stdout, _, status := inProcess(t, cmd.Name(), "--help")
		if status != exit.OK {
			t.Errorf("%s: status %d", cmd.Name(), status)
		}
		fmt.Fprintf(&text, "$ locket %s --help\n%s\n", cmd.Name(), stdout)
	}
	golden(t, "help", text.String())
}

func TestKeychainHelp(t *testing.T) {
	t.Parallel()
	stdout, _, status := inProcess(t, "keychain", "--help")
	if status != exit.OK {
		t.Errorf("status %d", status)
	}
	golden(t, "keychain", stdout)
}
