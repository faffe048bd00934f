package program_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/tests/harness"
)

// TestTutorial executes docs/tutorial.md: its commands in order, in one shell, with the waits that a reader makes by reading on.
func TestTutorial(t *testing.T) {
	t.Parallel()
	harness.OnBothLogs(t, testTutorial)
}

func testTutorial(t *testing.T, database string) {
	t.Helper()
	server := fixtures.StartLocket(t, database)
	folder := t.TempDir()
	text, err := os.ReadFile("../../docs/tutorial.md")
	harness.Must(t, err)
	script := regexp.MustCompile("(?s)```sh\n(.*?)```").FindSubmatch(text)
	if script == nil {
		t.Fatal("no report.sh")
	}
	harness.Must(t, os.WriteFile(filepath.Join(folder, "report.sh"), script[1], 0o600))
	harness.Must(t, os.Symlink(fixtures.LocketProgram(t), filepath.Join(folder, "locket")))

	waits := map[string]string{ // after a line
		"./locket run nightly-report -- sleep 600 & holder=$!":                      "until ./locket fetch nightly-report >/dev/null 2>&1; do sleep 0.1; done",
		"./locket elect scheduler --value machine-1:80 -- sleep 600 & leader=$!":    "until ./locket fetch scheduler >/dev/null 2>&1; do sleep 0.1; done",
		"./locket elect scheduler --value machine-2:80 -- sleep 600 &":              `until ./locket resource scheduler -o json | grep -q '"waiting": 1'; do sleep 0.1; done`,
		"./locket claim nightly-report --owner second --ttl 5m --wait 10m --hold &": `until ./locket claims --status waiting | grep -q second; do sleep 0.1; done`,
		"kill -9 $leader": "until ./locket fetch scheduler 2>/dev/null | grep -q machine-2; do sleep 0.1; done; echo machine-2 leads; kill $!; wait",
	}
	lines := []string{"cd " + folder}
	for line := range strings.Lines(string(text)) {
		command, ok := strings.CutPrefix(strings.TrimRight(line, "\n"), "    ")
		if !ok || strings.HasPrefix(command, "0 2 ") { // the line of the crontab
			continue
		}
		lines = append(lines, command)
		if wait := waits[command]; wait != "" {
			lines = append(lines, wait)
			delete(waits, command)
		}
	}
	if len(waits) > 0 {
		t.Fatalf("the tutorial lacks %v", waits)
	}
	output, err := bash(t, strings.Join(lines, "\n"), "LOCKET_ADDRESS="+server.Address())
	if err != nil {
		t.Errorf("%v\n%s", err, output)
	}
	for _, want := range []string{"2026-11-28 by token", "token 1 is older than", "revoked", "machine-2 leads"} {
		if !strings.Contains(output, want) {
			t.Errorf("the output lacks %q:\n%s", want, output)
		}
	}
	report, err := os.ReadFile(filepath.Join(folder, "report.txt"))
	harness.Must(t, err)
	if strings.Count(string(report), "\n") != 1 || strings.Contains(string(report), "2026-11-29") {
		t.Errorf("the report is %q, want one line", report)
	}
}
