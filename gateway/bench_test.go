package gateway_test

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/locket-service/locket/gateway"
	"github.com/locket-service/locket/grpcserver"
	"github.com/locket-service/locket/handlers"
	"github.com/locket-service/locket/models"
)

// instant answers at once, so that what is measured is the way to the service and back.
type instant struct {
	models.UnimplementedLocketServer
}

func (instant) claim(id string) *models.Claim {
	return &models.Claim{
		Id: id, Resource: "r", Owner: "me", Status: models.Status_STATUS_ACTIVE, Token: 1,
		StatusHistory: []*models.StatusChange{{Status: models.Status_STATUS_ACTIVE, Timestamp: timestamppb.Now()}},
	}
}

func (s instant) GetClaim(_ context.Context, r *models.GetClaimRequest) (*models.Claim, error) {
	return s.claim(r.GetId()), nil
}

func (s instant) CreateClaim(_ context.Context, r *models.CreateClaimRequest) (*models.Claim, error) {
	return s.claim(r.GetId()), nil
}

// BenchmarkREST measures a request from the HTTP handler to a service that answers at once.
func BenchmarkREST(b *testing.B) {
	registry := prometheus.NewRegistry()
	conn := grpcserver.NewLocal(grpcserver.NewChain(slog.New(slog.DiscardHandler), registry), func(r grpc.ServiceRegistrar) {
		handlers.Register(r, instant{})
	})
	handler, err := gateway.New(gateway.Config{Service: conn, Metrics: registry, Log: slog.New(slog.DiscardHandler)}).Handler()
	if err != nil {
		b.Fatal(err)
	}
	for _, c := range []struct {
		method, path, body string
		code               int
	}{
		{http.MethodGet, "/v1/claims/c/", "", http.StatusOK},
		{http.MethodPost, "/v1/claims/", `{"id": "c", "resource": "r", "owner": "me", "ttl": 300}`, http.StatusCreated},
	} {
		b.Run(c.method, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				answer := httptest.NewRecorder()
				request := httptest.NewRequest(c.method, c.path, strings.NewReader(c.body))
				request.Header.Set("Content-Type", "application/json")
				handler.ServeHTTP(answer, request)
				if answer.Code != c.code {
					b.Fatalf("%s: %d %s", c.method, answer.Code, answer.Body)
				}
			}
		})
	}
}
