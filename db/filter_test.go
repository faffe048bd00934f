package db

import (
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

// TestLastName: of all names with a prefix, none comes after the last one, and all others that come after those do.
func TestLastName(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		high := rapid.StringOf(rapid.SampledFrom([]rune{'/', 'a', '\x7f', '\u0080', '\u07ff', '\u0800', '\ud7ff', '\ue000', '\uffff', '\U00010000', utf8.MaxRune}))
		cut := func(name string) string { return strings.ToValidUTF8(name[:min(len(name), MaxName)], "") }
		fill := strings.Repeat(string(rapid.SampledFrom([]rune{'a', '\uffff', utf8.MaxRune}).Draw(t, "fill")), rapid.IntRange(0, MaxName).Draw(t, "n"))
		prefix := cut(high.Draw(t, "prefix"))
		name := cut(prefix + fill + high.Draw(t, "rest"))
		last := LastName(prefix)
		switch {
		case len(last) > MaxName || !utf8.ValidString(last) || !strings.HasPrefix(last, prefix):
			t.Fatalf("%q is no name with the prefix %q", last, prefix)
		case strings.HasPrefix(name, prefix) && name > last:
			t.Fatalf("%q comes after %q", name, last)
		case last >= PrefixEnd(prefix):
			t.Fatalf("%q comes after %q", last, PrefixEnd(prefix))
		}
	})
}
