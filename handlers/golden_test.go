package handlers

import (
	"testing"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/db/dbtest/golden"
)

// TestGolden: the token of a page that this version has given out is read, and written in the same way.
func TestGolden(t *testing.T) {
	place := db.Cursor{Created: 1_790_000_000_000_000, ID: "a"}
	var formats []golden.Format
	for name, newest := range map[string]bool{"page-1": false, "page-newest-1": true} {
		formats = append(formats, golden.Format{Name: name, Written: []byte(encodeCursor(place, newest)), Again: func(data []byte) ([]byte, error) {
			c, err := decodeCursor(string(data), newest)
			if err != nil {
				return nil, err
			}
			return []byte(encodeCursor(*c, newest)), nil
		}})
	}
	golden.Check(t, formats...)
}
