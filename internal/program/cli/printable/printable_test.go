package printable

import "testing"

func TestShellQuoted(t *testing.T) {
	t.Parallel()
	for word, want := range map[string]string{
		"a-b_c.d/e:1": "a-b_c.d/e:1", "a b": "'a b'", "": "''", "it's": `'it'\''s'`, "$(reboot)": "'$(reboot)'", "a\x1b": "NAME", "--help": "NAME",
	} {
		if got := ShellQuoted(word); got != want {
			t.Errorf("%q: %s, want %s", word, got, want)
		}
	}
}

func TestMiddle(t *testing.T) {
	for _, test := range []struct {
		text string
		most int
		want string
	}{
		{"abcdef", 6, "abcdef"}, {"abcdef", 5, "ab…ef"}, {"abcdef", 4, "ab…f"}, {"abcdef", 1, "…"}, {"三国志三国志", 7, "三国…志"}, {"", 3, ""},
	} {
		if got := Middle(test.text, test.most); got != test.want || Columns(got) > test.most {
			t.Errorf("%q in %d: %q, want %q", test.text, test.most, got, test.want)
		}
	}
}

// TestWrapped: paragraphs fit, and blank and indented lines stay.
func TestWrapped(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"one two\nthree four\n":                  "one two\nthree four\n",
		"a b\nc d e f g h\n\n  as it is, long\n": "a b c d e\nf g h\n\n  as it is, long\n",
		"\u4e16\u754c\u4e16\u754c\u4e16 x y":     "\u4e16\u754c\u4e16\u754c\u4e16\nx y\n",
		"":                                       "",
	} {
		if got := Wrapped(text, 10); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
