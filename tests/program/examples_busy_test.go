package program_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/tests/harness"
)

// busy is a server that has too much to do for the first request of each kind, and grants everything else.
type busy struct {
	mu       sync.Mutex
	requests map[string]int // by method
	renewed  string         // the file that it makes when it has renewed the claim for the second time
}

func (b *busy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.requests[r.Method]++
	switch n := b.requests[r.Method]; {
	case n == 1:
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusTooManyRequests)
	case r.Method == http.MethodPost:
		w.WriteHeader(http.StatusCreated)
	case r.Method == http.MethodPatch && n == 3:
		_ = os.WriteFile(b.renewed, nil, 0o600)
	}
	_, _ = w.Write([]byte(`{"token": 7}`))
}

func (b *busy) count(method string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.requests[method]
}

// TestExamplesAtBusyServer: the examples repeat requests that an overloaded server refuses (429): the claim is made,
// kept and released.
func TestExamplesAtBusyServer(t *testing.T) {
	t.Parallel()
	tests := make(map[string]func(*testing.T))
	for language, program := range claimExamples {
		tests[language] = func(t *testing.T) {
			b := &busy{requests: make(map[string]int), renewed: filepath.Join(t.TempDir(), "renewed")}
			server := httptest.NewServer(b)
			t.Cleanup(server.Close)
			cmd := exec.Command(program[0], program[1], server.URL, "r", "15", "sh", "-c", `until [ -e "$0" ]; do sleep 0.1; done`, b.renewed)
			cmd.Env = append(fixtures.CleanEnv(), "no_proxy=127.0.0.1", "PYTHONDONTWRITEBYTECODE=1")
			e := begin(t, cmd)
			if code := e.exit(t); code != 0 || b.count("DELETE") < 2 {
				t.Errorf("status %d, given back in %d attempts: %s", code, b.count("DELETE"), e.text())
			}
		}
	}
	harness.AtOnce(t, tests)
}
