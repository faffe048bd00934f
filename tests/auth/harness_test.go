package auth_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/internal/doors/auth"
	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/tests/harness"
)

// world is a server with a credential for each of some names.
type world struct {
	*fixtures.Locket
	t           *testing.T
	credentials map[string]string
	conn        *grpc.ClientConn
	models.LocketClient
}

// write writes a file, and returns its path.
func write(t testing.TB, name, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	must(t, os.WriteFile(file, []byte(text), 0o600))
	return file
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// credentialsFile returns a credentials file with a credential for each name, and the credentials.
func credentialsFile(t *testing.T, names ...string) (file string, credentials map[string]string) {
	t.Helper()
	text := "credentials:\n"
	credentials = make(map[string]string)
	for _, name := range names {
		credential, hash := auth.NewCredential()
		credentials[name] = credential
		text += fmt.Sprintf("  - {name: %s, hash: %q, groups: [people, %s-group]}\n", name, hash, name)
	}
	return write(t, "credentials.yaml", text), credentials
}

// start starts a server with credentials for some names; rules may be empty.
func start(t *testing.T, rules string, names []string, args ...string) *world {
	t.Helper()
	return startOn(t, harness.Embedded(t), rules, names, args...)
}

// startOn is start on a database.
func startOn(t *testing.T, database, rules string, names []string, args ...string) *world {
	t.Helper()
	file, credentials := credentialsFile(t, names...)
	args = append(args, "--auth-credentials", file)
	if rules != "" {
		args = append(args, "--auth-rules", write(t, "rules.yaml", rules))
	}
	w := &world{t: t, credentials: credentials, Locket: fixtures.StartLocket(t, database, args...)}
	var err error
	w.conn, err = grpc.NewClient(w.Address(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	must(t, err)
	t.Cleanup(func() { _ = w.conn.Close() })
	w.LocketClient = models.NewLocketClient(w.conn)
	return w
}

// logs waits until the log of the server has a text. Readiness, and the audit log, may show what has happened before it does.
func logs(t *testing.T, w *world, text string) {
	t.Helper()
	harness.Until(t, fmt.Sprintf("%q in the log", text), func() bool { return strings.Contains(w.Log(), text) })
}

// as returns a context with the credential of a name; "" is none.
func (w *world) as(name string) context.Context {
	if name == "" {
		return w.t.Context()
	}
	return metadata.AppendToOutgoingContext(w.t.Context(), "authorization", "Bearer "+w.credentials[name])
}

// http sends a request of a name, and returns the code, the header and the body of the answer.
func (w *world) http(name, method, path, body string, headers ...string) (int, http.Header, string) {
	w.t.Helper()
	if name != "" {
		headers = append(headers, "Authorization: Bearer "+w.credentials[name])
	}
	return request(w.t, http.DefaultClient, method, "http://"+w.HTTPAddress()+path, body, headers...)
}

func request(t *testing.T, client *http.Client, method, url, body string, headers ...string) (int, http.Header, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	must(t, err)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for _, header := range headers {
		name, value, _ := strings.Cut(header, ": ")
		req.Header[name] = append(req.Header[name], value)
	}
	response, err := client.Do(req)
	must(t, err)
	defer func() { _ = response.Body.Close() }()
	if response.Header.Get("Content-Type") == "text/event-stream" { // it does not end
		return response.StatusCode, response.Header, ""
	}
	text, err := io.ReadAll(response.Body)
	must(t, err)
	return response.StatusCode, response.Header, string(text)
}
