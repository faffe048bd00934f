package gateway_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/locket-service/locket/gateway"
)

// every call on unavailable fails.
type unavailable struct {
	grpc.ClientConnInterface
	err error
}

func (u unavailable) Invoke(context.Context, string, any, any, ...grpc.CallOption) error {
	return u.err
}

// TestFaults: the answers to all requests while the service cannot answer.
func TestFaults(t *testing.T) {
	for code, want := range map[codes.Code]struct {
		status int
		retry  string
	}{
		codes.Unavailable:       {http.StatusServiceUnavailable, "1"},
		codes.DeadlineExceeded:  {http.StatusGatewayTimeout, ""},
		codes.ResourceExhausted: {http.StatusTooManyRequests, "1"},
		codes.Canceled:          {499, ""},
		codes.Internal:          {http.StatusInternalServerError, ""},
	} {
		h, err := gateway.New(gateway.Config{
			Service: unavailable{err: status.Error(code, "the reason")}, Metrics: prometheus.NewRegistry(),
		}).Handler()
		must(t, err)
		for _, call := range []struct{ method, path, body string }{
			{"POST", "/v1/claims/", `{"resource": "r", "ttl": 1}`},
			{"GET", "/v1/claims/", ""},
			{"GET", "/v1/claims/c/", ""},
			{"PATCH", "/v1/claims/c/", `{"ttl": 1}`},
			{"PUT", "/v1/claims/c/", `{"status": "active", "ttl": 1}`},
			{"DELETE", "/v1/claims/c/", ""},
			{"GET", "/v1/resources/r/", ""},
			{"GET", "/v1/locks/", ""},
			{"GET", "/v1/presences/r/", ""},
		} {
			got := serve(t.Context(), h, call.method, call.path, []byte(call.body))
			if got.Code != want.status || got.Body.String() != `{"message":"the reason"}`+"\n" || got.Header().Get("Retry-After") != want.retry {
				t.Errorf("%s: %s %s: %d %s, Retry-After %q", code, call.method, call.path, got.Code, got.Body, got.Header().Get("Retry-After"))
			}
		}
	}
}

// TestChallengesForScripts: scripts of a page get no challenge that makes the browser show a dialog.
func TestChallengesForScripts(t *testing.T) {
	t.Parallel()
	const all = `Bearer realm="locket", Basic realm="locket", charset="UTF-8", Certificate realm="locket"`
	for mode, want := range map[string]string{
		"": all, "navigate": all, "cors": `Bearer realm="locket", Certificate realm="locket"`, "same-origin": `Bearer realm="locket", Certificate realm="locket"`,
	} {
		r := httptest.NewRequest(http.MethodGet, "/v1/whoami", http.NoBody)
		if mode != "" {
			r.Header.Set("Sec-Fetch-Mode", mode)
		}
		if got := gateway.ChallengesFor(r, all); got != want {
			t.Errorf("%q: %s", mode, got)
		}
	}
}
