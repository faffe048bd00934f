package models_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/locket-service/locket/models"
)

// refusing is a server that answers every Lock with an error.
type refusing struct {
	models.UnimplementedLocketServer
	err error
}

func (s *refusing) Lock(context.Context, *models.LockRequest) (*models.LockResponse, error) {
	return nil, s.err
}

// callWith returns the error of a call that a server answers with err.
func callWith(t *testing.T, err error) error {
	t.Helper()
	listener := bufconn.Listen(1 << 16)
	server := grpc.NewServer()
	models.RegisterLocketServer(server, &refusing{err: err})
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	conn, dialErr := grpc.NewClient("passthrough:///locket", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))
	if dialErr != nil {
		t.Fatal(dialErr)
	}
	_, got := models.NewLocketClient(conn).Lock(t.Context(), &models.LockRequest{})
	server.Stop()
	if err := errors.Join(conn.Close(), <-served); err != nil {
		t.Fatal(err)
	}
	return got
}

var sentinels = []error{
	models.ErrLockCollision, models.ErrInvalidTTL, models.ErrInvalidOwner, models.ErrResourceNotFound, models.ErrInvalidType,
}

// TestFromWire: an error of a call, with and without details, wrapped before or after, is the matching sentinel, and no
// other; its code, message and details are unchanged.
func TestFromWire(t *testing.T) {
	for _, sentinel := range sentinels {
		detailed, err := status.Convert(sentinel).WithDetails(&errdetails.ErrorInfo{Reason: "R", Domain: models.ErrorDomain})
		if err != nil {
			t.Fatal(err)
		}
		for name, sent := range map[string]error{"plain": sentinel, "detailed": detailed.Err()} {
			wire := callWith(t, sent)
			for how, got := range map[string]error{
				"as it is":       models.FromWire(wire),
				"twice":          models.FromWire(models.FromWire(wire)),
				"wrapped before": models.FromWire(fmt.Errorf("lock: %w", wire)),
				"wrapped after":  fmt.Errorf("lock: %w", models.FromWire(wire)),
				"joined":         models.FromWire(errors.Join(errors.New("other"), wire)),
			} {
				for _, other := range sentinels {
					if errors.Is(got, other) != (other == sentinel) { //nolint:errorlint // which of the sentinels it is
						t.Errorf("%v, %s, %s: is %v: %t", sentinel, name, how, other, other != sentinel) //nolint:errorlint // as above
					}
				}
				if status.Code(got) != status.Code(sentinel) || models.ReasonOf(got) != models.ReasonOf(sent) {
					t.Errorf("%v, %s, %s: code %s, reason %q", sentinel, name, how, status.Code(got), models.ReasonOf(got))
				}
			}
			got := models.FromWire(wire)
			if got.Error() != wire.Error() || status.Convert(got).Message() != status.Convert(sentinel).Message() || !errors.Is(got, wire) {
				t.Errorf("%v, %s: became %v", sentinel, name, got)
			}
		}
	}
}

// TestFromWireOthers: any other error is unchanged.
func TestFromWireOthers(t *testing.T) {
	for _, err := range []error{
		nil, errors.New("other"), context.Canceled, status.Error(codes.AlreadyExists, "taken"),
		status.Error(codes.NotFound, "lock-collision"), fmt.Errorf("lock-collision: %w", context.Canceled),
	} {
		if got := models.FromWire(err); got != err { //nolint:errorlint // the very same
			t.Errorf("%v became %v", err, got)
		}
	}
}
