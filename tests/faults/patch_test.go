// Package faults_test keeps deliberate faults as patches, and the name of the test that finds each.
//
// A patch is a unified diff below a few lines of text: what is broken, "Breaks:" with the promise, and
// "Test: PACKAGE NAME". Line numbers and indentation do not count: the unchanged and the removed lines of a hunk must
// be together at exactly one place of the file. So a patch survives changes around it, and two lines are a whole hunk.
package faults_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const root = "../.."

// fault is one patch.
type fault struct {
	name    string // of the file, without .patch
	pkg     string // of the test, such as ./db/replica
	test    string
	text    string // what is broken
	changes []change
}

// change is a hunk.
type change struct {
	file     string
	old, new []string // the lines before and after
}

var header = regexp.MustCompile(`(?s)^(\S.+)\nBreaks: (.+)\nTest: (\./\S+) (Test\S+)\n\n$`)

// readFaults returns the faults of all patches, in the order of their names.
func readFaults(t *testing.T) (all []*fault) {
	t.Helper()
	paths, err := filepath.Glob("*.patch")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		f, err := parse(string(text))
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		f.name = strings.TrimSuffix(path, ".patch")
		all = append(all, f)
	}
	return all
}

// parse reads a patch.
func parse(text string) (*fault, error) {
	head, diff, _ := strings.Cut(text, "--- a/")
	m := header.FindStringSubmatch(head)
	if m == nil {
		return nil, fmt.Errorf("want lines about the fault, a line \"Breaks: …\", a line \"Test: ./package TestName\", an empty line and a diff, not %q", head)
	}
	f := &fault{text: strings.ReplaceAll(m[1], "\n", " "), pkg: m[3], test: m[4]}
	file := ""
	for line := range strings.Lines("--- a/" + diff) {
		line = strings.TrimSuffix(line, "\n")
		content := line[min(1, len(line)):]
		last := len(f.changes) - 1
		switch {
		case strings.HasPrefix(line, "--- a/"):
			file = strings.TrimPrefix(line, "--- a/")
		case strings.HasPrefix(line, "+++ b/"):
		case strings.HasPrefix(line, "@@"):
			f.changes = append(f.changes, change{file: file})
		case last < 0:
			return nil, fmt.Errorf("no @@ before %q", line)
		case strings.HasPrefix(line, "+"):
			f.changes[last].new = append(f.changes[last].new, content)
		case strings.HasPrefix(line, "-"):
			f.changes[last].old = append(f.changes[last].old, content)
		default:
			f.changes[last].old = append(f.changes[last].old, content)
			f.changes[last].new = append(f.changes[last].new, content)
		}
	}
	if len(f.changes) == 0 {
		return nil, fmt.Errorf("no hunk")
	}
	return f, nil
}

// apply returns the files of the work tree with the fault.
func (f *fault) apply() (patched map[string]string, err error) {
	patched = make(map[string]string)
	for _, c := range f.changes {
		text, known := patched[c.file]
		if !known {
			content, err := os.ReadFile(filepath.Join(root, c.file))
			if err != nil {
				return nil, err
			}
			text = string(content)
		}
		if patched[c.file], err = c.apply(text); err != nil {
			return nil, fmt.Errorf("%s: %w", c.file, err)
		}
	}
	return patched, nil
}

// apply returns the text of a file after the change.
func (c change) apply(text string) (string, error) {
	lines := strings.Split(text, "\n")
	place, places := 0, 0
	for i := range lines {
		if matches(lines[i:], c.old) {
			place, places = i, places+1
		}
	}
	if places != 1 {
		return "", fmt.Errorf("these lines are there %d times:\n%s", places, strings.Join(c.old, "\n"))
	}
	after := strings.Join(append(append(lines[:place:place], c.new...), lines[place+len(c.old):]...), "\n")
	if after == text {
		return "", fmt.Errorf("the patch changes nothing")
	}
	return after, nil
}

// matches reports whether lines begin with old, whatever the indentation.
func matches(lines, old []string) bool {
	if len(lines) < len(old) {
		return false
	}
	for i := range old {
		if strings.TrimSpace(lines[i]) != strings.TrimSpace(old[i]) {
			return false
		}
	}
	return true
}
