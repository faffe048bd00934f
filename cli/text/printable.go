package text

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/width"
)

// isPrintable reports whether a text moves no cursor, and hides nothing: no control
// characters, no escape sequences, no marks that change the direction, no odd spaces.
func isPrintable(text string) bool {
	return strings.IndexFunc(text, func(r rune) bool { return !strconv.IsPrint(r) }) < 0 && utf8.ValidString(text)
}

// printable returns a text in which what is not printable is escaped as in Go.
func printable(text string) string {
	if isPrintable(text) {
		return text
	}
	return escape(strings.ToValidUTF8(text, "\uFFFD"), func(r rune) string {
		inQuotes := strconv.QuoteRune(r)
		return inQuotes[1 : len(inQuotes)-1]
	})
}

// escape replaces what is not printable in a text of lines.
func escape(text string, replacement func(r rune) string) string {
	if isPrintable(strings.ReplaceAll(text, "\n", "")) {
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

// quoted returns a name as it is, or in quotes, as in Go, where it could be taken for
// something else in a table.
func quoted(name string) string {
	if name == "" || name == none || name[0] == '"' || !isPrintable(name) ||
		strings.TrimSpace(name) != name || strings.Contains(name, "  ") {
		return strconv.Quote(name)
	}
	return name
}

// shellQuoted returns a word as it is to be typed into a shell, or NAME if it cannot be.
func shellQuoted(word string) string {
	const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:@%+=,"
	switch {
	case strings.HasPrefix(word, "-") || !isPrintable(word):
		return "NAME"
	case word != "" && !strings.ContainsFunc(word, func(r rune) bool { return !strings.ContainsRune(plain, r) }):
		return word
	default:
		return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
	}
}

// columns is how wide a text is on a terminal.
func columns(text string) (n int) {
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

// shortened returns a text of at most so many columns, with its end left out if need be.
func shortened(text string, most int) string {
	if columns(text) <= most {
		return text
	}
	n := 0
	for i, r := range text {
		if n += columns(string(r)); n >= most {
			return text[:i] + "…"
		}
	}
	return text
}
