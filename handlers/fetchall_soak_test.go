//go:build soak

package handlers_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/locket-service/locket/models"
)

// TestFetchAllTooLargeSoak is TestFetchAllTooLarge with user data, which is not in the answer, but read for it.
func TestFetchAllTooLargeSoak(t *testing.T) {
	s := start(t)
	large := func(req *models.CreateClaimRequest) { req.UserData = ptr(`"` + strings.Repeat("u", 64<<10-2) + `"`) }
	var want []string
	for i := range 257 {
		s.create(t, number("r", i), number("c", i), 3600, large)
		want = append(want, number("r", i))
	}
	_, err := s.FetchAll(t.Context(), &models.FetchAllRequest{TypeCode: models.TypeCode_LOCK})
	wantReason(t, err, "ANSWER_TOO_LARGE")
	if keys, pages := s.pages(t, 1000); !slices.Equal(keys, want) || pages < 5 {
		t.Errorf("%d pages: %q", pages, keys)
	}
}
