package cli

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/locket-service/locket/internal/program/cli/exit"
	"github.com/locket-service/locket/internal/program/cli/settings"
	"github.com/locket-service/locket/internal/program/cli/show"
	"github.com/locket-service/locket/tests/harness"
)

// everyCommand calls do with each command that people can give.
func everyCommand(t *testing.T, do func(t *testing.T, cmd *cobra.Command)) {
	t.Helper()
	var visit func(cmd *cobra.Command)
	visit = func(cmd *cobra.Command) {
		t.Run(cmd.CommandPath(), func(t *testing.T) { do(t, cmd) })
		for _, below := range cmd.Commands() {
			visit(below)
		}
	}
	visit(newCommand())
}

// argumentsOf returns the arguments that a shell gives to locket in a text.
func argumentsOf(t *testing.T, text string) (lines [][]string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "bash", "-c", "set -eu; fpath=(x)\nlocket() { printf '%s\\0' \"$@\"; printf '\\n\\0'; }\n"+text)
	cmd.Dir, cmd.Env = t.TempDir(), append(os.Environ(), "HOME="+t.TempDir())
	output, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	for line := range strings.SplitSeq(strings.TrimSuffix(string(output), "\n\x00"), "\n\x00") {
		lines = append(lines, strings.Split(strings.TrimSuffix(line, "\x00"), "\x00"))
	}
	return lines
}

// redirection matches the redirections in the examples of completion.
func withoutRedirection(line string) string {
	line, _, _ = strings.Cut(line, " > ")
	return line
}

// Every command has examples, and each is one that the program takes.
func TestExamplesParse(t *testing.T) {
	t.Parallel()
	everyCommand(t, func(t *testing.T, cmd *cobra.Command) {
		lines := strings.Split(cmd.Example, "\n")
		if cmd.Example == "" {
			t.Fatal("no example")
		}
		for _, line := range lines {
			if strings.HasPrefix(line, "  #") {
				continue
			}
			if !strings.HasPrefix(line, "  locket ") {
				t.Errorf("%q is not an example", line)
				continue
			}
			path := parses(t, line)
			if below := cmd.HasSubCommands() && strings.HasPrefix(path, cmd.CommandPath()+" "); path != cmd.CommandPath() && !below {
				t.Errorf("%q is an example of %s", line, path)
			}
		}
	})
}

// parses checks that the program takes a command line, and returns the path of its command.
func parses(t *testing.T, line string) (path string) {
	t.Helper()
	args := argumentsOf(t, withoutRedirection(line))[0]
	root := newCommand()
	found, rest, err := root.Find(args)
	if err != nil || found == root {
		t.Errorf("%q: %v", line, err)
		return ""
	}
	found.InitDefaultHelpFlag()
	if err := errors.Join(found.ParseFlags(rest), found.ValidateArgs(found.Flags().Args())); err != nil {
		t.Errorf("%q: %v", line, err)
	}
	return found.CommandPath()
}

// The manual shows nothing that the program does not take, and its contexts are good.
func TestManual(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../../docs/cli.md")
	harness.Must(t, err)
	lines := 0
	for line := range strings.Lines(string(text)) {
		line = strings.TrimPrefix(strings.TrimSpace(line), "$ ")
		if strings.HasPrefix(line, "locket ") {
			parses(t, line)
			lines++
		}
	}
	if lines < 15 {
		t.Errorf("%d command lines", lines)
	}
	_, example, _ := strings.Cut(string(text), "```yaml\n")
	example, _, _ = strings.Cut(example, "```")
	file := filepath.Join(t.TempDir(), "contexts.yaml")
	harness.Must(t, os.WriteFile(file, []byte(example), 0o600))
	cmd := newFetchCommand()
	harness.Must(t, cmd.ParseFlags([]string{"--context-file", file}))
	contexts, err := settings.Contexts(cmd.Flags())
	if err != nil || len(contexts) != 2 || contexts[0].Name != "production" || contexts[1].Name != "staging" || !contexts[1].Current {
		t.Errorf("%v, %v", contexts, err)
	}
	options, _, _ := inProcess(t, "options")
	for _, flag := range []string{"address", "tls-ca", "tls-cert", "tls-key", "insecure", "timeout", "context", "context-file"} {
		if !strings.Contains(options, "--"+flag+" ") {
			t.Errorf("locket options does not list --%s", flag)
		}
	}
	for _, cmd := range newCommand().Commands() {
		if cmd.GroupID != "" && cmd.GroupID != groupServer && !strings.Contains(string(text), "`"+cmd.Name()) {
			t.Errorf("nothing on locket %s", cmd.Name())
		}
	}
}

