package models_test

import (
	"errors"
	"fmt"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"

	"github.com/locket-service/locket/models"
)

func withDetails(t *testing.T, details ...protoadapt.MessageV1) error {
	t.Helper()
	s, err := status.New(codes.AlreadyExists, "lock-collision").WithDetails(details...)
	if err != nil {
		t.Fatal(err)
	}
	return s.Err()
}

func TestErrorInfoOf(t *testing.T) {
	own := &errdetails.ErrorInfo{
		Reason: models.ReasonLockCollision, Domain: models.ErrorDomain, Metadata: map[string]string{"holder": "me"},
	}
	foreign := &errdetails.ErrorInfo{Reason: models.ReasonIDTaken, Domain: "example.com"}
	for name, c := range map[string]struct {
		err  error
		want string
	}{
		"nil":               {nil, ""},
		"not of a call":     {errors.New("other"), ""},
		"without details":   {models.ErrLockCollision, ""},
		"another's":         {withDetails(t, foreign), ""},
		"own":               {withDetails(t, own), models.ReasonLockCollision},
		"own after others":  {withDetails(t, &errdetails.BadRequest{}, foreign, own), models.ReasonLockCollision},
		"wrapped":           {fmt.Errorf("lock %q: %w", "k", withDetails(t, own)), models.ReasonLockCollision},
		"joined with other": {errors.Join(errors.New("other"), withDetails(t, own)), models.ReasonLockCollision},
	} {
		if got := models.ReasonOf(c.err); got != c.want {
			t.Errorf("%s: reason %q, want %q", name, got, c.want)
		}
		holder, known := models.ErrorInfoOf(c.err).GetMetadata()["holder"]
		if known != (c.want != "") || known && holder != "me" {
			t.Errorf("%s: holder %q, %t", name, holder, known)
		}
	}
}
