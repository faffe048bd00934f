package harness

import (
	"os"
	"strings"
	"testing"
)

// CommandsOf returns the lines of code in a section of a README that begin with a word.
func CommandsOf(t *testing.T, readme, section, word string) (lines []string) {
	t.Helper()
	text, err := os.ReadFile(readme)
	Must(t, err)
	_, rest, found := strings.Cut(string(text), "\n## "+section+"\n")
	if !found {
		t.Fatalf("%s has no section %q", readme, section)
	}
	rest, _, _ = strings.Cut(rest, "\n## ")
	for line := range strings.Lines(rest) {
		if command, ok := strings.CutPrefix(line, "    "); ok && strings.HasPrefix(command, word+" ") {
			lines = append(lines, strings.TrimSpace(command))
		}
	}
	return lines
}