// Every command has a description, and its help names its flags.
func TestHelp(t *testing.T) {
	t.Parallel()
	everyCommand(t, func(t *testing.T, cmd *cobra.Command) {
		args := append(strings.Fields(cmd.CommandPath())[1:], "--help")
		stdout, stderr, status := inProcess(t, args...)
		if status != exit.OK || stderr != "" || !strings.Contains(stdout, "Examples:\n") {
			t.Errorf("status %d, %q, %q", status, stdout, stderr)
		}
		if isOptions := cmd.Name() == "options"; strings.Contains(stdout, "--address addresses") != isOptions ||
			strings.Contains(stdout, `"locket options" lists`) != (cmd.Flag("address") != nil && !isOptions) {
			t.Error(stdout)
		}
		if len(cmd.Short) > 80 || cmd.Short == "" || strings.HasSuffix(cmd.Short, ".") {
			t.Errorf("%q", cmd.Short)
		}
	})
}

// A newcomer types the lines of the first page, and holds a lock.
func TestFirstPage(t *testing.T) {
	t.Parallel()
	stdout, _, _ := inProcess(t)
	c := newCLI(t)
	_, page, _ := strings.Cut(stdout, "Examples:\n")
	page, _, _ = strings.Cut(page, "\n\n")
	lines := argumentsOf(t, page)
	if len(lines) != 4 || lines[0][0] != "server" {
		t.Fatalf("%q", lines)
	}
	c.run(lines[1]...)
	if held := c.run("fetch", lines[1][1], "-o", "name"); held != lines[1][1]+"\n" {
		t.Errorf("%q", held)
	}
	if queue := c.run(lines[2]...); !strings.Contains(queue, "demo is held by me") {
		t.Errorf("%q", queue)
	}
	c.run(lines[3]...)
}

func TestWrongCommandLines(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ args, words []string }{
		{[]string{"lok"}, []string{`"lok"`, "did you mean lock", "locket --help"}},
		{[]string{"zzz"}, []string{`"zzz"`, "locket --help"}},
		{[]string{"help", "zzz"}, []string{`"zzz"`, `see "locket --help"`}},
		{[]string{"claims", "--status", "zzz"}, []string{"must be one or more of", `see "locket claims --help"`}},
		{[]string{"help", "lok"}, []string{"did you mean lock"}},
		{[]string{"fetch", "k", "--adr", "x"}, []string{"--adr", "locket fetch --help"}},
		{[]string{"fetch", "k", "--addresses", "x"}, []string{"--addresses", "did you mean --address?"}},
		{[]string{"--nosuch"}, []string{"--nosuch", "locket --help"}},
		{[]string{"completion", "tcsh"}, []string{"tcsh"}},
		{[]string{"server", "--nosuch"}, []string{"--nosuch", "locket server --help"}},
		{[]string{"server", "surplus"}, []string{"surplus"}},
		{[]string{"version", "surplus"}, []string{"surplus"}},
		{[]string{"locks", "-o"}, []string{"locket locks --help"}},
		{[]string{"lok\x1b[2J\nx"}, []string{`lok\x1b[2J\nx`}},
	} {
		complains(t, exit.Usage, test.args, test.words...)
	}
}

func TestCompletions(t *testing.T) {
	t.Parallel()
	for _, shell := range []string{"bash", "zsh", "fish"} {
		stdout, stderr, status := harness.RunLocket(t, nil, "completion", shell)
		if status != exit.OK || stderr != "" || !strings.Contains(stdout, "locket") {
			t.Errorf("%s: status %d, %s", shell, status, stderr)
		}
		if path, err := exec.LookPath(shell); err == nil {
			check := exec.CommandContext(t.Context(), path, "-n", "/dev/stdin")
			check.Stdin = strings.NewReader(stdout)
			if output, err := check.CombinedOutput(); err != nil {
				t.Errorf("%s: %v, %s", shell, err, output)
			}
		}
	}
	const file = "testdata/contexts.yaml"
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"fetch", "-o", ""}, "json\nyaml\nname\ntable\nwide\njsonpath=\ntemplate=\n:4\n"},
		{[]string{"claims", "--status", ""}, "waiting\nactive\nreleased\nexpired\naborted\nwithdrawn\nrevoked\n:4\n"},
		{[]string{"claims", "--status", "waiting,active,"}, "waiting,active,released\nwaiting,active,expired\nwaiting,active,aborted\nwaiting,active,withdrawn\nwaiting,active,revoked\n:4\n"},
		{[]string{"claims", "--sort", ""}, "newest\noldest\nwaiting\nactive\nttl\nresource\nowner\n:4\n"},
		{[]string{"claims", "--mode", ""}, "exclusive\nshared\n:4\n"},
		{[]string{"get", "--context-file", file, "--context", ""}, "commas\nempty\nseveral\nusual\n:4\n"},
		{[]string{"lock", ""}, ":4\n"},
	} {
		stdout, _, status := inProcess(t, append([]string{"__complete"}, test.args...)...)
		var got strings.Builder
		for line := range strings.Lines(stdout) {
			name, _, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
			got.WriteString(name + "\n")
		}
		if status != exit.OK || !strings.HasPrefix(got.String(), test.want) {
			t.Errorf("%q: status %d, %q, want %q", test.args, status, got.String(), test.want)
		}
	}
}

