package grpcserver_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/locket-service/locket/grpcserver"
	"github.com/locket-service/locket/models"
)

// local returns a client in the same process.
func local(lock func(context.Context) error) (models.LocketClient, *grpcserver.Local, *prometheus.Registry, *logs) {
	registry, log := prometheus.NewRegistry(), &logs{}
	chain := grpcserver.NewChain(slog.New(grpcserver.LogRequestID(log.logger().Handler())), registry)
	conn := grpcserver.NewLocal(chain, func(r grpc.ServiceRegistrar) {
		models.RegisterLocketServer(r, &service{lock: lock})
	})
	return models.NewLocketClient(conn), conn, registry, log
}

// TestLocal: a call in the same process has its metadata, its answer and its error, and is counted.
func TestLocal(t *testing.T) {
	var answer error
	client, _, registry, _ := local(func(ctx context.Context) error {
		if id := grpcserver.RequestID(ctx); id != "build-17" {
			t.Errorf("the request id: %q", id)
		}
		return answer
	})
	ctx := metadata.AppendToOutgoingContext(t.Context(), models.RequestIDKey, "build-17")
	resp, err := client.Lock(ctx, &models.LockRequest{})
	if err != nil || resp == nil {
		t.Errorf("got %v, %v", resp, err)
	}
	answer = models.ErrLockCollision
	if _, err := client.Lock(ctx, &models.LockRequest{}); status.Code(err) != codes.AlreadyExists {
		t.Errorf("got %v", err)
	}
	families, err := registry.Gather()
	must(t, err)
	if n := len(families[0].GetMetric()); n != 2 {
		t.Errorf("%d counts, want one for each code", n)
	}
}

// TestLocalTypes: messages of other types than the method's are an error, not a panic.
func TestLocalTypes(t *testing.T) {
	_, conn, _, _ := local(func(context.Context) error { return nil })
	for _, m := range []struct{ request, reply any }{
		{&models.FetchRequest{}, &models.LockResponse{}}, {&models.LockRequest{}, &models.FetchResponse{}}, {"text", &models.LockResponse{}},
	} {
		wantCode(t, conn.Invoke(t.Context(), "/models.Locket/Lock", m.request, m.reply), codes.Internal)
	}
}

func TestLocalPanic(t *testing.T) {
	client, _, _, log := local(func(context.Context) error { panic("a bug") })
	if _, err := client.Lock(t.Context(), &models.LockRequest{}); status.Code(err) != codes.Internal {
		t.Errorf("got %v", err)
	}
	if !strings.Contains(log.String(), "a bug") {
		t.Errorf("the log: %s", log)
	}
}

func TestLocalEndsWithItsCaller(t *testing.T) {
	client, _, _, _ := local(func(ctx context.Context) error {
		<-ctx.Done()
		return status.FromContextError(ctx.Err()).Err()
	})
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := client.Lock(ctx, &models.LockRequest{}); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("got %v", err)
	}
}

func TestLocalUnknown(t *testing.T) {
	_, conn, _, _ := local(nil)
	if err := conn.Invoke(t.Context(), "/models.Locket/Steal", &models.LockRequest{}, &models.LockResponse{}); status.Code(err) != codes.Unimplemented {
		t.Errorf("a method: %v", err)
	}
	if _, err := conn.NewStream(t.Context(), &grpc.StreamDesc{}, "/models.Locket/Lock"); status.Code(err) != codes.Unimplemented {
		t.Errorf("a stream: %v", err)
	}
}
