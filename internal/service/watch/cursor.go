package watch

import (
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/db/codec"
	"github.com/locket-service/locket/internal/rules/claim"
)

// Cursor is the place of a watcher in the feed, which all servers share.
type Cursor struct {
	// Position covers all commits that the watcher has seen.
	Position db.Position
	// the feed ended at Position at the database's time At or later.
	At claim.Time
}

// behind returns the cursor behind an earlier position too: that may be of a server that has read more of the feed. A server that is
// not in the cursor has no more commits in the feed.
func (c Cursor) behind(seen db.Position) Cursor {
	cloned := false
	for server, n := range c.Position {
		if seen[server] <= n {
			continue
		}
		if !cloned {
			c.Position, cloned = maps.Clone(c.Position), true
		}
		c.Position[server] = seen[server]
	}
	return c
}

// ErrCursor is returned for a text that is not a cursor of this version.
var ErrCursor = errors.New("not a cursor of a watch")

const (
	// cursorVersion is the first byte of a cursor.
	cursorVersion = 1
	// MaxCursor is the maximum length of a cursor as text, in bytes. It has about 40 bytes for each server that has
	// committed within the last 20 minutes.
	MaxCursor = 64 << 10
	// maxServers is how many servers a cursor has at most.
	maxServers = MaxCursor / 40
)

// String returns the cursor as text, of letters, digits, "-" and "_".
func (c Cursor) String() string {
	w := codec.Writer(nil)
	w.Format(cursorVersion)
	codec.Signed(&w, &c.At)
	for _, server := range slices.Sorted(maps.Keys(c.Position)) {
		n := c.Position[server]
		codePlace(&w, &server, &n)
	}
	return base64.RawURLEncoding.EncodeToString(w.Buffer())
}

func codePlace(c *codec.Coder, server *string, n *uint64) {
	c.Text(server)
	c.Unsigned(n)
}

// ParseCursor returns the cursor that a text encodes, or ErrCursor.
func ParseCursor(text string) (Cursor, error) {
	if len(text) > MaxCursor {
		return Cursor{}, ErrCursor
	}
	buf, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil {
		return Cursor{}, ErrCursor
	}
	c, r := Cursor{Position: db.Position{}}, codec.Reader(buf)
	r.Format(cursorVersion)
	for codec.Signed(&r, &c.At); r.More(); {
		var server string
		var n uint64
		codePlace(&r, &server, &n)
		if _, again := c.Position[server]; again || len(c.Position) == maxServers {
			return Cursor{}, ErrCursor
		}
		c.Position[server] = n
	}
	if r.Err() != nil {
		return Cursor{}, fmt.Errorf("%w: %w", ErrCursor, r.Err())
	}
	return c, nil
}
