//go:build openapi

// Package openapi_test checks the OpenAPI document by the tools that its users have: a strict linter, and a client
// that is generated from it. The tools come from npm.
package openapi_test

import (
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/tests/harness"
)

func TestMain(m *testing.M) {
	m.Run()
	fixtures.Shutdown()
}

// TestOpenAPITools: the linter finds nothing, and a client with generated types compiles and works.
func TestOpenAPITools(t *testing.T) {
	server := fixtures.StartLocket(t, harness.Embedded(t))
	url := "http://" + server.HTTPAddress()
	folder := t.TempDir()
	harness.Must(t, os.CopyFS(folder, os.DirFS(".")))
	harness.Must(t, os.WriteFile(filepath.Join(folder, "openapi.json"), fetch(t, url+"/openapi.json"), 0o600))
	for _, command := range [][]string{
		{"npm", "install", "--no-audit", "--no-fund", "--ignore-scripts"},
		{"npx", "redocly", "lint", "openapi.json"},
		{"npx", "openapi-typescript", "openapi.json", "--output", "schema.d.ts"},
		{"npx", "tsc"},
		{"node", "out/client.js", url},
	} {
		cmd := exec.CommandContext(t.Context(), command[0], command[1:]...)
		cmd.Dir, cmd.Env = folder, append(os.Environ(), "REDOCLY_TELEMETRY=off", "REDOCLY_SUPPRESS_UPDATE_NOTICE=true")
		if output, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%q: %v\n%s", command, err, output)
		}
	}
}

func fetch(t *testing.T, url string) []byte {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	harness.Must(t, err)
	resp, err := http.DefaultClient.Do(req)
	harness.Must(t, err)
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	harness.Must(t, err)
	return text
}
