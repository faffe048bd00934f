package claim

import (
	"errors"
	"fmt"
	"testing"
)

func TestRefused(t *testing.T) {
	errs := map[error]bool{
		&CollisionError{}: true, ErrQueueFull: true, ErrQuarantine: true, fmt.Errorf("wrapped: %w", ErrQueueFull): true,
		nil: false, ErrIDTaken: false, ErrNotFound: false, errors.New("other"): false,
	}
	for err, want := range errs {
		for _, cmd := range []Command{Create{Resource: "r"}, Acquire{Resource: "r"}} {
			if resource, got := Refused(cmd, err); got != want || resource != "r" {
				t.Errorf("%T with %v: %q, %v", cmd, err, resource, got)
			}
		}
		if _, got := Refused(Renew{ID: "r"}, err); got {
			t.Errorf("a renewal with %v is refused", err)
		}
	}
}
