package words_test

import (
	"path/filepath"
	"regexp"
	"strings"
)

// sentences calls do for each sentence of a text.
func sentences(text string, do func(sentence string)) {
	begin := 0
	for i := range len(text) {
		c, next := text[i], byte('\n')
		if i+1 < len(text) {
			next = text[i+1]
		}
		ends := (c == '.' || c == '!' || c == '?') && (next == ' ' || next == '\n') || c == '\n' && next == '\n'
		if ends || i+1 == len(text) {
			do(text[begin : i+1])
			begin = i + 1
		}
	}
}

// tag finds tags and expressions in the templates of pages.
var tag = regexp.MustCompile(`<[^>]*>|\$\{[^}]*\}`)

// inFile calls do for each text of a file.
func inFile(name, content string, do func(line int, text string)) {
	switch filepath.Ext(name) {
	case ".go":
		inGo(content, strings.HasSuffix(name, "_test.go"), do)
	case ".md":
		inDocument(content, do)
	case ".js":
		for i, line := range strings.Split(content, "\n") { // the captions of pages; code has no such shapes
			if begin := strings.TrimSpace(line); !strings.HasPrefix(begin, "//") && !strings.HasPrefix(begin, "*") && !strings.HasPrefix(begin, "/*") {
				do(i+1, tag.ReplaceAllString(line, " "))
			}
		}
		inScript(strings.NewReplacer("/** ", "// ", "/**", "//", " * ", "// ", "*/", "").Replace(content), "//", do)
	case ".proto":
		inScript(content, "//", do)
	case ".py":
		inScript(content, "#", do)
	}
}

// inGo calls do for each comment of a Go file, and for each string if it is not a test. It searches by bytes, since a
// scanner is slow under the race detector.
func inGo(content string, isTest bool, do func(line int, text string)) {
	if strings.Contains(content[:min(len(content), 4096)], "// Code generated") {
		return
	}
	var comment, raw strings.Builder
	begin, isRaw, n := 0, false, 0
	for line := range strings.SplitSeq(content, "\n") {
		n++
		isComment := false
		for rest := line; rest != ""; {
			if isRaw {
				text, after, ends := strings.Cut(rest, "`")
				raw.WriteString(text)
				if rest = after; ends && !isTest {
					do(n, raw.String())
				}
				if isRaw = !ends; ends {
					raw.Reset()
				}
				continue
			}
			at, after := quote(rest)
			if at < 0 {
				break
			}
			switch c := rest[at]; c {
			case '/':
				isComment = true
				if comment.Len() == 0 {
					begin = n
				}
				comment.WriteString(strings.TrimPrefix(rest[at+2:], " ") + "\n")
			case '`':
				isRaw = true
			case '"':
				if !isTest {
					do(n, rest[at:after])
				}
			}
			rest = rest[after:]
		}
		if raw.Len() > 0 {
			raw.WriteString("\n")
		}
		if comment.Len() > 0 && (!isComment || !strings.HasPrefix(strings.TrimLeft(line, "\t"), "//")) {
			do(begin, comment.String())
			comment.Reset()
		}
	}
}

// quote returns where the first comment or literal of a line begins, -1 if there is none, and where it ends; only the
// begin of a raw string.
func quote(line string) (at, end int) {
	at = len(line)
	for _, c := range []byte("\"`'") {
		if i := strings.IndexByte(line[:at], c); i >= 0 {
			at = i
		}
	}
	if i := strings.Index(line[:at], "//"); i >= 0 {
		return i, len(line)
	}
	switch {
	case at == len(line):
		return -1, at
	case line[at] == '`':
		return at, at + 1
	}
	for end = at + 1; end < len(line) && line[end] != line[at]; end++ {
		if line[end] == '\\' {
			end++
		}
	}
	return at, min(end+1, len(line))
}

// inScript calls do for each comment of a script whose lines begin with a mark.
func inScript(content, mark string, do func(line int, text string)) {
	var comment strings.Builder
	begin := 0
	for i, line := range strings.Split(content, "\n") {
		text, isComment := strings.CutPrefix(strings.TrimSpace(line), mark)
		if !isComment {
			if comment.Len() > 0 {
				do(begin, comment.String())
				comment.Reset()
			}
			continue
		}
		if comment.Len() == 0 {
			begin = i + 1
		}
		comment.WriteString(strings.TrimSpace(text) + "\n")
	}
}

// inDocument calls do for each paragraph, element of a list and cell of a table in Markdown. It skips code.
func inDocument(content string, do func(line int, text string)) {
	var text strings.Builder
	begin, isCode := 0, false
	end := func() {
		do(begin, text.String())
		text.Reset()
	}
	for i, line := range strings.Split(content, "\n") {
		trimmed := strings.TrimSpace(line)
		fence := strings.HasPrefix(trimmed, "```")
		isCode = isCode != fence
		switch {
		case isCode || fence || trimmed == "" || strings.HasPrefix(line, "    "):
			end()
			continue
		case strings.HasPrefix(trimmed, "|"):
			end()
			for cell := range strings.SplitSeq(trimmed, "|") {
				do(i+1, cell)
			}
			continue
		case strings.HasPrefix(trimmed, "- ") || strings.HasPrefix(trimmed, "#"):
			end()
		}
		if text.Len() == 0 {
			begin = i + 1
		}
		text.WriteString(trimmed + "\n")
	}
	end()
}
