package auth_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/reflection/grpc_reflection_v1alpha"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/tests/harness"
)

// An identity that may do nothing gets nothing that lasts: no watch, no session, no stream of reflection, no wait.
func TestNothingLastsWithoutRights(t *testing.T) {
	w := start(t, `rules: [{identity: "credential:owner", may: [hold], resource_prefix: ""}]`, []string{"owner", "nobody"})
	for _, id := range []string{"holder", "waiter"} {
		_, err := w.CreateClaim(w.as("owner"), &models.CreateClaimRequest{Id: id, Resource: "r", Ttl: proto.Float64(600)})
		must(t, err)
	}
	refused := func(what string, code codes.Code, err error) {
		t.Helper()
		if status.Code(err) != code {
			t.Errorf("%s: %v, want %s", what, err, code)
		}
	}
	ctx, cancel := context.WithTimeout(w.as("nobody"), harness.HangTimeout)
	defer cancel()
	watch, err := w.Watch(ctx, &models.WatchRequest{})
	must(t, err)
	_, err = watch.Recv()
	refused("a watch", codes.PermissionDenied, err)
	if !strings.Contains(err.Error(), "no rule allows credential:nobody to do anything") {
		t.Error(err)
	}
	for _, resume := range []bool{false, true} {
		session, err := w.Session(ctx)
		must(t, err)
		_ = session.Send(&models.SessionRequest{Sequence: 1, Command: &models.SessionRequest_Open{Open: &models.OpenSession{
			Id: "0123456789abcdef", Secret: "0123456789abcdef", Ttl: 60, Resume: resume,
		}}})
		_, err = session.Recv()
		refused("a session", codes.PermissionDenied, err)
	}
	v1, err := grpc_reflection_v1.NewServerReflectionClient(w.conn).ServerReflectionInfo(ctx)
	must(t, err)
	_, err = v1.Recv()
	refused("reflection", codes.PermissionDenied, err)
	v1alpha, err := grpc_reflection_v1alpha.NewServerReflectionClient(w.conn).ServerReflectionInfo(ctx)
	must(t, err)
	_, err = v1alpha.Recv()
	refused("reflection", codes.PermissionDenied, err)
	_, err = w.AwaitClaim(ctx, &models.AwaitClaimRequest{Id: "waiter"})
	refused("a wait", codes.NotFound, err)
	if code, _, body := w.http("nobody", http.MethodGet, "/v1/events/", ""); code != http.StatusForbidden {
		t.Errorf("events: %d %s", code, body)
	}
	if code, _, body := w.http("nobody", http.MethodGet, "/v1/claims/waiter", "", "Prefer: wait=60"); code != http.StatusNotFound {
		t.Errorf("a wait: %d %s", code, body)
	}
	if code, _, body := w.http("owner", http.MethodGet, "/v1/claims/waiter", "", "Prefer: wait=1"); code != http.StatusOK {
		t.Errorf("a wait of the owner: %d %s", code, body)
	}
}
