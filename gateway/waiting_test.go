package gateway_test

import (
	"context"
	"net/http"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/locket-service/locket/gateway"
	"github.com/locket-service/locket/models"
)

// full is a connection to a service that lets no more calls wait.
type full struct{ grpc.ClientConnInterface }

func (f full) Invoke(ctx context.Context, method string, args, reply any, options ...grpc.CallOption) error {
	if method == models.Locket_AwaitClaim_FullMethodName {
		return status.Error(codes.ResourceExhausted, "too many calls wait on this server")
	}
	return f.ClientConnInterface.Invoke(ctx, method, args, reply, options...)
}

// TestNoRoomToWait: a caller that cannot wait gets the claim unchanged, and is asked to pause.
func TestNoRoomToWait(t *testing.T) {
	registry := prometheus.NewRegistry()
	conn, _ := service(t, registry)
	h, err := gateway.New(gateway.Config{Service: full{conn}, Metrics: registry}).Handler()
	must(t, err)
	serve(t.Context(), h, "POST", "/v1/claims/", []byte(claimOfR))
	for _, call := range []struct {
		method, path, body string
		code               int
	}{
		{"POST", "/v1/claims/", `{"resource": "r", "ttl": 60, "id": "w"}`, http.StatusAccepted},
		{"GET", "/v1/claims/w/", "", http.StatusOK},
		{"PATCH", "/v1/claims/w/", `{"status": "active"}`, http.StatusConflict},
	} {
		got := serveWith(t.Context(), h, call.method, call.path, []byte(call.body), "Prefer", "wait=10")
		if got.Code != call.code || got.Header().Get("Retry-After") != "1" || got.Header().Get("Preference-Applied") != "" {
			t.Errorf("%s: %d, Retry-After %q", call.method, got.Code, got.Header().Get("Retry-After"))
		}
	}
}
