package watch_test

import (
	"testing"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/db/dbtest/golden"
	"github.com/locket-service/locket/internal/service/watch"
)

// TestGolden: a cursor that this version has given out is read, and written in the same way.
func TestGolden(t *testing.T) {
	cursor := watch.Cursor{Position: db.Position{"a": 1, "cluster": 1<<40 + 7}, At: 1_790_000_000_000_000}
	golden.Check(t, golden.Format{Name: "cursor-1", Written: []byte(cursor.String()), Again: func(data []byte) ([]byte, error) {
		c, err := watch.ParseCursor(string(data))
		return []byte(c.String()), err
	}})
}
