package exit

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
)

// An error keeps its own words and status, whatever it is wrapped in.
func TestFinish(t *testing.T) {
	t.Parallel()
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	plainError := errors.New("a\nb\x1b")
	for name, test := range map[string]struct {
		ctx    context.Context
		err    error
		stderr string
		status int
	}{
		"none":                     {t.Context(), nil, "", OK},
		"any":                      {t.Context(), plainError, "locket: a; b\\x1b\n", Failure},
		"with a status":            {t.Context(), fmt.Errorf("x: %w", With(Held, plainError)), "locket: x: a; b\\x1b\n", Held},
		"a status alone":           {t.Context(), With(42, nil), "", 42},
		"interrupted":              {canceled, fmt.Errorf("x: %w", context.Canceled), "locket: interrupted\n", Interrupted},
		"a failure after a signal": {canceled, plainError, "locket: a; b\\x1b\n", Failure},
	} {
		var stderr strings.Builder
		if status := Finish(test.ctx, &stderr, test.err); status != test.status || stderr.String() != test.stderr {
			t.Errorf("%s: %d, %q, want %d, %q", name, status, stderr.String(), test.status, test.stderr)
		}
	}
}
