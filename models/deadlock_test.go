package models_test

import (
	"errors"
	"fmt"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/locket-service/locket/models"
)

// TestDeadlockError: an error of a deadlock has its members, and wraps the error of the call. Members that cannot be
// decoded are left out.
func TestDeadlockError(t *testing.T) {
	for metadata, want := range map[string]string{
		`[{"owner":"a","claim":"1","resource":"x"},{"session":"s","claim":"2","resource":"y"}]`: "[{a  1 x} { s 2 y}]",
		`[]`: "[]", ``: "[]", `[{"owner":1}]`: "[]", `{`: "[]",
	} {
		wire := models.WithInfo(status.New(codes.Aborted, "a deadlock"), models.ReasonDeadlock, map[string]string{models.DeadlockKey: metadata})
		err := fmt.Errorf("lock: %w", models.FromWire(models.FromWire(wire)))
		var deadlock *models.DeadlockError
		if !errors.As(err, &deadlock) || fmt.Sprint(deadlock.Members) != want || !errors.Is(err, wire) {
			t.Errorf("%s: %#v", metadata, err)
		}
		if status.Code(err) != codes.Aborted || models.ReasonOf(err) != models.ReasonDeadlock || status.Convert(deadlock).Message() != "a deadlock" {
			t.Errorf("%s: %v", metadata, err)
		}
	}
}
