package server

import (
	"log/slog"
	"os"
	"strings"
	"testing"

	"github.com/locket-service/locket/internal/follow"
)

// TestForgottenFile: a server without a configured database does not start empty beside the data of an older version.
func TestForgottenFile(t *testing.T) {
	t.Chdir(t.TempDir())
	must(t, os.WriteFile(oldDefault, []byte("something"), 0o600))
	log := slog.New(slog.DiscardHandler)
	open := func(c Config) error {
		store, err := openStore(t.Context(), c, follow.NewSet(log), log)
		if err == nil {
			must(t, store.Close())
		}
		return err
	}
	if err := open(Config{}); err == nil || !strings.Contains(err.Error(), "--database sqlite:locket.db") || !strings.Contains(err.Error(), "--data ./locket-data") {
		t.Errorf("beside the file of an older version: %v", err)
	}
	if _, err := os.Stat(DefaultData); err == nil {
		t.Error("it has made a folder")
	}
	must(t, open(Config{Data: DefaultData}))
	must(t, open(Config{})) // the folder exists now
}
