package models_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/locket-service/locket/models"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestWireContract spells out the messages of Cloud Foundry's Locket. Later additions must have other numbers.
func TestWireContract(t *testing.T) {
	for message, want := range map[protoreflect.ProtoMessage]string{
		&models.Resource{}:         "1 key string, 2 owner string, 3 value string, 4 type string, 5 type_code enum",
		&models.LockRequest{}:      "1 resource message, 2 ttl_in_seconds int64",
		&models.LockResponse{}:     "",
		&models.ReleaseRequest{}:   "1 resource message",
		&models.ReleaseResponse{}:  "",
		&models.FetchRequest{}:     "1 key string",
		&models.FetchResponse{}:    "1 resource message",
		&models.FetchAllRequest{}:  "1 type string, 2 type_code enum",
		&models.FetchAllResponse{}: "1 resources message",
	} {
		descriptor := message.ProtoReflect().Descriptor()
		var fields []string
		for i := range descriptor.Fields().Len() {
			f := descriptor.Fields().Get(i)
			fields = append(fields, fmt.Sprintf("%d %s %s", f.Number(), f.Name(), f.Kind()))
		}
		if got := strings.Join(fields, ", "); !strings.HasPrefix(got+", ", want) {
			t.Errorf("%s has the fields %q, want %q first", descriptor.FullName(), got, want)
		}
	}
	want := map[string]int32{"UNKNOWN": 0, "LOCK": 1, "PRESENCE": 2}
	if fmt.Sprint(models.TypeCode_value) != fmt.Sprint(want) {
		t.Errorf("type codes %v, want %v", models.TypeCode_value, want)
	}
	for _, method := range []string{"Lock", "Fetch", "Release", "FetchAll"} {
		service := models.File_models_locket_proto.Services().ByName("Locket")
		if m := service.Methods().ByName(protoreflect.Name(method)); m == nil || service.FullName() != "models.Locket" ||
			string(m.Input().Name()) != method+"Request" || string(m.Output().Name()) != method+"Response" {
			t.Errorf("method %s: %v", method, m)
		}
	}
}

// TestImports: a client can be generated from the file alone.
func TestImports(t *testing.T) {
	imports := models.File_models_locket_proto.Imports()
	for i := range imports.Len() {
		if path := imports.Get(i).Path(); !strings.HasPrefix(path, "google/protobuf/") {
			t.Errorf("locket.proto imports %s", path)
		}
	}
}

// TestStatuses: the statuses of the REST requirements, by the numbers that are stored and sent.
func TestStatuses(t *testing.T) {
	for number, want := range []string{"UNSPECIFIED", "WAITING", "ACTIVE", "RELEASED", "EXPIRED", "ABORTED", "WITHDRAWN", "REVOKED"} {
		if got := models.Status(number).String(); got != "STATUS_"+want {
			t.Errorf("status %d is %s, want %s", number, got, want)
		}
	}
}

// TestErrors spells out the errors that clients of Cloud Foundry's Locket compare.
func TestErrors(t *testing.T) {
	for _, c := range []struct {
		err     error
		code    codes.Code
		message string
	}{
		{models.ErrLockCollision, codes.AlreadyExists, "lock-collision"},
		{models.ErrInvalidTTL, codes.InvalidArgument, "invalid-ttl"},
		{models.ErrInvalidOwner, codes.InvalidArgument, "invalid-owner"},
		{models.ErrResourceNotFound, codes.NotFound, "resource-not-found"},
		{models.ErrInvalidType, codes.NotFound, "invalid-type"},
	} {
		if got := status.Convert(c.err); got.Code() != c.code || got.Message() != c.message {
			t.Errorf("got %s %q, want %s %q", got.Code(), got.Message(), c.code, c.message)
		}
		if !errors.Is(status.Error(c.code, c.message), c.err) {
			t.Errorf("%s: an equal status is not it", c.message)
		}
	}
}
