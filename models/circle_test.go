package models_test

import (
	"errors"
	"fmt"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/locket-service/locket/models"
)

// TestCircleError: an error of a circle says who is in it, and is what it was otherwise; members that cannot be read are none.
func TestCircleError(t *testing.T) {
	for metadata, want := range map[string]string{
		`[{"owner":"a","claim":"1","resource":"x"},{"session":"s","claim":"2","resource":"y"}]`: "[{a  1 x} { s 2 y}]",
		`[]`: "[]", ``: "[]", `[{"owner":1}]`: "[]", `{`: "[]",
	} {
		wire := models.WithInfo(status.New(codes.Aborted, "a circle"), models.ReasonCircle, map[string]string{models.CircleKey: metadata})
		err := fmt.Errorf("lock: %w", models.FromWire(models.FromWire(wire)))
		var circle *models.CircleError
		if !errors.As(err, &circle) || fmt.Sprint(circle.Members) != want || !errors.Is(err, wire) {
			t.Errorf("%s: %#v", metadata, err)
		}
		if status.Code(err) != codes.Aborted || models.ReasonOf(err) != models.ReasonCircle || status.Convert(circle).Message() != "a circle" {
			t.Errorf("%s: %v", metadata, err)
		}
	}
}
