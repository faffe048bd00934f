package robustness_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/locket-service/locket/internal/doors/auth"
	"github.com/locket-service/locket/tests/harness"
	"github.com/locket-service/locket/tests/recorder"
)

// parties are the callers of servers with access rules, and the flags of these servers. The zero value is for servers without authentication.
type parties struct {
	flags  []string
	rules  string     // the path of the file
	worker credential // of the holders: they see all claims
	reader credential // of the readers: they see only the claims of readable
}

// readable are the resources whose claims the reader may see.
var readable = []string{"key-0", "key-1"}

const partiesRules = `rules:
  - {identity: "credential:worker", may: [read, hold], resource_prefix: "key-"}
  - {identity: "credential:reader", may: [read], resource: "key-0"}
  - {identity: "credential:reader", may: [read], resource: "key-1"}
quotas:
  - {everybody: true, requests_per_second: 1000000, claims_held: 1000000, claims_waiting: 1000000}
`

func newParties(t *testing.T) (p parties) {
	t.Helper()
	folder := t.TempDir()
	file := filepath.Join(folder, "credentials.yaml")
	p.rules = filepath.Join(folder, "rules.yaml")
	var text strings.Builder
	text.WriteString("credentials:\n")
	for name, secret := range map[string]*credential{"worker": &p.worker, "reader": &p.reader} {
		made, hash := auth.NewCredential()
		*secret = credential(made)
		fmt.Fprintf(&text, "  - {name: %s, hash: %q}\n", name, hash)
	}
	harness.Must(t, os.WriteFile(file, []byte(text.String()), 0o600))
	harness.Must(t, os.WriteFile(p.rules, []byte(partiesRules), 0o600))
	p.flags = []string{"--auth-credentials", file, "--auth-rules", p.rules}
	return p
}

// credential is a bearer credential that is shown with each call; "" for none.
type credential string

// options configure a connection with recorded calls.
func (c credential) options(r *recorder.Recorder) []grpc.DialOption {
	if c == "" {
		return r.DialOptions()
	}
	return append(r.DialOptions(), grpc.WithPerRPCCredentials(c))
}

// GetRequestMetadata implements credentials.PerRPCCredentials.
func (c credential) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + string(c)}, nil
}

// RequireTransportSecurity implements credentials.PerRPCCredentials.
func (c credential) RequireTransportSecurity() bool { return false }

// RoundTrip implements http.RoundTripper.
func (c credential) RoundTrip(request *http.Request) (*http.Response, error) {
	if c != "" {
		request = request.Clone(request.Context())
		request.Header.Set("Authorization", "Bearer "+string(c))
	}
	return http.DefaultTransport.RoundTrip(request)
}

func dial(t *testing.T, address string, options []grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+address, append(options, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	harness.Must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}
