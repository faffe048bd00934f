package handlers_test

import (
	"slices"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/locket-service/locket/models"
)

// TestRepeatedStatus: a list may repeat a status, and an error about one of them is reported once: an error of many
// lines would be too large for a client.
func TestRepeatedStatus(t *testing.T) {
	bubble(t, func(t *testing.T, s *server) {
		s.create(t, "a", "a", 60)
		const many = 100_000
		list, err := s.ListClaims(t.Context(), &models.ListClaimsRequest{Status: slices.Repeat([]models.Status{models.Status_STATUS_ACTIVE}, many)})
		if err != nil || len(list.GetClaims()) != 1 {
			t.Errorf("got %v, %v", list, err)
		}
		different := make([]models.Status, many/2)
		for i := range different {
			different[i] = models.Status(100 + i)
		}
		for unknown, statuses := range map[string][]models.Status{
			"one": slices.Repeat([]models.Status{99}, many), "unspecified": make([]models.Status, many), "different ones": different,
		} {
			_, err = s.ListClaims(t.Context(), &models.ListClaimsRequest{Status: statuses})
			got := status.Convert(err)
			if got.Code() != codes.InvalidArgument || len(got.Message()) > 1000 {
				t.Fatalf("%s: %s, %d bytes: %.200s", unknown, got.Code(), len(got.Message()), got.Message())
			}
			for _, detail := range got.Details() {
				if wrong, ok := detail.(*errdetails.BadRequest); ok && len(wrong.GetFieldViolations()) != 1 {
					t.Errorf("%s: %d violations", unknown, len(wrong.GetFieldViolations()))
				}
			}
		}
	})
}
