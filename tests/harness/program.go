package harness

import (
	"context"
	"io"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/locket-service/locket/fixtures"
)

// RunLocket runs the command line until it ends, or is killed after a while.
func RunLocket(t *testing.T, env []string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	program := fixtures.LocketProgram(t) // which may take minutes to build
	ctx, cancel := context.WithTimeout(t.Context(), HangTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = t.TempDir() // where ./locket-data would be made
	cmd.Env = append(fixtures.CleanEnv(), env...)
	var out, complaint strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &complaint
	_ = cmd.Run()
	return out.String(), complaint.String(), cmd.ProcessState.ExitCode()
}

type missing string

func (m missing) Error() string { return "no " + string(m) }

// WantMetric returns an error unless the server has a line among its metrics.
func WantMetric(t *testing.T, server *fixtures.Locket, line string) error {
	t.Helper()
	if !slices.Contains(strings.Split(Scrape(t, server), "\n"), line) {
		return missing(line)
	}
	return nil
}

// Scrape returns the server's metrics.
func Scrape(t *testing.T, server *fixtures.Locket) string {
	t.Helper()
	resp, err := http.Get("http://" + server.HTTPAddress() + "/metrics")
	Must(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	Must(t, err)
	return string(text)
}

// StartSecure starts a server with a certificate by a CA. Its clients show a certificate too.
func StartSecure(t *testing.T, ca *fixtures.CA, args ...string) *fixtures.Locket {
	t.Helper()
	cert, key := ca.Issue(t, "server")
	server := fixtures.NewLocket(t, Embedded(t), append([]string{"--tls-cert", cert, "--tls-key", key}, args...)...)
	server.ClientTLS = ca.ClientTLS(t)
	Must(t, server.Start())
	return server
}
