// Package runs_test checks docs/runs.md: which runs of the longer targets count, and that a release needs all of
// them.
package runs_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/locket-service/locket/tests/harness"
)

const root = "../.."

// emptyTable has the rows of two targets that have never run.
const emptyTable = "| target | commit | date (UTC) | outcome | duration |\n| --- | --- | --- | --- | --- |\n" +
	"| `make one` | | | never | |\n| `make two` | | | never | |\n"

// repository is a git repository with a file of code, two longer targets and the real Makefile.
type repository struct {
	*testing.T
	folder string
}

func newRepository(t *testing.T) repository {
	r := repository{t, t.TempDir()}
	r.must("git", "init", "--quiet")
	for _, name := range []string{"Makefile", "tools/runs"} {
		text, err := os.ReadFile(filepath.Join(root, name))
		harness.Must(t, err)
		r.write(name, string(text))
	}
	r.write(".gitignore", "/.tools/\n/dist/\n")
	r.write(".tools/release", "#!/bin/sh\necho released \"$@\"\n")
	r.write("server.go", "package server\n")
	r.write("docs/runs.md", emptyTable)
	r.commit()
	return r
}

func (r repository) write(name, text string) {
	r.Helper()
	path := filepath.Join(r.folder, name)
	harness.Must(r, os.MkdirAll(filepath.Dir(path), 0o755))
	harness.Must(r, os.WriteFile(path, []byte(text), 0o755))
}

// run runs a command in the repository and returns its output and its exit code.
func (r repository) run(command ...string) (output string, code int) {
	r.Helper()
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Dir = r.folder
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "MAKEFLAGS=", "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com",
		"GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.com")
	text, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		r.Fatal(err)
	}
	return string(text), cmd.ProcessState.ExitCode()
}

func (r repository) must(command ...string) {
	r.Helper()
	if output, code := r.run(command...); code != 0 {
		r.Fatalf("%v: exit code %d: %s", command, code, output)
	}
}

func (r repository) commit() {
	r.Helper()
	r.must("git", "add", "--all")
	r.must("git", "commit", "--quiet", "--message", "change")
}

// record records a run of a target and commits the table.
func (r repository) record(target string, command ...string) {
	r.Helper()
	r.run(append([]string{"tools/runs", "record", target}, command...)...)
	r.must("git", "commit", "--quiet", "--message", "record a run", "docs/runs.md")
}

// releases asks for a release, which must be made.
func (r repository) releases() {
	r.Helper()
	if output, code := r.run("make", "-o", ".tools/release", "release"); code != 0 || !strings.Contains(output, "released --out dist --commit HEAD") {
		r.Errorf("no release: exit code %d: %s", code, output)
	}
}

// refuses asks for a release, which must be refused with a message.
func (r repository) refuses(why string) {
	r.Helper()
	output, code := r.run("make", "-o", ".tools/release", "release")
	if code == 0 || strings.Contains(output, "released") || !strings.Contains(output, why) {
		r.Errorf("want a refusal with %q; exit code %d: %s", why, code, output)
	}
}

// TestRelease: a commit is released if each target has passed on its code. Documents do not count.
func TestRelease(t *testing.T) {
	t.Parallel()
	r := newRepository(t)
	r.refuses("make two has not run on a commit")
	r.record("one", "true")
	r.refuses("make two has not run on a commit")
	r.must("tools/runs", "record", "two", "true")
	r.refuses("make two has not run on a commit") // the commit's table does not have it
	r.record("two", "true")
	r.releases()

	r.write("docs/picture.png", "a picture")
	r.write("server/README.md", "a document")
	r.commit()
	r.releases()

	r.write("server.go", "package changed\n")
	r.releases() // of the last commit, without the change
	r.commit()
	r.refuses("the code has changed since: server.go")
	r.record("one", "true")
	r.refuses("make two passed on")

	r.write("server.go", "package server\n")
	r.commit()
	r.record("one", "false")
	r.refuses("make one failed on")
	r.record("one", "true")
	r.releases() // two has passed on the same code

	r.must("git", "rm", "--quiet", "docs/runs.md")
	r.commit()
	r.refuses("has no table in docs/runs.md")
}

// TestRecord: a run counts for a commit if it saw the commit's code and nothing else.
func TestRecord(t *testing.T) {
	t.Parallel()
	const uncommitted = "| `make one` | uncommitted |"
	for name, c := range map[string]struct {
		before  func(repository)
		command string
		code    int
		row     string
	}{
		"passed":      {command: "true", row: "| passed | 0 min"},
		"failed":      {command: "exit 3", code: 3, row: "| failed | 0 min"},
		"interrupted": {command: "kill -INT $PPID; exit 1", code: 1, row: "| interrupted | 0 min"},
		"a file that is not committed": {
			before: func(r repository) { r.write("new.go", "package new") }, command: "true", row: uncommitted,
		},
		"a document that is not committed": {
			before: func(r repository) { r.write("README.md", "new") }, command: "true", row: "| passed |",
		},
		"a change during the run":             {command: "echo package other >server.go", row: uncommitted},
		"a commit during the run":             {command: "echo package other >server.go; git commit -qam change", row: uncommitted},
		"a commit of a document in the run":   {command: "echo text >README.md; git add .; git commit -qm change", row: "| passed |"},
		"a change that was undone in the run": {before: func(r repository) { r.write("new.go", "") }, command: "rm new.go", row: uncommitted},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRepository(t)
			if c.before != nil {
				c.before(r)
			}
			output, code := r.run("tools/runs", "record", "one", "sh", "-c", c.command)
			if code != c.code {
				t.Errorf("exit code %d, want %d: %s", code, c.code, output)
			}
			table, err := os.ReadFile(filepath.Join(r.folder, "docs/runs.md"))
			harness.Must(t, err)
			row := regexp.MustCompile("(?m)^. `make one` .*$").FindString(string(table))
			if !strings.Contains(row, c.row) || !strings.Contains(string(table), "| `make two` | | | never | |\n") {
				t.Errorf("want a row with %q: %s", c.row, table)
			}
		})
	}
	r := newRepository(t)
	if output, code := r.run("tools/runs", "record", "three", "true"); code == 0 || !strings.Contains(output, "no row for make three") {
		t.Errorf("a target without a row: exit code %d: %s", code, output)
	}
}

// TestTargets: the targets that record their runs equal the table's, and CONTRIBUTING says when to run each.
func TestTargets(t *testing.T) {
	t.Parallel()
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join(root, name))
		harness.Must(t, err)
		return string(text)
	}
	targets := func(pattern, text string) (names []string) {
		for _, match := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
			names = append(names, match[1])
		}
		slices.Sort(names)
		return names
	}
	record := targets(`(?m)^([a-z-]+):.*\n(?:\t.*\n)*?\t@?\$\(record\)`, read("Makefile"))
	for _, document := range []string{"docs/runs.md", "CONTRIBUTING.md"} {
		if rows := targets("(?m)^\\| `make ([a-z-]+)` \\|", read(document)); len(record) < 10 || !slices.Equal(rows, record) {
			t.Errorf("%s has %v; these record their runs: %v", document, rows, record)
		}
	}
}
