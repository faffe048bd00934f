package words_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// unclear is an unclear sentence.
type unclear struct{ place, shape, sentence string }

// TestPlainEnglish: no sentence has a shape that is hard to read.
func TestPlainEnglish(t *testing.T) {
	found, count := read(t)
	if count < 10_000 {
		t.Errorf("only %d sentences", count)
	}
	for _, u := range found {
		t.Errorf("%s: rewrite %q, as CONTRIBUTING.md says under Plain English: %s", u.place, u.shape, u.sentence)
	}
}

// read returns the unclear sentences, and the number of all sentences.
func read(t *testing.T) (found []unclear, count int) {
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
		inFile(name, string(content), func(line int, text string) {
			sentences(text, func(sentence string) {
				if !strings.Contains(sentence, " ") {
					return
				}
				count++
				if shape := shape(sentence); shape != "" {
					found = append(found, unclear{fmt.Sprintf("%s:%d", filepath.ToSlash(name), line), shape, strings.Join(strings.Fields(sentence), " ")})
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

// TestTexts: comments, strings, paragraphs and captions are read, and code is not.
func TestTexts(t *testing.T) {
	for name, content := range map[string]string{
		"a.go":      "// A sentence\n// by which it. Another\npackage a\nconst by = `of\nwhich`\nvar which = \"a by which\"",
		"a_test.go": "package a // by which\nvar s = \"by which\" // in which",
		"a.md":      "# Of which\n\n    by which\n\n```\nby which\n```\n| a | of what |\n- no\n  shape\n",
		"a.js":      "by(which) // no\n  // by\n  // which\nx\n// of which\nx\n/** by which */\n/**\n * in\n * which\n */\nx\nhtml`<p>of <b>which</b></p>`",
	} {
		n := 0
		inFile(name, content, func(_ int, text string) {
			sentences(text, func(sentence string) {
				if shape(sentence) != "" {
					n++
				}
			})
		})
		if want := map[string]int{"a.go": 3, "a_test.go": 2, "a.md": 2, "a.js": 5}[name]; n != want {
			t.Errorf("%s: %d shapes, want %d", name, n, want)
		}
	}
}
