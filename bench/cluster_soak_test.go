//go:build soak

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

// TestSoakCluster: three servers are measured, and a server that ends does not end the measurement.
func TestSoakCluster(t *testing.T) {
	file := filepath.Join(t.TempDir(), "raw.json")
	if err := bench([]string{"-cluster", "-quick", "-rows", "^embedded-stop$", "-json", file, "-folder", t.TempDir()}); err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var got report
	if err := json.Unmarshal(raw, &got); err != nil {
		t.Fatal(err)
	}
	if len(got.Lines) != 1 || got.Lines[0].Value <= 0 {
		t.Errorf("got %+v", got.Lines)
	}
}
