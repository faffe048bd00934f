package settings

import (
	"testing"
)

func TestDefaultContextFile(t *testing.T) {
	t.Setenv("HOME", "/home/me")
	for folder, want := range map[string]string{
		"/x": "/x/locket/contexts.yaml", "": "/home/me/.config/locket/contexts.yaml", "relative": "/home/me/.config/locket/contexts.yaml",
	} {
		t.Setenv("XDG_CONFIG_HOME", folder)
		if got := defaultContextFile(); got != want {
			t.Errorf("%q: %s, want %s", folder, got, want)
		}
	}
}
