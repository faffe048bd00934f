package words_test

import (
	"flag"
	"fmt"
	"hash/crc32"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// allowedFile lists unclear sentences that are not rewritten yet: on each line a folder and the checksums of its
// sentences. Lines only get shorter.
const allowedFile = "unclear.txt"

var update = flag.Bool("update", false, "remove sentences from "+allowedFile+" that no longer exist")

// unclear is an unclear sentence.
type unclear struct{ place, shape, sentence string }

func (u *unclear) sum() string { return fmt.Sprintf("%08x", crc32.ChecksumIEEE([]byte(u.sentence))) }

// TestPlainEnglish: no folder gets more sentences that are hard to read than it had.
func TestPlainEnglish(t *testing.T) {
	found, count := read(t)
	if count < 10_000 {
		t.Errorf("only %d sentences", count)
	}
	allowed := readAllowed(t)
	known := slices.Concat(slices.Collect(maps.Values(allowed))...) // sentences may move to another folder
	left, excess := map[string][]string{}, 0
	for folder, all := range found {
		var added []unclear
		for _, u := range all {
			if slices.Contains(known, u.sum()) {
				left[folder] = append(left[folder], u.sum())
			} else {
				added = append(added, u)
			}
		}
		if len(added) == 0 || len(all) <= len(allowed[folder]) {
			continue
		}
		excess++
		for _, u := range added {
			t.Errorf("%s: rewrite %q, as CONTRIBUTING.md says under Plain English: %s", u.place, u.shape, u.sentence)
		}
	}
	if excess > 0 {
		t.Errorf("%d folders have more unclear sentences than %s allows", excess, allowedFile)
	}
	t.Logf("%d unclear sentences are left of %d", countOf(left), count)
	if *update {
		writeAllowed(t, left)
	}
}

// read returns the unclear sentences of each folder, and the number of all sentences.
func read(t *testing.T) (found map[string][]unclear, count int) {
	found = map[string][]unclear{}
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		name, relErr := filepath.Rel(root, path)
		switch {
		case err != nil || relErr != nil:
			return err
		case entry.IsDir() && (name != "." && strings.HasPrefix(entry.Name(), ".") || name == "console/static/vendor" || entry.Name() == "testdata" || entry.Name() == "node_modules"):
			return fs.SkipDir
		case !slices.Contains([]string{".go", ".md", ".js", ".proto", ".py"}, filepath.Ext(name)):
			return nil
		}
		content, err := os.ReadFile(path)
		folder := filepath.ToSlash(filepath.Dir(name))
		inFile(name, string(content), func(line int, text string) {
			sentences(text, func(sentence string) {
				if !strings.Contains(sentence, " ") {
					return
				}
				count++
				if shape := shape(sentence); shape != "" {
					found[folder] = append(found[folder], unclear{fmt.Sprintf("%s:%d", filepath.ToSlash(name), line), shape, strings.Join(strings.Fields(sentence), " ")})
				}
			})
		})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found, count
}

func readAllowed(t *testing.T) map[string][]string {
	content, err := os.ReadFile(allowedFile)
	if err != nil {
		t.Fatal(err)
	}
	allowed := map[string][]string{}
	for line := range strings.Lines(string(content)) {
		if fields := strings.Fields(line); len(fields) > 0 {
			allowed[fields[0]] = fields[1:]
		}
	}
	return allowed
}

func writeAllowed(t *testing.T, left map[string][]string) {
	var b strings.Builder
	for _, folder := range slices.Sorted(maps.Keys(left)) {
		slices.Sort(left[folder])
		fmt.Fprintln(&b, folder, strings.Join(left[folder], " "))
	}
	if err := os.WriteFile(allowedFile, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
}

func countOf(sentences map[string][]string) (n int) {
	for _, some := range sentences {
		n += len(some)
	}
	return n
}

// TestShapes: the shapes are found in sentences that have them, and in no others.
func TestShapes(t *testing.T) {
	for _, unclear := range []string{
		"It returns what was asked.", "Those that wait are woken.", "The row by which servers show that they can commit.",
		"The file is to be read again.", "It counts; else it does not.", "A caller, or who is gone.", "Who asks is told.",
		"It stays as it is.", "The one that waits.", "Likewise for reads.", "a queue (who waits is served)",
	} {
		if shape(unclear) == "" {
			t.Errorf("nothing is found in %q", unclear)
		}
	}
	for _, clear := range []string{
		"Locked rows end with their transaction.", "It reports who holds the lock.", "What would free it?", "It is that, of course.", "to be sure", "Who holds it, and by which claim?",
	} {
		if found := shape(clear); found != "" {
			t.Errorf("%q is found in %q", found, clear)
		}
	}
}

// TestTexts: comments, strings and paragraphs are read, and code is not.
func TestTexts(t *testing.T) {
	for name, content := range map[string]string{
		"a.go":      "// A sentence\n// by which it. Another\npackage a\nconst by = `of\nwhich`\nvar which = \"a by which\"",
		"a_test.go": "package a // by which\nvar s = \"by which\" // in which",
		"a.md":      "# Of which\n\n    by which\n\n```\nby which\n```\n| a | of what |\n- no\n  shape\n",
		"a.js":      "by(which) // no\n  // by\n  // which\nx\n// of which\nx",
	} {
		n := 0
		inFile(name, content, func(_ int, text string) {
			sentences(text, func(sentence string) {
				if shape(sentence) != "" {
					n++
				}
			})
		})
		if want := map[string]int{"a.go": 3, "a_test.go": 2, "a.md": 2, "a.js": 2}[name]; n != want {
			t.Errorf("%s: %d shapes, want %d", name, n, want)
		}
	}
}
