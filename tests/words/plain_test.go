package words_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// unclear finds shapes of sentences that stop a reader, and that other projects rarely use. CONTRIBUTING.md says what to write instead.
var unclear = []*regexp.Regexp{
	regexp.MustCompile(`(?i)\b(is|are|returns?|says?|has|have|reads?|gives?|keeps?|with|without|of|by|for|to|from|than|on|in|after|before|until|at|more|all|because|beside) what\b`),
	regexp.MustCompile(`(?i)\b(that|those|the one|such) (of|that|which|whose)\b`),
	regexp.MustCompile(`(?i)\b(of|by|from|in|to|after|before|behind|with|for|on|under|beside|below|at) (which|whom)\b`),
	regexp.MustCompile(`(?i)\bas (it|they|one) (is|was|does|did)\b|\bsuch a one\b|\bthat one\b|\blikewise\b`),
	regexp.MustCompile(`(?i)\b(is|are|was|were) to be [a-z]+`),
	regexp.MustCompile(`(?i)(?:^|[.;:,(] ?|\b(?:and|or|but|since|than|of|by|to|for|whether) )who (?:is|has|was|does|may|can|[a-z]+s)\b`),
	regexp.MustCompile(`(?i); (else|meanwhile|then)\b|\belse (it|they|the|a)\b`),
}

// The numbers of unclear sentences that remain, in comments and texts of Go code and in documents. They only fall: who removes some lowers them.
const (
	unclearInCode      = 0
	unclearInDocuments = 0
)

// slack is by how many sentences the numbers may be too high, so that not every improvement must change them.
const slack = 50

// TestPlainEnglish: no sentence with an unclear shape is added.
func TestPlainEnglish(t *testing.T) {
	code, documents := prose{}, prose{}
	files := walk(t, func(name string, content []byte) {
		switch filepath.Ext(name) {
		case ".go":
			code.addCode(t, name, content)
		case ".md":
			documents.addDocument(name, string(content))
		}
	})
	if files < 100 {
		t.Errorf("%d files", files)
	}
	code.check(t, "unclearInCode", unclearInCode)
	documents.check(t, "unclearInDocuments", unclearInDocuments)
}

// prose counts the sentences of texts, and keeps the unclear ones.
type prose struct {
	sentences int
	unclear   []string
}

func (p *prose) check(t *testing.T, name string, most int) {
	t.Logf("%s: %d of %d sentences", name, len(p.unclear), p.sentences)
	switch n := len(p.unclear); {
	case n > most:
		t.Errorf("%d sentences have an unclear shape, %d are allowed (%s):\n%s", n, most, name, strings.Join(p.unclear, "\n"))
	case n < most-slack:
		t.Errorf("%d sentences have an unclear shape: lower %s from %d", n, name, most)
	}
}

var sentenceEnd = regexp.MustCompile(`[.!?](?:\s+|$)|\n\s*\n`)

// add adds a text that begins on a line of a file.
func (p *prose) add(name string, line int, text string) {
	for _, sentence := range sentenceEnd.Split(text, -1) {
		sentence = strings.Join(strings.Fields(sentence), " ")
		if !strings.Contains(sentence, " ") {
			continue
		}
		p.sentences++
		for _, shape := range unclear {
			if found := shape.FindString(sentence); found != "" {
				p.unclear = append(p.unclear, fmt.Sprintf("%s:%d: %q: %s", name, line, found, sentence))
				break
			}
		}
	}
}

// addCode adds the comments and the texts of a Go file.
func (p *prose) addCode(t *testing.T, name string, content []byte) {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, name, content, parser.ParseComments)
	if err != nil {
		t.Error(err)
		return
	}
	if ast.IsGenerated(file) {
		return
	}
	for _, group := range file.Comments {
		p.add(name, set.Position(group.Pos()).Line, group.Text())
	}
	ast.Inspect(file, func(node ast.Node) bool {
		if text, ok := node.(*ast.BasicLit); ok && text.Kind == token.STRING && !strings.HasSuffix(name, "_test.go") {
			p.add(name, set.Position(text.Pos()).Line, text.Value)
		}
		return true
	})
}

// addDocument adds a document in Markdown, without its code: each row of a table and each element of a list is a text.
func (p *prose) addDocument(name, content string) {
	text, begin, fenced := "", 0, false
	for i, line := range strings.Split(content, "\n") {
		trimmed := strings.TrimSpace(line)
		fence := strings.HasPrefix(trimmed, "```")
		isCode := fenced || fence || strings.HasPrefix(line, "    ")
		if fence {
			fenced = !fenced
		}
		if isCode || trimmed == "" || strings.HasPrefix(trimmed, "|") || strings.HasPrefix(trimmed, "- ") || strings.HasPrefix(trimmed, "#") {
			p.add(name, begin, text)
			text = ""
		}
		if isCode {
			continue
		}
		if text == "" {
			begin = i + 1
		}
		if strings.HasPrefix(trimmed, "|") {
			for cell := range strings.SplitSeq(trimmed, "|") {
				p.add(name, begin, cell)
			}
			continue
		}
		text += " " + trimmed
	}
	p.add(name, begin, text)
}

// walk calls do for each text of the repository, and returns their number.
func walk(t *testing.T, do func(name string, content []byte)) (files int) {
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		name, relErr := filepath.Rel(root, path)
		switch {
		case err != nil || relErr != nil:
			return err
		case entry.IsDir() && name != "." && (strings.HasPrefix(entry.Name(), ".") || name == "tests/words" || entry.Name() == "node_modules" || entry.Name() == "testdata"):
			return fs.SkipDir
		case !entry.Type().IsRegular() || strings.HasPrefix(entry.Name(), "."):
			return nil
		}
		content, err := os.ReadFile(path)
		if err == nil {
			files++
			do(name, content)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	return files
}

// TestUnclear: the shapes are found in the sentences that have them, and in no others.
func TestUnclear(t *testing.T) {
	for text, want := range map[string]int{
		"It returns what was asked.":                             1,
		"It returns the answer. Those that wait are woken.":      1,
		"The row by which servers show that they can commit.":    1,
		"The file is to be read again; else it counts.":          1,
		"A caller, or who is gone.":                              1,
		"Locked rows end with their transaction.":                0,
		"It reports who holds the lock, and what would free it.": 0,
	} {
		var p prose
		p.add("x.go", 1, text)
		if len(p.unclear) != want {
			t.Errorf("%q: %q, want %d", text, p.unclear, want)
		}
	}
	var p prose
	p.addDocument("x.md", "# Of which\n\n    by which\n\n```\nby which\n```\n| a | of what |\n- by whom\n  it came\n")
	if len(p.unclear) != 3 {
		t.Errorf("%q, want three: the title, the cell, the element", p.unclear)
	}
}
