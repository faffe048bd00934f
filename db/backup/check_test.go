package backup

import (
	"fmt"
	"strings"
	"testing"

	"github.com/locket-service/locket/internal/rules/claim"
)

// TestCheckOfHistory: the check keeps nothing about resources whose claims ended long ago, since there may be very
// many. Versions that may be given again are found.
func TestCheckOfHistory(t *testing.T) {
	const floor = 1_000_000
	k := NewChecker()
	if err := k.Begin(Head{Floor: floor}); err != nil {
		t.Fatal(err)
	}
	for n := range uint64(1000) {
		if err := k.Ended(&claim.Claim{ID: fmt.Sprint(n), Resource: fmt.Sprint("r", n), Status: claim.Released, Version: floor - n}); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(k.tallies); n > 0 {
		t.Errorf("of %d resources something is kept", n)
	}
	if err := k.Row(Row{Row: claim.Row{Resource: "row", Version: floor + 1}}); err != nil {
		t.Fatal(err)
	}
	for _, resource := range []string{"row", "none"} {
		if err := k.Ended(&claim.Claim{ID: "new " + resource, Resource: resource, Status: claim.Released, Version: floor + 2}); err != nil {
			t.Fatal(err)
		}
	}
	if err := k.End(Head{Floor: floor}); err != nil {
		t.Fatal(err)
	}
	says := strings.Join(k.Problems, "; ")
	for _, want := range []string{`"row" has version 1000001, and its claim "new row" has 1000002`, `"none" has no row, and its claim "new none" has version 1000002`} {
		if !strings.Contains(says, want) || k.Found != 2 {
			t.Errorf("it says %q, want %s", says, want)
		}
	}
}
