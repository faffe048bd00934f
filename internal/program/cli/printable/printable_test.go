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
