package console

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// spans says how long the time becomes within which claims are looked for that end, while there are claims with some seconds left,
// one situation after the other. Old claims come first in a list.
const spans = `
import {mostEnding, nextSpan} from './pages/overview.js';
const many = (n, left) => Array.from({length: n}, (_, i) => left(i));
let span = {within: 60};
for (const claims of [
  [...many(300, () => 10), ...many(5, () => 3)], // too few within 7.5 s, and too many within 15 s
  [40, 50, 55],
  many(1000, (i) => i / 50),
  [],
  many(300, () => 50),
  many(300, () => 25),
  many(20, () => 5),
  [5],
]) {
  for (let answers = 0; answers < 10; answers++) {
    const found = claims.filter((left) => left <= span.within).map((ttl) => ({ttl, granted_ttl: 600}));
    span = nextSpan(span, found.slice(0, mostEnding), found.length > mostEnding);
  }
  console.log(span.within);
}
process.exit(); // the modules keep a clock
`

// TestEndingSpan: the claims closest to their end are looked for within a minute, in less while very many end, and in a minute again
// when these have ended.
func TestEndingSpan(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	if err := os.CopyFS(folder, static); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"package.json": `{"type": "module"}`, "spans.js": spans} {
		if err := os.WriteFile(filepath.Join(folder, "static", name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	got, err := exec.CommandContext(ctx, "node", filepath.Join(folder, "static", "spans.js")).CombinedOutput()
	if want := "15 60 3.75 60 60 30 30 60"; err != nil || strings.Join(strings.Fields(string(got)), " ") != want {
		t.Errorf("got %s, want %s (%v)", got, want, err)
	}
}
