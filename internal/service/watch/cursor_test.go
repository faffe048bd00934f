package watch_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/service/watch"
)

func TestCursor(t *testing.T) {
	for _, position := range []db.Position{{}, {"a": 1}, {"a": 1<<64 - 1, "": 0, strings.Repeat("n", 300): 7}} {
		want := watch.Cursor{Position: position, At: 1_790_000_000_000_000}
		got, err := watch.ParseCursor(want.String())
		if err != nil || got.At != want.At || !maps.Equal(got.Position, want.Position) {
			t.Errorf("%v became %v (%v)", want, got, err)
		}
	}
	many := watch.Cursor{Position: db.Position{}}
	for i := range 2000 { // each costs the database a condition
		many.Position[fmt.Sprint(i)] = 1
	}
	good := watch.Cursor{Position: db.Position{"server": 5}, At: 7}.String()
	for _, bad := range []string{"", "!", "AA", "AQ", good[:len(good)-1], good + "A", good + "=", strings.Repeat("A", watch.MaxCursor+1), many.String()} {
		if got, err := watch.ParseCursor(bad); err == nil {
			t.Errorf("%.40q became %v", bad, got)
		}
	}
}

// FuzzCursor: a text that parses as a cursor is equal to the cursor of its own text.
func FuzzCursor(f *testing.F) {
	f.Add(watch.Cursor{Position: db.Position{"server": 5, "other": 1 << 40}, At: 1_790_000_000_000_000}.String())
	f.Add("AQ")
	f.Fuzz(func(t *testing.T, text string) {
		c, err := watch.ParseCursor(text)
		if err != nil {
			return
		}
		again, err := watch.ParseCursor(c.String())
		if err != nil || again.At != c.At || !maps.Equal(again.Position, c.Position) {
			t.Errorf("%q: %v became %v (%v)", text, c, again, err)
		}
	})
}
