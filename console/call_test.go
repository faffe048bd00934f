package console

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// deaf has no signal end a fetch: once it is collected with the request, neither the answer nor its body ends.
const deaf = `
const fetches = globalThis.fetch;
globalThis.fetch = (url, options) => fetches(url, {...options, signal: undefined});
`

// askAll requests some paths, and writes the results, and after how many seconds to ask again.
const askAll = deaf + `
globalThis.document = {baseURI: process.argv[2] + '/console/'};
const {call} = await import('./api.js');
for (const path of ['good', 'silent', 'half', '504', '503', '400']) {
  try { console.log(path, (await call('GET', path)).value); } catch (error) { console.log(path, error.status, error.again); }
}
const gone = new AbortController();
setTimeout(() => gone.abort(), 100);
try { await call('GET', 'silent', {signal: gone.signal}); } catch (error) { console.log('left', error.name); }
process.exitCode = 0;
setTimeout(() => process.exit(), 1000); // connections that are kept do not hold it
`

// TestCallsEnd: a request that is not answered, or not to its end, is given up, and made again like one that a server or a proxy cannot answer now.
func TestCallsEnd(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/good":
			fmt.Fprint(w, "1")
		case "/half":
			fmt.Fprint(w, "[1,")
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		case "/silent":
			<-r.Context().Done()
		case "/504":
			w.WriteHeader(http.StatusGatewayTimeout)
		case "/503":
			w.Header().Set("Retry-After", "7")
			w.WriteHeader(http.StatusServiceUnavailable)
		default:
			w.WriteHeader(http.StatusBadRequest)
		}
	}))
	defer server.Close()
	api, err := static.ReadFile("static/lib/api.js")
	if err != nil {
		t.Fatal(err)
	}
	const patience = "longest = 70_000"
	if !strings.Contains(string(api), patience) {
		t.Fatalf("there is no %q", patience)
	}
	folder := modules(t, map[string]string{"api.js": strings.Replace(string(api), patience, "longest = 10_000", 1), "ask.js": askAll})
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute) // for a test that hangs
	defer cancel()
	got, err := exec.CommandContext(ctx, "node", filepath.Join(folder, "ask.js"), server.URL).CombinedOutput()
	want := []string{"good 1", "silent 0 5", "half 0 5", "504 504 5", "503 503 7", "400 400 0", "left AbortError"}
	if lines := strings.Split(strings.TrimSpace(string(got)), "\n"); err != nil || !slices.Equal(lines, want) {
		t.Errorf("got %q, want %q (%v)", lines, want, err)
	}
}

// modules returns a folder with modules of JavaScript, and with abort.js, which they import.
func modules(t *testing.T, files map[string]string) (folder string) {
	t.Helper()
	abort, err := static.ReadFile("static/lib/abort.js")
	if err != nil {
		t.Fatal(err)
	}
	folder = t.TempDir()
	files["abort.js"], files["package.json"] = string(abort), `{"type": "module"}`
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return folder
}
