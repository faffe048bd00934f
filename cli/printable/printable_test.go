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