// What cannot be printed is not done.
func TestWrongOutput(t *testing.T) {
	t.Parallel()
	complains(t, exit.Usage, []string{"cluster", "remove", "d", "--data", t.TempDir(), "-o", "nonsense"}, "--output")
}

func TestManPages(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(t.TempDir(), "man1")
	complains(t, exit.Usage, []string{"man"}, "--dir is required")
	if _, stderr, status := inProcess(t, "man", "--dir", folder); status != exit.OK {
		t.Fatal(stderr)
	}
	everyCommand(t, func(t *testing.T, cmd *cobra.Command) {
		file := filepath.Join(folder, strings.ReplaceAll(cmd.CommandPath(), " ", "-")+".1")
		page, err := os.ReadFile(file)
		if cmd.Hidden || cmd.Name() == "help" {
			if err == nil {
				t.Error("has a page")
			}
			return
		}
		harness.Must(t, err)
		for _, part := range []string{".TH ", ".SH NAME", ".SH SYNOPSIS", ".SH OPTIONS", ".SH EXAMPLE"} {
			if !bytes.Contains(page, []byte(part)) {
				t.Errorf("no %s", part)
			}
		}
		words := strings.NewReplacer(`\-`, "-", `\&`, "", `\\`, `\`, `\e`, `\`).Replace(string(page))
		for line := range strings.Lines(describe(cmd) + cmd.Example) {
			if !strings.HasPrefix(line, "#") && !strings.Contains(words, strings.TrimSpace(line)) { // a heading of cobra's own
				t.Errorf("nothing of %s", line)
			}
		}
		if options := bytes.Contains(page, []byte("tls-ca\\fP")); options != (cmd.Flag("tls-ca") != nil && !hasOptions(cmd)) {
			t.Errorf("lists the flags of the connection: %v", options)
		}
		groff, err := exec.LookPath("groff")
		if err != nil {
			return
		}
		output, err := exec.CommandContext(t.Context(), groff, "-man", "-Tutf8", "-ww", file).CombinedOutput()
		if err != nil || bytes.Contains(output, []byte("warning")) {
			t.Errorf("groff: %v, %s", err, output)
		}
	})
}

func TestDropIn(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"-config f":           "server --config f",
		"--config f":          "server --config f",
		"-config=f":           "server --config=f",
		"--config=f=g":        "server --config=f=g",
		"-config= --insecure": "server --config= --insecure",
		"-config":             "server --config",
		"---config=f":         "---config=f",
		"-configs=f":          "-configs=f",
		"config=f":            "config=f",
		"lock -config=f":      "lock -config=f",
	} {
		if got := strings.Join(dropIn(strings.Split(line, " ")), " "); got != want {
			t.Errorf("%s: %s, want %s", line, got, want)
		}
	}
}

// The six lines of the command line are ones that the program takes.
func TestReadmeSixLines(t *testing.T) {
	t.Parallel()
	lines := harness.CommandsOf(t, "../../../README.md", "At the command line", "./locket")
	if len(lines) != 6 {
		t.Errorf("%q, want six", lines)
	}
	for _, line := range lines {
		parses(t, "  "+strings.TrimPrefix(line, "./"))
	}
}

// Every duration is read alike: 5 is 5 s; the help of the command says so.
func TestDurations(t *testing.T) {
	t.Parallel()
	everyCommand(t, func(t *testing.T, cmd *cobra.Command) {
		n := 0
		cmd.LocalFlags().VisitAll(func(flag *pflag.Flag) {
			if flag.Value.Type() != "duration" {
				return
			}
			if !hasOptions(cmd) || !isConnection(flag) { // their help is in locket options
				n++
			}
			for text, want := range map[string]string{"5": "5s", "7d": "168h0m0s"} {
				if err := flag.Value.Set(text); err != nil || flag.Value.String() != want {
					t.Errorf("--%s %s is %s, %v", flag.Name, text, flag.Value, err)
				}
			}
		})
		if strings.Contains(cmd.UsageString(), "A duration is a number of seconds") != (n > 0) {
			t.Errorf("%d durations, and the help:\n%s", n, cmd.UsageString())
		}
	})
}

// A program that was built in a repository shows its commit and the commit's date.
func TestVersionOfCommit(t *testing.T) {
	t.Parallel()
	info := &debug.BuildInfo{Settings: []debug.BuildSetting{
		{Key: "vcs.revision", Value: "0123abcd"}, {Key: "vcs.time", Value: "2026-11-21T17:47:02Z"}, {Key: "vcs.modified", Value: "true"},
	}}
	if text := versionFrom(info).Text(show.Look{}); !strings.HasPrefix(text, "version     unknown\ncommit      0123abcd (modified)\ndate        2026-11-21T17:47:02Z\ngo          ") {
		t.Errorf("%q", text)
	}
}
