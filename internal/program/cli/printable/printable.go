// Package printable makes text from clients and servers safe for a terminal: names, values and errors may contain any characters. The
// results have no control sequences, hide nothing, and can be distinguished from the program's own text.
package printable

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/width"
)

// None is the text of an empty cell of a table.
const None = "-"

// Is reports whether a text moves no cursor, and hides nothing: no control
// characters, no escape sequences, no marks that change the direction, no odd spaces.
func Is(text string) bool {
	return strings.IndexFunc(text, func(r rune) bool { return !strconv.IsPrint(r) }) < 0 && utf8.ValidString(text)
}

// Text escapes the unprintable characters of a text as Go does.
func Text(text string) string {
	if Is(text) {
		return text
	}
	return Escape(strings.ToValidUTF8(text, "\uFFFD"), func(r rune) string {
		inQuotes := strconv.QuoteRune(r)
		return inQuotes[1 : len(inQuotes)-1]
	})
}

// Escape replaces what is not printable in a text of lines, whose line breaks it keeps.
func Escape(text string, replacement func(r rune) string) string {
	if Is(strings.ReplaceAll(text, "\n", "")) {
		return text
	}
	var escaped strings.Builder
	for _, r := range text {
		if r == '\n' || strconv.IsPrint(r) {
			escaped.WriteRune(r)
		} else {
			escaped.WriteString(replacement(r))
		}
	}
	return escaped.String()
}

// Quoted returns a name, in quotes as in Go if it could be taken for something else in a table.
func Quoted(name string) string {
	if name == "" || name == None || name[0] == '"' || !Is(name) ||
		strings.TrimSpace(name) != name || strings.Contains(name, "  ") {
		return strconv.Quote(name)
	}
	return name
}

// ShellQuoted quotes a word for a shell. It returns NAME if the word cannot be typed.
func ShellQuoted(word string) string {
	const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:@%+=,"
	switch {
	case strings.HasPrefix(word, "-") || !Is(word):
		return "NAME"
	case word != "" && !strings.ContainsFunc(word, func(r rune) bool { return !strings.ContainsRune(plain, r) }):
		return word
	default:
		return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
	}
}

// Columns is how wide a text is on a terminal.
func Columns(text string) (n int) {
	for _, r := range text {
		switch {
		case unicode.In(r, unicode.Mn, unicode.Me):
		case wide(r):
			n += 2
		default:
			n++
		}
	}
	return n
}

func wide(r rune) bool {
	kind := width.LookupRune(r).Kind()
	return kind == width.EastAsianWide || kind == width.EastAsianFullwidth
}

// Shortened returns a text of at most so many columns, with its end left out if need be.
func Shortened(text string, most int) string {
	if Columns(text) <= most {
		return text
	}
	n := 0
	for i, r := range text {
		if n += Columns(string(r)); n >= most {
			return text[:i] + "…"
		}
	}
	return text
}

// Middle returns a text of at most so many columns, with its middle left out if need be: what differs in names is often at their ends.
func Middle(text string, most int) string {
	if Columns(text) <= most {
		return text
	}
	head, tail := "", ""
	for n, runes := 1, []rune(text); len(runes) > 0; { // 1 is the dots
		r := runes[0]
		if len(head) > len(tail) {
			r = runes[len(runes)-1]
		}
		if n += Columns(string(r)); n > most {
			break
		}
		if len(head) > len(tail) {
			tail, runes = string(r)+tail, runes[:len(runes)-1]
		} else {
			head, runes = head+string(r), runes[1:]
		}
	}
	return head + "…" + tail
}

// Wrapped breaks the paragraphs of a text into lines of at most so many columns. Lines that are indented stay.
func Wrapped(text string, most int) string {
	var wrapped strings.Builder
	used := 0 // columns of the last line
	for line := range strings.Lines(text) {
		if strings.TrimSpace(line) == "" || line[0] == ' ' || line[0] == '\t' {
			if used > 0 {
				wrapped.WriteByte('\n')
			}
			wrapped.WriteString(line)
			used = 0
			continue
		}
		for word := range strings.FieldsSeq(line) {
			switch n := Columns(word); {
			case used == 0:
				used = n
			case used+1+n > most:
				wrapped.WriteByte('\n')
				used = n
			default:
				wrapped.WriteByte(' ')
				used += 1 + n
			}
			wrapped.WriteString(word)
		}
	}
	if used > 0 {
		wrapped.WriteByte('\n')
	}
	return wrapped.String()
}

// OneLine joins the lines of a text, and leaves nothing in it that moves a terminal's cursor.
func OneLine(text string) string {
	return Text(strings.ReplaceAll(strings.TrimSpace(text), "\n", "; "))
}
